"""What handlers return is published to a real Apache Kafka before their records are done."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from hashlib import shake_256
from typing import TYPE_CHECKING

import pytest
from broker.handlers.test_handlers_on_a_real_broker import DEADLINE, HandlerTopic, until

from asyncrevoke import Consumer, Message, Record, RetryTopic, TopicPartition
from asyncrevoke.client.producing.queueing.partitioner import murmur2

if TYPE_CHECKING:
    from asyncrevoke.broker import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


@pytest.fixture
def kafka(kafka_broker: RunningBroker, kafka_topic: str) -> HandlerTopic:
    return HandlerTopic(kafka_broker, kafka_topic)


async def read(kafka: HandlerTopic, topic: str, count: int) -> list[Record]:
    """So many records of a topic, and those that follow them at once."""
    records: list[Record] = []
    async with (
        asyncio.timeout(DEADLINE),
        Consumer(topic, bootstrap_servers=kafka.address) as reader,
    ):
        while len(records) < count:
            records.extend((await anext(reader)).records)
        records.extend((await reader.poll(timeout=0.2)).records)
    return records


@pytest.mark.kafka_topic(partitions=3)
async def test_each_result_is_published_once_to_the_partition_that_java_would_choose(
    kafka: HandlerTopic,
) -> None:
    results = f"{kafka.topic}.results"
    await kafka.create(results, 3)
    await kafka.produce(5000, partitions=3)
    consumer = Consumer(**kafka.options())

    @consumer.handler(kafka.topic, publish_to=results)
    async def double(value: bytes) -> dict[str, int]:
        return {"twice": 2 * int(value)}

    async with consumer:
        await until(lambda: consumer.health().in_flight == 0)
        found = await read(kafka, results, 5000)
        consumer.stop()
    assert await kafka.committed() == 5000
    assert sorted(json.loads(candidate.value or b"")["twice"] for candidate in found) == list(
        range(0, 10_000, 2)
    )
    # As aiokafka's producer, which hashes like Java's, has chosen for the same keys.
    assert {(candidate.key, candidate.partition) for candidate in found} == {
        (key, (murmur2(key) & 0x7FFFFFFF) % 3) for key in (b"k%d" % n for n in range(7))
    }


@pytest.mark.kafka_topic(partitions=1)
async def test_a_result_too_large_for_its_topic_is_dead_lettered_and_the_others_are_published(
    kafka: HandlerTopic,
) -> None:
    results = f"{kafka.topic}.results"
    await kafka.create(results, 1, {"max.message.bytes": "20000"})
    await kafka.create(kafka.dead)
    await kafka.produce(200)
    consumer = Consumer(**kafka.options())

    @consumer.handler(kafka.topic, publish_to=results, dead_letter=kafka.dead)
    async def enlarge(value: bytes) -> bytes:
        # No compression makes this one smaller.
        return shake_256(value).digest(30_000) if int(value) == 77 else value * 100

    async with consumer:
        (letter,) = await kafka.dead_letters(1)
        found = await read(kafka, results, 199)
        consumer.stop()
    assert letter.value == b"77"
    assert dict(letter.headers)["asyncrevoke-error-type"] == b"asyncrevoke.errors.PublishError"
    assert b"max.message.bytes" in (dict(letter.headers)["asyncrevoke-error-message"] or b"")
    assert len(found) == 199
    assert await kafka.committed() == 200


@pytest.mark.kafka_topic(partitions=1)
async def test_a_result_topic_that_does_not_exist_pauses_the_partition_until_it_does(
    kafka: HandlerTopic, caplog: pytest.LogCaptureFixture
) -> None:
    results = f"{kafka.topic}.results"
    await kafka.produce(10)
    consumer = Consumer(**kafka.options(request_timeout=2, fetch_max_wait=0.2))

    @consumer.handler(kafka.topic, publish_to=results, on_error="pause")
    async def echo(value: bytes) -> bytes:
        return value

    tp = TopicPartition(kafka.topic, 0)
    async with consumer:
        await until(lambda: consumer.health().paused_partitions)
        assert f"topics create {results} " in caplog.text
        await consumer.commit()
        assert await kafka.committed() == 0
        await kafka.create(results)
        consumer.resume(tp)
        found = await read(kafka, results, 10)
        consumer.stop()
    assert {candidate.value for candidate in found} == {b"%d" % number for number in range(10)}
    assert await kafka.committed() == 10


@pytest.mark.kafka_topic(partitions=1)
async def test_results_go_to_a_topic_that_is_created_again_with_fewer_partitions(
    kafka: HandlerTopic,
) -> None:
    results = f"{kafka.topic}.results"
    await kafka.create(results, 4)
    await kafka.produce(50)
    consumer = Consumer(**kafka.options())
    seen: list[bytes] = []

    @consumer.handler(kafka.topic, publish_to=results)
    async def echo(value: bytes) -> bytes:
        seen.append(value)
        return value

    async with consumer:
        await until(lambda: len(seen) == 50 and consumer.health().in_flight == 0)
        await kafka.delete(results)
        await kafka.create(results, 1)
        await kafka.produce(50)
        found = await read(kafka, results, 50)
        consumer.stop()
    assert sorted(int(candidate.value or b"") for candidate in found) == list(range(50))
    assert await kafka.committed() == 100


@pytest.mark.kafka_topic(partitions=2)
async def test_several_results_and_those_of_batches_are_published(kafka: HandlerTopic) -> None:
    results, others = f"{kafka.topic}.results", f"{kafka.topic}.others"
    await kafka.create(results, 2)
    await kafka.create(others, 2)
    await kafka.produce(20, partitions=2)
    consumer = Consumer(**kafka.options(compression="zstd"))
    seen: Counter[int] = Counter()

    @consumer.handler(kafka.topic, publish_to=results, batch=True, max_wait=0.01)
    async def split(values: list[bytes]) -> list[Message[bytes]]:
        for value in values:
            seen[int(value)] += 1
        return [
            message
            for value in values
            for message in (
                Message(value, key=b"a", partition=1),
                Message(value, key="b", topic=others, headers={"of": value}, timestamp=7),
            )
        ]

    async with consumer:
        of_results = await read(kafka, results, 20)
        of_others = await read(kafka, others, 20)
        consumer.stop()
    assert await kafka.committed() == 20
    assert {of_result.partition for of_result in of_results} == {1}
    assert {of_result.key for of_result in of_results} == {b"a"}
    assert all(of_other.headers == (("of", of_other.value),) for of_other in of_others)
    assert {(of_other.key, of_other.timestamp) for of_other in of_others} == {(b"b", 7)}
    assert set(seen.values()) == {1}


async def test_each_missing_topic_that_is_written_to_is_named_at_the_start_with_its_command(
    kafka: HandlerTopic, caplog: pytest.LogCaptureFixture
) -> None:
    results, failed, later = (f"{kafka.topic}.{name}" for name in ("results", "failed", "later"))
    consumer = Consumer(**kafka.options())

    @consumer.handler(
        kafka.topic,
        publish_to=results,
        dead_letter=failed,
        retry_topic=RetryTopic(later, delay=1.0),
    )
    async def echo(value: bytes) -> bytes:
        return value

    def all_named() -> bool:
        topics = " ".join(sorted((results, failed, later)))
        command = f"asyncrevoke topics create {topics} --bootstrap-servers {kafka.address}"
        return command in caplog.text

    async with consumer:
        await until(all_named)
        assert {results, failed, later} <= consumer.health().missing_topics
        consumer.stop()
