// Publishes a result of each record of a topic exactly once with the Java client, in one loop, as
// the documentation of KafkaProducer has it. When partitions are revoked, the work that is left
// takes a while; then their offsets are committed.
//
//     java -cp CLASSPATH DrainAndPublish.java BOOTSTRAP TOPIC RESULTS GROUP MEMBER PROTOCOL \
//         INTERVAL_MILLIS DRAIN_MILLIS
//
// A result is the member's name, the partition, and the monotonic clock of the handling in ns. Runs
// until it is killed.

import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class DrainAndPublish {
    private static KafkaConsumer<byte[], byte[]> consumer;
    private static KafkaProducer<byte[], byte[]> producer;
    private static final Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
    private static boolean open = false;

    public static void main(String[] args) {
        var settings = new HashMap<String, Object>(Map.of(
            "bootstrap.servers", args[0],
            "group.id", args[3],
            "group.protocol", args[5],
            "auto.offset.reset", "earliest",
            "enable.auto.commit", "false",
            "isolation.level", "read_committed"));
        if (args[5].equals("classic")) {
            settings.put("partition.assignment.strategy",
                "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
        }
        long interval = Long.parseLong(args[6]) * 1_000_000;
        long drain = Long.parseLong(args[7]);
        var deserializer = new ByteArrayDeserializer();
        var serializer = new ByteArraySerializer();
        consumer = new KafkaConsumer<>(settings, deserializer, deserializer);
        producer = new KafkaProducer<>(
            Map.of("bootstrap.servers", args[0], "transactional.id", args[3] + "-" + args[4]),
            serializer, serializer);
        producer.initTransactions();
        consumer.subscribe(List.of(args[1]), new ConsumerRebalanceListener() {
            public void onPartitionsAssigned(Collection<TopicPartition> assigned) {}

            public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
                if (!revoked.isEmpty()) {
                    try {
                        Thread.sleep(drain);
                    } catch (InterruptedException error) {
                        throw new IllegalStateException(error);
                    }
                }
                commit();
            }
        });
        long due = 0;
        while (true) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(10))) {
                if (!open) {
                    producer.beginTransaction();
                    open = true;
                    due = System.nanoTime() + interval;
                }
                String value = args[4] + " " + record.partition() + " " + System.nanoTime();
                producer.send(new ProducerRecord<>(args[2], record.key(), value.getBytes()));
                offsets.put(
                    new TopicPartition(record.topic(), record.partition()),
                    new OffsetAndMetadata(record.offset() + 1));
            }
            if (open && System.nanoTime() >= due) {
                commit();
            }
        }
    }

    private static void commit() {
        if (open) {
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            producer.commitTransaction();
            offsets.clear();
            open = false;
        }
    }
}
