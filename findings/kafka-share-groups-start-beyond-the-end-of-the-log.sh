#!/usr/bin/env bash
# Apache Kafka 4.4.0: AlterShareGroupOffsets (KIP-932) stores any start offset, also one that is negative or beyond the end
# of the log, and creates the share group if there is none of this name. Beyond the end, members get no record until the
# log reaches the offset, and no error; the lag in the response is below 0, and Java's client reports none. A committed
# offset outside of the log is noticed by consumers, which then reset it (OFFSET_OUT_OF_RANGE). Guessed before: the
# coordinator checks the offset, and rejects an unknown group. Prints what was seen; fails if that changes. Takes about 60 s.
# usage: kafka-share-groups-start-beyond-the-end-of-the-log.sh [VERSION OF Kafka]; needs Java 17 and Maven
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
cat >Offsets.java <<'JAVA'
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

public class Offsets {
    static final TopicPartition TP = new TopicPartition("orders", 0);

    static void set(Admin admin, String group, long offset) throws Exception {
        admin.alterShareGroupOffsets(group, Map.of(TP, offset)).all().get();
        var found = admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec()))
            .partitionsToOffsetInfo(group).get().get(TP);
        System.out.println("start " + offset + " of a log of 15: accepted, lag "
            + (found == null ? "not reported" : found.lag().map(String::valueOf).orElse("not reported")));
    }

    static KafkaShareConsumer<String, String> member(Map<String, Object> to, String group) {
        Map<String, Object> options = new HashMap<>(to);
        options.put("group.id", group);
        var consumer = new KafkaShareConsumer<>(options, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of("orders"));
        return consumer;
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> to = Map.of("bootstrap.servers", arguments[0]);
        try (Admin admin = Admin.create(to)) {
            admin.createTopics(List.of(new NewTopic("orders", 1, (short) 1))).all().get();
            try (var producer = new KafkaProducer<>(to, new StringSerializer(), new StringSerializer())) {
                for (int i = 0; i < 15; i++) producer.send(new ProducerRecord<>("orders", 0, null, "v")).get();
            }
            System.out.println("groups before: " + admin.listGroups().all().get().size());
            set(admin, "within", 4);
            var group = admin.describeShareGroups(List.of("within")).all().get().get("within");
            System.out.println("groups then: " + admin.listGroups().all().get().size() + ", " + group.groupState());
            set(admin, "beyond", -7);
            set(admin, "beyond", 99);
            int within = 0;
            int beyond = 0;
            try (var first = member(to, "within"); var second = member(to, "beyond")) {
                long until = System.nanoTime() + Duration.ofSeconds(25).toNanos();
                while (System.nanoTime() < until) {
                    within += first.poll(Duration.ofMillis(300)).count();
                    beyond += second.poll(Duration.ofMillis(300)).count();
                }
            }
            System.out.println("received in 25 s: " + within + " from 4 on, " + beyond + " from 99 on");
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
  -c server.properties --feature share.version=1 >log 2>&1
java -Xmx384m -cp 'lib/*' kafka.Kafka server.properties >log 2>&1 &
server=$!
for _ in $(seq 100); do (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break; sleep 0.3; done
echo "Apache Kafka $version"
java -Xmx256m -cp 'lib/*' Offsets.java "127.0.0.1:$port" 2>errors | tee seen || { tail -5 errors; exit 1; }
diff - seen <<'SEEN'
groups before: 0
start 4 of a log of 15: accepted, lag 11
groups then: 1, Empty
start -7 of a log of 15: accepted, lag not reported
start 99 of a log of 15: accepted, lag not reported
received in 25 s: 11 from 4 on, 0 from 99 on
SEEN
