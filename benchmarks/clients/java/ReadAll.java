// Reads a topic with the Java client's poll() and looks at every value.
//
//     java -cp CLASSPATH ReadAll.java BOOTSTRAP TOPIC GROUP TOTAL
//
// Prints: records, bytes, seconds and CPU seconds after the first batch, and its records.

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class ReadAll {
    public static void main(String[] args) {
        var system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long total = Long.parseLong(args[3]);
        long records = 0, bytes = 0, first = 0, began = 0, beganCpu = 0;
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", args[0],
            "group.id", args[2],
            "auto.offset.reset", "earliest");
        var deserializer = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<>(settings, deserializer, deserializer)) {
            consumer.subscribe(List.of(args[1]));
            while (records < total) {
                ConsumerRecords<byte[], byte[]> batch = consumer.poll(Duration.ofSeconds(1));
                for (ConsumerRecord<byte[], byte[]> record : batch) {
                    bytes += record.value().length;
                }
                records += batch.count();
                if (first == 0 && records > 0) {
                    first = records;
                    began = System.nanoTime();
                    beganCpu = system.getProcessCpuTime();
                }
            }
            double seconds = (System.nanoTime() - began) / 1e9;
            double cpu = (system.getProcessCpuTime() - beganCpu) / 1e9;
            System.out.println(records + " " + bytes + " " + seconds + " " + cpu + " " + first);
        }
    }
}
