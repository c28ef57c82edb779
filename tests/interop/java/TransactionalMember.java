import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Publishes each record of a topic, as it is, with its offset in one transaction, until its standard
 * input ends: BOOTSTRAP TOPIC OUTPUT GROUP PROTOCOL. Prints how many records each transaction has.
 */
public class TransactionalMember {
    static volatile boolean running = true;

    public static void main(String[] arguments) throws Exception {
        Properties reading = new Properties();
        reading.putAll(Map.of(
            "bootstrap.servers", arguments[0],
            "group.id", arguments[3],
            "group.protocol", arguments[4],
            "isolation.level", "read_committed",
            "auto.offset.reset", "earliest",
            "enable.auto.commit", "false",
            "max.poll.records", "50"));
        if (arguments[4].equals("classic")) {
            reading.putAll(Map.of(
                "partition.assignment.strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
                "heartbeat.interval.ms", "300",
                "session.timeout.ms", "3000"));
        }
        Properties writing = new Properties();
        writing.putAll(Map.of(
            "bootstrap.servers", arguments[0],
            "transactional.id", arguments[3] + "-java",
            "transaction.timeout.ms", "5000"));
        Thread input = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {}
            } catch (java.io.IOException ended) {
                // It has ended.
            }
            running = false;
        });
        input.setDaemon(true);
        input.start();
        try (var consumer = new KafkaConsumer<>(reading, new ByteArrayDeserializer(), new ByteArrayDeserializer());
                var producer = new KafkaProducer<>(writing, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            consumer.subscribe(List.of(arguments[1]));
            while (running) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
                if (records.isEmpty()) {
                    continue;
                }
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                producer.beginTransaction();
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    producer.send(new ProducerRecord<>(arguments[2], record.key(), record.value()));
                    offsets.put(
                        new TopicPartition(record.topic(), record.partition()),
                        new OffsetAndMetadata(record.offset() + 1));
                }
                try {
                    producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                    producer.commitTransaction();
                    System.out.println(records.count());
                } catch (CommitFailedException rebalanced) {
                    producer.abortTransaction();
                    var committed = consumer.committed(consumer.assignment());
                    for (TopicPartition partition : consumer.assignment()) {
                        OffsetAndMetadata found = committed.get(partition);
                        consumer.seek(partition, found == null ? 0 : found.offset());
                    }
                }
            }
        }
    }
}
