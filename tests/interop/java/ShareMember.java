// A member of a share group that accepts what it is delivered until its standard input ends.
//
//     java -cp CLASSPATH ShareMember.java BOOTSTRAP TOPIC GROUP MODE
//
// MODE is implicit or explicit. Prints a line for each delivery, `delivered PARTITION OFFSET COUNT`,
// and for each acknowledgement that the broker has confirmed, `confirmed PARTITION OFFSET`. Then it
// polls until it is delivered records, accepts the first half of them if MODE is explicit, prints
// `unaccepted PARTITION OFFSET` for each other one, and closes the consumer.

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class ShareMember {
    static volatile boolean leaving;

    public static void main(String[] args) {
        boolean explicit = args[3].equals("explicit");
        var settings = Map.<String, Object>of(
            "bootstrap.servers", args[0],
            "group.id", args[2],
            "share.acknowledgement.mode", args[3],
            "max.poll.records", 20);
        var deserializer = new ByteArrayDeserializer();
        var input = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {}
            } catch (java.io.IOException error) {
                System.err.println(error);
            }
            leaving = true;
        });
        input.setDaemon(true);
        input.start();
        try (var consumer = new KafkaShareConsumer<>(settings, deserializer, deserializer)) {
            consumer.setAcknowledgementCommitCallback((offsets, error) -> offsets.forEach((tp, all) -> {
                for (long offset : all) {
                    System.out.println((error == null ? "confirmed " : "refused ")
                        + tp.partition() + " " + offset);
                }
            }));
            consumer.subscribe(List.of(args[1]));
            boolean last = false;
            while (!last) {
                last = leaving;
                var batch = new ArrayList<ConsumerRecord<byte[], byte[]>>();
                for (var record : consumer.poll(Duration.ofMillis(last ? 1000 : 100))) {
                    System.out.println("delivered " + record.partition() + " " + record.offset()
                        + " " + record.deliveryCount().orElse((short) -1));
                    batch.add(record);
                }
                int accepted = last ? batch.size() / 2 : batch.size();
                for (int n = 0; n < batch.size(); n++) {
                    var record = batch.get(n);
                    if (explicit && n < accepted) {
                        consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                    } else if (last) {
                        System.out.println(
                            "unaccepted " + record.partition() + " " + record.offset());
                    }
                }
            }
        }
    }
}
