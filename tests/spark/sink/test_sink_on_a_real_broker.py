"""What a task writes to a real Apache Kafka, and what it says if it cannot; without a Spark."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from confluent_kafka import Consumer
from spark.sink.written_topic import HEADERS, TIME, read_topic, values, write

from asyncrevoke.broker import KafkaBroker, Security
from asyncrevoke.client.columns.arrow import pa
from asyncrevoke.client.producing.queueing.partitioner import Partitioner
from asyncrevoke.spark.errors import SinkError
from asyncrevoke.spark.sink.task import TARGET_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncrevoke.broker import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

_MEMORY = 32 * 1024 * 1024


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_column_is_written_by_every_compression(
    kafka_broker: RunningBroker, kafka_topic: str, compression: str
) -> None:
    chance = random.Random(5)
    count = 2000
    keys = [None if n % 7 == 0 else b"k%d" % (n % 50) for n in range(count)]
    bodies = [
        None if n % 9 == 0 else b"%d %s" % (n, b"v" * chance.randrange(500)) for n in range(count)
    ]
    times = [1_700_000_000_000 + n for n in range(count)]
    headers = [[("n", b"%d" % n), ("null", None)] if n % 3 else [] for n in range(count)]
    batch = pa.RecordBatch.from_pydict(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(bodies, pa.binary()),
            "timestamp": pa.array([time * 1000 for time in times], TIME),
            "headers": pa.array(
                [[{"key": k, "value": v} for k, v in header] for header in headers], HEADERS
            ),
        }
    )
    parts = [batch.slice(first, 300) for first in range(0, count, 300)]
    assert write(kafka_broker, kafka_topic, parts, compression=compression) == count
    found = asyncio.run(read_topic(kafka_broker, kafka_topic))
    assert len(found) == count
    by_time = {candidate.timestamp: candidate for candidate in found}
    by_key = Partitioner()
    for n in range(count):
        each = by_time[times[n]]
        assert (each.key, each.value, list(each.headers)) == (keys[n], bodies[n], headers[n])
        if each.key is not None:
            assert each.partition == by_key.of_key(each.key, 4)
    for number in range(4):
        ordered = [
            candidate.timestamp
            for candidate in found
            if candidate.partition == number and candidate.key
        ]
        assert ordered == sorted(ordered)


def test_librdkafka_reads_what_was_written(kafka_broker: RunningBroker, kafka_topic: str) -> None:
    headers = pa.array([[{"key": "h", "value": b"1"}], None], HEADERS)
    batch = pa.RecordBatch.from_pydict(
        {"key": ["a", "b"], "value": ["x", None], "headers": headers}
    )
    assert write(kafka_broker, kafka_topic, [batch]) == 2
    consumer = Consumer(
        {
            "bootstrap.servers": kafka_broker.bootstrap_servers,
            "group.id": kafka_topic,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
        }
    )
    consumer.subscribe([kafka_topic])
    found: set[Any] = set()
    while len(found) < 2:
        message = consumer.poll(1)
        if message is not None:
            assert message.error() is None
            found.add((message.key(), message.value(), tuple(message.headers() or ())))
    consumer.close()
    assert found == {(b"a", b"x", (("h", b"1"),)), (b"b", None, ())}


def test_a_record_that_the_topic_rejects_is_named_and_is_not_counted(
    kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    small = f"{kafka_topic}-small"
    kafka_broker.create_topic(small, 1, config={"max.message.bytes": "2000"})
    bodies = [b"%d" % n for n in range(100)]
    bodies[37] = random.Random(0).randbytes(5000)
    with pytest.raises(
        SinkError, match=rf"row 37 of .* not written to {small}: .*max.message.byte"
    ):
        write(kafka_broker, small, [values(*bodies[:20]), values(*bodies[20:])])
    written = {each.value for each in asyncio.run(read_topic(kafka_broker, small))}
    assert bodies[37] not in written
    del bodies[37]
    assert write(kafka_broker, small, [values(*bodies)]) == 99
    assert {each.value for each in asyncio.run(read_topic(kafka_broker, small))} == set(bodies)


def test_a_topic_that_does_not_exist_is_named_with_the_row(kafka_broker: RunningBroker) -> None:
    with pytest.raises(
        SinkError, match=r"row 0 of partition 0 .* not written to no-such: the topic"
    ):
        write(kafka_broker, "no-such", [values("x")], request_timeout="2")


def test_a_partition_without_rows_connects_to_nobody() -> None:
    class Nowhere:
        bootstrap_servers = "127.0.0.1:1"

    assert write(Nowhere(), "t", [values()]) == 0  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def guarded_broker() -> Iterator[KafkaBroker]:
    security = Security(protocol="SASL_PLAINTEXT", mechanism="PLAIN", acls=True)
    with KafkaBroker(security=security) as broker:
        yield broker


def security_options(broker: KafkaBroker, user: str = "alice") -> dict[str, str]:
    given: Any = broker.client_options(user)
    names = ("security_protocol", "sasl_mechanism", "sasl_plain_username", "sasl_plain_password")
    return {name: given[name] for name in names}


@pytest.mark.parametrize("allowed", ["nothing", "describe"])
def test_a_topic_that_may_not_be_written_is_rejected_until_the_access_is_granted(
    guarded_broker: KafkaBroker, allowed: str
) -> None:
    topic = f"guarded-{allowed}"
    guarded_broker.create_topic(topic)
    options = security_options(guarded_broker)
    if allowed == "describe":
        guarded_broker.allow("alice", "topic", topic, ["describe"])
    with pytest.raises(SinkError, match=rf"row 0 of .* {topic}: not authorized .*grant WRITE"):
        write(guarded_broker, topic, [values("x")], **options)
    guarded_broker.allow("alice", "topic", topic, ["write", "describe"])
    assert write(guarded_broker, topic, [values("x", "y")], **options) == 2


def test_a_wrong_password_is_said(guarded_broker: KafkaBroker) -> None:
    options = {**security_options(guarded_broker), "sasl_plain_password": "not-this-one"}
    with pytest.raises(SinkError, match="rejected the authentication") as caught:
        write(guarded_broker, "t", [values("x")], **options, request_timeout="2")
    assert "not-this-one" not in str(caught.value)


@pytest.mark.slow
def test_a_broker_that_responds_no_more_bounds_memory_and_ends_the_task() -> None:
    with KafkaBroker() as broker:
        broker.create_topic("stalled", 2)
        handed = 0
        body = b"x" * 10_000

        def batches() -> Iterator[Any]:
            nonlocal handed
            for number in range(1000):
                if number == 8:
                    broker.pause()
                batch = values(*[body] * 100)
                handed += batch.nbytes
                yield batch

        try:
            with pytest.raises(SinkError, match=r"not written to stalled: .*request_timeout|not "):
                write(broker, "stalled", batches(), request_timeout="2")
        finally:
            broker.resume()
        assert handed <= _MEMORY + 8 * 1_000_000 + 2 * 2 * TARGET_BYTES
        found = asyncio.run(read_topic(broker, "stalled"))
        assert len(found) * len(body) <= handed
