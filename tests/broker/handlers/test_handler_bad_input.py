"""What a handler can get or do wrong, where only a real Apache Kafka shows the outcome."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaProducer
from broker.handlers.test_handlers_on_a_real_broker import DEADLINE, HandlerTopic, until

from asyncrevoke import Consumer, HandlerContext, Retry, RetryTopic, TopicPartition

if TYPE_CHECKING:
    from asyncrevoke.broker import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]

ROOMY = {"max.message.bytes": str(12 * 1024 * 1024)}
# No compression makes it smaller.
TEN_MB = random.Random(0).randbytes(10_000_000)


@pytest.fixture
def kafka(kafka_broker: RunningBroker, kafka_topic: str) -> HandlerTopic:
    return HandlerTopic(kafka_broker, kafka_topic)


# -- a dead letter topic that does not exist ------------------------------------------------------


@pytest.mark.kafka_topic(partitions=1)
async def test_records_wait_for_a_dead_letter_topic_that_does_not_exist_until_it_does(
    kafka: HandlerTopic, caplog: pytest.LogCaptureFixture
) -> None:
    await kafka.produce(10)
    consumer = Consumer(**kafka.options(request_timeout=2))
    calls: Counter[int] = Counter()

    @consumer.handler(kafka.topic, dead_letter=kafka.dead)
    async def handle(value: bytes) -> None:
        calls[int(value)] += 1
        if int(value) == 4:
            raise ValueError("boom")

    tp = TopicPartition(kafka.topic, 0)
    async with consumer:
        await until(lambda: consumer.health().unwritten)
        assert not consumer.health().paused_partitions
        assert [each.partitions for each in consumer.health().unwritten] == [{tp}]
        (reason,) = (each for each in consumer.probe().reasons if "cannot be written" in each)
        assert f"topics create {kafka.dead} " in reason
        assert caplog.text.count("records cannot be written to a topic") == 1
        assert f"to_topic={kafka.dead}" in caplog.text
        await consumer.commit()
        assert await kafka.committed() == 4
        await kafka.create(kafka.dead)
        await until(lambda: len(calls) == 10 and not consumer.health().unwritten)
        consumer.stop()
    assert set(calls.values()) == {1}, "no handler is called again"
    assert await kafka.committed() == 10
    (letter,) = await kafka.dead_letters(1)
    assert letter.value == b"4"


# -- a value of 10 MB -----------------------------------------------------------------------------


async def send_large(kafka: HandlerTopic) -> None:
    async with AIOKafkaProducer(
        bootstrap_servers=kafka.address, max_request_size=2 * len(TEN_MB)
    ) as producer:
        for value in (b"before", TEN_MB, b"after"):
            await producer.send_and_wait(kafka.topic, value, key=b"a")


@pytest.mark.kafka_topic(partitions=1, config=ROOMY)
async def test_a_value_of_10_mb_is_handled_retried_and_dead_lettered(
    kafka: HandlerTopic,
) -> None:
    later = RetryTopic(f"{kafka.topic}.retry", delay=0.2, attempts=1)
    await kafka.create(later.topic, settings=ROOMY)
    await kafka.create(kafka.dead, settings=ROOMY)
    await send_large(kafka)
    calls: list[bytes] = []
    # The limits of a fetch do not keep a single record from being delivered.
    consumer = Consumer(**kafka.options(fetch_max_bytes=1_000_000, buffer_memory=1_000_000))

    @consumer.handler(
        kafka.topic,
        retry=Retry(attempts=2, backoff=0.01),
        retry_topic=later,
        dead_letter=kafka.dead,
    )
    async def handle(value: bytes) -> None:
        calls.append(value)
        if value == TEN_MB:
            raise ValueError("too much")

    async with consumer:
        await until(lambda: len(calls) == 5)
        consumer.stop()
    assert calls[:3] == [b"before", TEN_MB, TEN_MB]
    # The record in the retry topic has no order with those of the topic.
    assert set(calls[3:]) == {TEN_MB, b"after"}
    assert await kafka.committed() == 3
    (letter,) = await kafka.dead_letters(1)
    assert letter.value == TEN_MB


@pytest.mark.kafka_topic(partitions=1, config=ROOMY)
async def test_a_value_of_10_mb_that_a_dead_letter_topic_rejects_is_not_dropped(
    kafka: HandlerTopic, caplog: pytest.LogCaptureFixture
) -> None:
    await kafka.create(kafka.dead)  # with Kafka's own limit of 1 MiB
    await send_large(kafka)
    consumer = Consumer(**kafka.options())
    done: list[bytes] = []

    @consumer.handler(kafka.topic, dead_letter=kafka.dead)
    async def handle(value: bytes) -> None:
        if value == TEN_MB:
            raise ValueError("too much")
        done.append(value)

    async with consumer:
        await until(lambda: consumer.health().unwritten)
        consumer.stop()
    assert "raise its max.message.bytes" in caplog.text
    assert done == [b"before"]
    assert await kafka.committed() == 1


@pytest.mark.kafka_topic(partitions=1)
async def test_a_record_that_its_producer_compressed_fits_into_topics_with_the_same_limit(
    kafka: HandlerTopic,
) -> None:
    later = RetryTopic(f"{kafka.topic}.retry", delay=0.1, attempts=1)
    for topic in (kafka.dead, later.topic):
        await kafka.create(topic)  # with Kafka's own limit of 1 MiB
    orders = [{"number": n, "customer": f"customer {n % 97}"} for n in range(80_000)]
    value = json.dumps(orders).encode()
    assert len(value) > 3 * 1024 * 1024
    async with AIOKafkaProducer(
        bootstrap_servers=kafka.address,
        max_request_size=len(value) + 1000,
        compression_type="zstd",
    ) as producer:
        await producer.send_and_wait(kafka.topic, value)
    consumer = Consumer(**kafka.options())
    calls: list[int] = []

    @consumer.handler(kafka.topic, retry_topic=later, dead_letter=kafka.dead)
    async def handle(value: bytes, context: HandlerContext) -> None:
        calls.append(context.attempt)
        raise ValueError("boom")

    async with consumer:
        (letter,) = await kafka.dead_letters(1)
        consumer.stop()
    assert calls == [1, 2]
    assert letter.value == value
    assert await kafka.committed() == 1


# -- a handler that blocks the event loop ---------------------------------------------------------


@pytest.mark.kafka_topic(partitions=2)
async def test_a_handler_that_blocks_the_event_loop_delays_all_and_loses_no_record(
    kafka: HandlerTopic, caplog: pytest.LogCaptureFixture
) -> None:
    await kafka.produce(40, partitions=2)
    # The heartbeat thread speaks for the member, else the broker puts it out after 6 s.
    consumer = Consumer(**kafka.options(session_timeout=6))
    at: list[float] = []
    done: set[int] = set()

    @consumer.handler(kafka.topic)
    async def handle(value: bytes) -> None:
        at.append(time.monotonic())
        if value == b"4" and 4 not in done:
            done.add(4)
            time.sleep(9)  # noqa: ASYNC251 - what it is about
        done.add(int(value))

    async with consumer:
        async with asyncio.timeout(DEADLINE):
            # What the group does not know to be done is handled again.
            while await kafka.committed() < 40:  # noqa: ASYNC110 - of the broker's state
                await asyncio.sleep(0.1)
        assert "event loop blocked" in caplog.text
        assert f"blocked_at='{__file__}:" in caplog.text, "the line is named"
        consumer.stop()
    assert done == set(range(40))
    longest = max(later - earlier for earlier, later in itertools.pairwise(at))
    assert longest >= 8.9, "meanwhile no other handler runs"
