"""Retry topics on a real Apache Kafka: what fails comes back later, wherever its topic is read."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from broker.handlers.test_handlers_on_a_real_broker import HandlerTopic, until

from asyncrevoke import Consumer, HandlerContext, Record, Retry, RetryTopic, TopicPartition

if TYPE_CHECKING:
    from asyncrevoke.broker import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


@pytest.fixture
def kafka(kafka_broker: RunningBroker, kafka_topic: str) -> HandlerTopic:
    return HandlerTopic(kafka_broker, kafka_topic)


@pytest.mark.kafka_topic(partitions=1)
async def test_a_failed_record_is_retried_after_its_delay_and_then_dead_lettered(
    kafka: HandlerTopic,
) -> None:
    tp = TopicPartition(kafka.topic, 0)
    later = RetryTopic(f"{kafka.topic}.retry", delay=1.0, attempts=2)
    await kafka.create(later.topic, 3)
    await kafka.create(kafka.dead)
    calls: list[tuple[int, int, float, Record]] = []
    consumer = Consumer(**kafka.options(max_in_flight=20, auto_offset_reset="latest"))

    @consumer.handler(
        kafka.topic,
        retry=Retry(attempts=2, backoff=0.01),
        retry_topic=later,
        dead_letter=kafka.dead,
    )
    async def handle(record: Record, context: HandlerContext) -> None:
        number = int(record.value or b"")
        calls.append((number, context.attempt, time.monotonic(), record))
        if number % 10 == 0 or (number % 10 == 7 and context.attempt <= 2):
            raise ConnectionError(f"no {number}")

    def called(digit: int) -> list[tuple[int, int]]:
        return sorted((n, attempt) for n, attempt, _, _ in calls if n % 10 == digit)

    async with consumer:
        # With "latest" only what is written from now on counts, but in the retry topic everything.
        await until(lambda: tp in consumer.assignment() and consumer.highwater(tp) is not None)
        await kafka.produce(200)
        await until(lambda: len(called(1)) == 20)
        await until(lambda: len(called(7)) == 60 and len(called(0)) == 80)
        consumer.stop()

    assert len(called(4)) == 20, "what does not fail is handled once"
    assert called(7) == [(n, attempt) for n in range(7, 200, 10) for attempt in (1, 2, 3)]
    assert called(0) == [(n, attempt) for n in range(0, 200, 10) for attempt in (1, 2, 3, 4)]
    at = {(n, attempt): when for n, attempt, when, _ in calls}
    waits = [at[n, 3] - at[n, 2] for n in range(7, 200, 10)]
    assert min(waits) >= 0.99, waits
    assert max(waits) < 10, waits
    seen = {(record.topic, record.partition, record.offset) for *_, record in calls}
    assert len(seen) == 200, "the handler gets the record as it was at first"
    assert {record.headers for n, _, _, record in calls if n == 17} == {(("number", b"17"),)}
    letters = await kafka.dead_letters(20)
    assert sorted(int(letter.value or b"") for letter in letters) == list(range(0, 200, 10))
    assert {dict(letter.headers)["asyncrevoke-origin-timestamp"] for letter in letters} == {
        b"%d" % (1_700_000_000_000 + n) for n in range(0, 200, 10)
    }
    assert {dict(letter.headers)["asyncrevoke-attempts"] for letter in letters} == {b"4"}
    assert await kafka.committed() == 200


@pytest.mark.kafka_topic(partitions=2)
async def test_a_delayed_record_is_handled_by_the_owner_of_its_partition_when_it_is_due(
    kafka: HandlerTopic,
) -> None:
    later = RetryTopic(f"{kafka.topic}.retry", delay=3.0)
    await kafka.create(later.topic, 2)
    await kafka.produce(20, partitions=2)
    done: Counter[int] = Counter()
    failed: set[int] = set()

    def member() -> Consumer:
        consumer = Consumer(**kafka.options())

        @consumer.handler(kafka.topic, retry_topic=later)
        async def handle(value: bytes, context: HandlerContext) -> None:
            if context.attempt == 1:
                failed.add(int(value))
                raise ConnectionError
            done[int(value)] += 1

        return consumer

    async with member():
        await until(lambda: len(failed) == 20)
    assert not done, "leaving has not waited for what is not due"
    async with member(), member():
        await until(lambda: len(done) == 20)
    assert set(done.values()) == {1}


@pytest.mark.kafka_topic(partitions=1)
async def test_a_missing_retry_topic_pauses_the_partition_and_drops_no_record(
    kafka: HandlerTopic,
) -> None:
    later = RetryTopic(f"{kafka.topic}.retry", delay=0.2)
    await kafka.produce(10)
    calls: list[tuple[int, int]] = []
    consumer = Consumer(**kafka.options(request_timeout=2))

    @consumer.handler(kafka.topic, retry_topic=later)
    async def handle(value: bytes, context: HandlerContext) -> None:
        calls.append((int(value), context.attempt))
        if int(value) == 4 and context.attempt == 1:
            raise ConnectionError

    tp = TopicPartition(kafka.topic, 0)
    async with consumer:
        await until(lambda: consumer.health().unwritten)
        assert [each.partitions for each in consumer.health().unwritten] == [{tp}]
        await consumer.commit()
        assert await kafka.committed() == 4
        await kafka.create(later.topic)
        await until(lambda: TopicPartition(later.topic, 0) in consumer.assignment())
        await until(lambda: (4, 2) in calls)
        consumer.stop()
    assert await kafka.committed() == 10
