// Reads a topic as a member of a share group with the Java client, and accepts each record.
//
//     java -cp CLASSPATH ShareAll.java BOOTSTRAP TOPIC GROUP TOTAL MODE ACQUIRE MAX_POLL_RECORDS
//
// MODE is implicit or explicit, ACQUIRE batch_optimized or record_limit. Prints: records, bytes,
// seconds and CPU seconds from the first poll with records until the last one, the records of the
// first; then seconds from subscribe() to that, bytes received, requests, and records that had been
// delivered before.

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class ShareAll {
    public static void main(String[] args) {
        var system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long total = Long.parseLong(args[3]);
        boolean explicit = args[4].equals("explicit");
        long records = 0, bytes = 0, first = 0, began = 0, beganCpu = 0, again = 0;
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", args[0],
            "group.id", args[2],
            "share.acknowledgement.mode", args[4],
            "share.acquire.mode", args[5],
            "max.poll.records", args[6]);
        var deserializer = new ByteArrayDeserializer();
        try (var consumer = new KafkaShareConsumer<>(settings, deserializer, deserializer)) {
            long subscribed = System.nanoTime();
            consumer.subscribe(List.of(args[1]));
            while (records < total) {
                ConsumerRecords<byte[], byte[]> batch = consumer.poll(Duration.ofSeconds(1));
                if (first == 0 && batch.count() > 0) {
                    first = batch.count();
                    began = System.nanoTime();
                    beganCpu = system.getProcessCpuTime();
                }
                for (ConsumerRecord<byte[], byte[]> record : batch) {
                    bytes += record.value().length;
                    if (record.deliveryCount().orElse((short) 1) > 1) {
                        again += 1;
                    }
                    if (explicit) {
                        consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                    }
                }
                records += batch.count();
            }
            double seconds = (System.nanoTime() - began) / 1e9;
            double cpu = (system.getProcessCpuTime() - beganCpu) / 1e9;
            consumer.commitSync(Duration.ofSeconds(10));
            double received = 0, requests = 0;
            for (var metric : consumer.metrics().entrySet()) {
                var name = metric.getKey();
                if (name.tags().containsKey("node-id")) {
                    continue;
                }
                if (name.name().equals("incoming-byte-total")) {
                    received = ((Number) metric.getValue().metricValue()).doubleValue();
                } else if (name.name().equals("request-total")) {
                    requests = ((Number) metric.getValue().metricValue()).doubleValue();
                }
            }
            System.out.println(records + " " + bytes + " " + seconds + " " + cpu + " " + first + " "
                + (began - subscribed) / 1e9 + " " + received + " " + requests + " " + again);
        }
    }
}
