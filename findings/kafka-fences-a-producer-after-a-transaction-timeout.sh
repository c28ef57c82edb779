#!/usr/bin/env bash
# Apache Kafka 4.4.0: after the coordinator has aborted a transaction that took longer than transaction.timeout.ms, the
# producer may go on only with transaction.version 2. EndTxn is answered INVALID_TXN_STATE, and InitProducerId with the
# producer's own id and epoch gives the next epoch. With transaction.version 0 and 1 the answers are PRODUCER_FENCED and
# INVALID_PRODUCER_EPOCH, as if another producer had taken the transactional id over; only InitProducerId without an id
# succeeds, which would fence such another one. Guessed before: KIP-588 lets the producer go on in each version. Prints
# what was seen; fails if that changes. Takes about 60 s.
# usage: kafka-fences-a-producer-after-a-transaction-timeout.sh [VERSION OF Kafka]; needs Java 17, Maven and Python 3.11
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
python3 -m venv venv
venv/bin/pip install -q kio==0.6.5 aiokafka==0.14.0
cat >client.py <<'PY'
import datetime, io, socket, struct, sys, time
from importlib import import_module
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i16, i32, i32Timedelta

LEVEL = int(sys.argv[2])
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=30)
TIMEOUT = i32Timedelta.parse(datetime.timedelta(seconds=1))


def ask(api, number, **fields):
    module = import_module(f"kio.schema.{api}.v{number}.request")
    name = "".join(part.title() for part in api.split("_"))
    kind = getattr(module, name + "Request")
    answer = getattr(import_module(f"kio.schema.{api}.v{number}.response"), name + "Response")
    body = io.BytesIO()
    entity_writer(kind)(body, kind(**fields(module) if callable(fields) else fields))
    tags = b"\0" if kind.__flexible__ else b""
    head = struct.pack(">hhih", kind.__api_key__, number, 1, 1) + b"f" + tags
    connection.sendall(struct.pack(">i", len(head + body.getvalue())) + head + body.getvalue())
    data = b""
    (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
    data = connection.recv(size, socket.MSG_WAITALL)
    # An ApiVersions response has no tagged fields in its header; no such request is sent here.
    start = 5 if answer.__flexible__ else 4
    read = entity_reader(answer)(memoryview(data), start)
    return read[0] if isinstance(read, tuple) else read


def until(error, call):
    """Ask again while the answer is one that passes."""
    for _ in range(200):
        answer = call()
        if error(answer) not in (ErrorCode.coordinator_not_available, ErrorCode.not_coordinator,
                                 ErrorCode.coordinator_load_in_progress, ErrorCode.concurrent_transactions,
                                 ErrorCode.unknown_topic_or_partition, ErrorCode.not_leader_or_follower,
                                 ErrorCode.leader_not_available):
            return answer
        time.sleep(0.2)
    raise SystemExit("no answer")


def initialize(producer_id=-1, epoch=-1):
    return until(lambda answer: answer.error_code, lambda: ask(
        "init_producer_id", 3, transactional_id="f", transaction_timeout=TIMEOUT,
        producer_id=producer_id, producer_epoch=i16(epoch)))


created = import_module("kio.schema.create_topics.v5.request")
ask("create_topics", 5, topics=(created.CreatableTopic(name="t", num_partitions=i32(1), replication_factor=i16(1),
    assignments=(), configs=()),), timeout=i32Timedelta.parse(datetime.timedelta(seconds=20)))
until(lambda answer: answer.error_code, lambda: ask("find_coordinator", 2, key="f", key_type=1))
given = initialize()
if LEVEL < 2:
    adding = import_module("kio.schema.add_partitions_to_txn.v3.request")
    until(lambda answer: answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
          lambda: ask("add_partitions_to_txn", 3, v3_and_below_transactional_id="f",
                      v3_and_below_producer_id=given.producer_id, v3_and_below_producer_epoch=given.producer_epoch,
                      v3_and_below_topics=(adding.AddPartitionsToTxnTopic(name="t", partitions=(i32(0),)),)))
builder = DefaultRecordBatchBuilder(2, 0, 1, given.producer_id, given.producer_epoch, 0, 1000)
builder.append(0, 1, None, b"v", [])
records = bytes(builder.build())
number = 12 if LEVEL == 2 else 8
produce = import_module(f"kio.schema.produce.v{number}.request")
written = until(lambda answer: answer.responses[0].partition_responses[0].error_code, lambda: ask(
    "produce", number, transactional_id="f", acks=i16(-1), timeout=TIMEOUT,
    topic_data=(produce.TopicProduceData(name="t", partition_data=(
        produce.PartitionProduceData(index=i32(0), records=records),)),)))
print(f"transaction.version {LEVEL}: Produce: {written.responses[0].partition_responses[0].error_code.name}")
time.sleep(14)
ended = ask("end_txn", 5 if LEVEL == 2 else 4, transactional_id="f", producer_id=given.producer_id,
            producer_epoch=given.producer_epoch, committed=True)
print(f"transaction.version {LEVEL}: EndTxn after the timeout: {ended.error_code.name}")
again = initialize(given.producer_id, given.producer_epoch)
print(f"transaction.version {LEVEL}: InitProducerId with its id and epoch: {again.error_code.name}")
print(f"transaction.version {LEVEL}: InitProducerId without an id: {initialize().error_code.name}")
PY
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
for level in 1 2; do
  cat >server.properties <<P
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$((port + level))
listeners=PLAINTEXT://127.0.0.1:$((port + 2 + level)),CONTROLLER://127.0.0.1:$((port + level))
advertised.listeners=PLAINTEXT://127.0.0.1:$((port + 2 + level))
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=$folder/data$level
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
P
  java -cp 'lib/*' kafka.tools.StorageTool format -t "$(java -cp 'lib/*' kafka.tools.StorageTool random-uuid)" \
    -c server.properties --feature "transaction.version=$level" >log 2>&1
  java -Xmx384m -cp 'lib/*' kafka.Kafka server.properties >log 2>&1 &
  server=$!
  for _ in $(seq 100); do (exec 3<>"/dev/tcp/127.0.0.1/$((port + 2 + level))") 2>/dev/null && break; sleep 0.3; done
  venv/bin/python client.py $((port + 2 + level)) $level | tee -a seen
  kill $server
  wait $server || true
done
echo "Apache Kafka $version"
diff - seen <<'SEEN'
transaction.version 1: Produce: none
transaction.version 1: EndTxn after the timeout: producer_fenced
transaction.version 1: InitProducerId with its id and epoch: invalid_producer_epoch
transaction.version 1: InitProducerId without an id: none
transaction.version 2: Produce: none
transaction.version 2: EndTxn after the timeout: invalid_txn_state
transaction.version 2: InitProducerId with its id and epoch: none
transaction.version 2: InitProducerId without an id: none
SEEN
