import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/** Runs the listener of the page until 20 records are counted: BOOTSTRAP TOPIC. */
public class ListenerPage {
    static boolean running = true;

    static class Totals {
        private final Map<TopicPartition, Long> next = new HashMap<>();
        private int records;

        long load(TopicPartition partition) {
            return next.getOrDefault(partition, 0L);
        }

        void save(TopicPartition partition, long offset) {
            next.put(partition, offset);
            System.out.println("saved " + offset);
        }

        void drop(TopicPartition partition) {
            next.remove(partition);
        }

        void add(ConsumerRecord<String, String> record) {
            records += 1;
            running = records < 20;
        }
    }

    public static void main(String[] arguments) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("group.id", arguments[1]);
        properties.put("enable.auto.commit", "false");
        properties.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        properties.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        Totals totals = new Totals();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties)) {
            // FRAGMENT
        }
    }
}
