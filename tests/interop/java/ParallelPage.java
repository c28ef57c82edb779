import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Runs the processor of the page until its standard input ends: BOOTSTRAP TOPIC. */
public class ParallelPage {
    public record Order(String json) {}

    static class Bank {
        synchronized void charge(Order order) {
            System.out.println("charged " + order.json());
        }
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> properties = Map.of(
            "bootstrap.servers", arguments[0],
            "group.id", arguments[1],
            "auto.offset.reset", "earliest",
            "enable.auto.commit", "false");
        var kafkaConsumer = new KafkaConsumer<String, Order>(
            properties, new StringDeserializer(), (topic, bytes) -> new Order(new String(bytes)));
        Bank bank = new Bank();
        // FRAGMENT
        while (System.in.read() >= 0) {}
        processor.closeDrainFirst();
    }
}
