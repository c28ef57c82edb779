#!/usr/bin/env bash
# Apache Kafka 4.4.0: lowering transaction.version from 2 to 0 is allowed ("safe downgrade") while producers run, but the
# coordinator cannot store what a transaction of version 2 has begun ("Attempted to write a non-default
# clientTransactionVersion at version 0" in the broker's log). Java's producer ends with UnsupportedVersionException, and
# its transaction is neither committed nor aborted after its timeout, so readers with read_committed wait at its first
# record. Lowering the level to 1 harms nothing. Guessed before: each level that brokers allow can be set while producers
# run. Prints what was seen; fails if that changes. Takes about 90 s.
# usage: kafka-cannot-end-transactions-after-a-downgrade-to-level-0.sh [VERSION OF Kafka]; needs Java 17 and Maven
set -euo pipefail
version=${1:-4.4.0}
folder=$(mktemp -d)
server= producer=
trap 'kill $server $producer 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
cat >pom.xml <<XML
<project><modelVersion>4.0.0</modelVersion><groupId>f</groupId><artifactId>f</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$version</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>$version</version></dependency>
</dependencies></project>
XML
mvn -q -B dependency:copy-dependencies -DoutputDirectory=lib -DincludeScope=runtime >/dev/null
port=$((20000 + RANDOM % 20000))
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
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
P
tool() { java -cp 'lib/*' "org.apache.kafka.tools.$1" --bootstrap-server "127.0.0.1:$port" "${@:2}" 2>>tools.log; }
java -cp 'lib/*' kafka.tools.StorageTool format -t "$(java -cp 'lib/*' kafka.tools.StorageTool random-uuid)" \
  -c server.properties --feature transaction.version=2 >log 2>&1
java -Xmx384m -cp 'lib/*' kafka.Kafka server.properties >log 2>&1 &
server=$!
for _ in $(seq 100); do (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break; sleep 0.3; done
tool TopicCommand --create --topic t --partitions 1 >/dev/null
for level in 1 0; do
  java -cp 'lib/*' org.apache.kafka.tools.ProducerPerformance --topic t --num-records 200000 --record-size 10 \
    --throughput 2000 --transactional-id "id-$level" --transaction-duration-ms 500 --producer-props \
    "bootstrap.servers=127.0.0.1:$port" transaction.timeout.ms=2000 >"producer-$level.log" 2>&1 &
  producer=$!
  sleep 6
  tool FeatureCommand downgrade --feature "transaction.version=$level" >/dev/null
  sleep 12
  if kill $producer 2>/dev/null; then ended="goes on"; else ended="has ended"; fi
  wait $producer || true
  echo "level $level: the producer $ended" >>seen
  sleep 6
  state=$(tool TransactionsCommand list | awk -v id="id-$level" '$1 == id { print $4 }')
  case $state in Ongoing | Prepare*) state="has not ended" ;; *) state="has ended" ;; esac
  echo "level $level: its last transaction $state" >>seen
  tool FeatureCommand upgrade --feature transaction.version=2 >/dev/null
done
echo "Apache Kafka $version"
cat seen
diff - seen <<'SEEN'
level 1: the producer goes on
level 1: its last transaction has ended
level 0: the producer has ended
level 0: its last transaction has not ended
SEEN
