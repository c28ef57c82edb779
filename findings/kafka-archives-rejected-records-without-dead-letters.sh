#!/usr/bin/env bash
# Apache Kafka 4.4.0, share.version=2: a share group may name any topic as its dead letter queue (KIP-1191), but the broker
# writes letters only to a topic whose name begins with errors.deadletterqueue.topic.name.prefix ("dlq.") and that has
# errors.deadletterqueue.group.enable=true. For any other one it accepts the option of the group and the REJECT, archives the
# record without a letter, and logs "Failed to write to DLQ, proceeding to ARCHIVED regardless". Guessed before: the option
# is refused, or the record stays. Prints what was seen; fails if that changes. Takes about 60 s.
# usage: kafka-archives-rejected-records-without-dead-letters.sh [VERSION OF Kafka]; needs Java 17 and Maven
set -euo pipefail
version=${1:-4.4.0}
folder=$(mktemp -d)
server=
trap 'kill $server 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
cat >pom.xml <<XML
<project><modelVersion>4.0.0</modelVersion><groupId>f</groupId><artifactId>f</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$version</version></dependency>
</dependencies></project>
XML
mvn -q -B dependency:copy-dependencies -DoutputDirectory=lib -DincludeScope=runtime >/dev/null
cat >Letters.java <<'JAVA'
import java.time.Duration;
import java.util.*;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.*;

public class Letters {
    static AlterConfigOp set(String name, String value) {
        return new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
    }

    static void reject(Admin admin, Map<String, Object> to, String letters, boolean enabled) throws Exception {
        var topic = new NewTopic(letters, 1, (short) 1);
        admin.createTopics(List.of(enabled ? topic.configs(Map.of("errors.deadletterqueue.group.enable", "true")) : topic)).all().get();
        String group = "of-" + letters;
        admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, group), List.of(
            set("share.auto.offset.reset", "earliest"), set("errors.deadletterqueue.topic.name", letters)))).all().get();
        Map<String, Object> options = new HashMap<>(to);
        options.putAll(Map.of("group.id", group, "share.acknowledgement.mode", "explicit"));
        var errors = new AtomicInteger();
        int rejected = 0;
        try (var consumer = new KafkaShareConsumer<>(options, new StringDeserializer(), new StringDeserializer())) {
            consumer.setAcknowledgementCommitCallback((offsets, error) -> errors.addAndGet(error == null ? 0 : 1));
            consumer.subscribe(List.of("orders"));
            while (rejected < 3) {
                for (var record : consumer.poll(Duration.ofMillis(300))) {
                    consumer.acknowledge(record, AcknowledgeType.REJECT);
                    rejected++;
                }
            }
            consumer.commitSync();
        }
        Thread.sleep(3000);
        var tp = new TopicPartition(letters, 0);
        long end = admin.listOffsets(Map.of(tp, OffsetSpec.latest())).partitionResult(tp).get().offset();
        var left = admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec())).partitionsToOffsetInfo(group).get()
            .get(new TopicPartition("orders", 0));
        System.out.println(letters + (enabled ? ", enabled" : ", not enabled") + ": rejected " + rejected + ", errors " + errors
            + ", letters " + end + ", lag " + left.lag().map(String::valueOf).orElse("not reported"));
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> to = Map.of("bootstrap.servers", arguments[0]);
        try (Admin admin = Admin.create(to)) {
            admin.createTopics(List.of(new NewTopic("orders", 1, (short) 1))).all().get();
            try (var producer = new KafkaProducer<>(to, new StringSerializer(), new StringSerializer())) {
                for (int i = 0; i < 3; i++) producer.send(new ProducerRecord<>("orders", 0, null, "v")).get();
            }
            reject(admin, to, "dlq.orders", true);
            reject(admin, to, "orders.dlq", true);
            reject(admin, to, "dlq.returns", false);
        }
    }
}
JAVA
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
cat >server.properties <<P
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$((port + 1))
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
advertised.listeners=PLAINTEXT://127.0.0.1:$port
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=$folder/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
P
java -cp 'lib/*' kafka.tools.StorageTool format -t "$(java -cp 'lib/*' kafka.tools.StorageTool random-uuid)" \
  -c server.properties --feature share.version=2 >log 2>&1
java -Xmx384m -cp 'lib/*' kafka.Kafka server.properties >log 2>&1 &
server=$!
for _ in $(seq 100); do (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break; sleep 0.3; done
echo "Apache Kafka $version"
java -Xmx256m -cp 'lib/*' Letters.java "127.0.0.1:$port" 2>errors | tee seen || { tail -5 errors; exit 1; }
diff - seen <<'SEEN'
dlq.orders, enabled: rejected 3, errors 0, letters 3, lag 0
orders.dlq, enabled: rejected 3, errors 0, letters 0, lag 0
dlq.returns, not enabled: rejected 3, errors 0, letters 0, lag 0
SEEN
