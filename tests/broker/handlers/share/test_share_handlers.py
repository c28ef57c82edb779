"""Handlers of a share group on Apache Kafka: what is accepted, and what another member gets."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from broker.handlers.share.share_topics import LOCK, SHORT_LOCKS, left, member, queue, until, write
from broker.kafka_release import kafka_release

from asyncrevoke import BatchError, HandlerContext, Record, Retry
from asyncrevoke.broker import KafkaBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncrevoke import Consumer

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker(properties=SHORT_LOCKS) as broker:
        yield broker


async def test_two_members_handle_each_record_once(
    broker: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    topic = "once"
    broker.create_topic(topic, 2)
    seen = Counter[bytes]()

    def worker() -> Consumer:
        consumer = member(broker, topic)

        @consumer.handler(topic)
        async def handle(record: Record) -> None:
            assert record.delivery_count == 1
            await asyncio.sleep(0.005)
            assert record.value is not None
            seen[record.value] += 1

        return consumer

    with caplog.at_level(logging.WARNING, "asyncrevoke"):
        async with worker() as one, worker() as two:
            await until(lambda: one.health().assigned == two.health().assigned == 1)
            # The first fetch of a partition sets where a new group begins.
            await asyncio.sleep(0.5)
            await write(broker, topic, 1000)
            await until(lambda: len(seen) == 1000)
    assert max(seen.values()) == 1
    assert await left(broker, topic) == []
    begins = [line for line in caplog.messages if "begins at the end of its topics" in line]
    # The member that has created the group says it, or both if they join at the same time.
    assert 1 <= len(begins) <= 2
    assert f"groups configure {topic} share.auto.offset.reset=earliest" in begins[0]


async def test_stopping_ends_running_calls_and_releases_what_has_not_started(
    broker: KafkaBroker,
) -> None:
    topic = "stop"
    await queue(broker, topic, 20)
    began, ended = Counter[bytes](), Counter[bytes]()
    consumer = member(broker, topic, concurrency=4)

    @consumer.handler(topic)
    async def slow(value: bytes) -> None:
        began[value] += 1
        await asyncio.sleep(LOCK * 1.5)
        ended[value] += 1

    async with consumer:
        await until(lambda: len(began) == 4)
    assert began == ended
    assert len(ended) == 4
    again = await left(broker, topic)
    assert len(again) == 16
    assert not set(again) & ended.keys()


async def test_a_record_is_called_again_under_renewal_and_then_rejected_with_its_dead_letter(
    broker: KafkaBroker,
) -> None:
    topic, letters = "letters", "letters.dlq"
    await queue(broker, topic, 3)
    await queue(broker, letters, 0)
    calls = Counter[bytes]()
    deadlines: list[float] = []
    consumer = member(broker, topic, concurrency=1)

    @consumer.handler(topic, retry=Retry(attempts=3, backoff=LOCK, jitter=0), dead_letter=letters)
    async def fail(value: bytes, context: HandlerContext) -> None:
        calls[value] += 1
        assert context.lock_deadline is not None
        deadlines.append(context.lock_deadline - asyncio.get_running_loop().time())
        if value != b"1":
            raise ValueError(value)

    async with consumer:
        # While one waits, its slot is free for the others.
        await until(lambda: calls == {b"0": 3, b"1": 1, b"2": 3})
        await until(lambda: consumer.health().in_flight == 0)
    assert 0 < min(deadlines) <= max(deadlines) <= LOCK
    assert await left(broker, topic) == []
    assert await left(broker, letters) == [b"0", b"2"]


@pytest.mark.skipif(
    kafka_release() < (4, 3), reason="needs Apache Kafka 4.3, whose groups have a delivery limit"
)
async def test_a_failed_record_is_released_after_a_delay_until_its_last_delivery(
    broker: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    topic = "release"
    await queue(broker, topic, 1, options={"share.delivery.count.limit": "2"})
    at: list[float] = []
    counts: list[int | None] = []
    consumer = member(broker, topic)

    @consumer.handler(topic, release_delay=LOCK * 1.5)
    async def fail(record: Record) -> None:
        at.append(asyncio.get_running_loop().time())
        counts.append(record.delivery_count)
        raise ValueError

    async with consumer:
        await until(lambda: len(at) == 2)
        await until(lambda: consumer.health().in_flight == 0)
    assert counts == [1, 2]
    assert at[1] - at[0] >= LOCK * 1.5
    errors = [entry for entry in caplog.records if entry.levelno == logging.ERROR]
    assert [("last delivery" in entry.getMessage()) for entry in errors] == [True]
    assert await left(broker, topic) == []


async def test_a_rejected_record_is_not_delivered_again_and_no_other_is_lost(
    broker: KafkaBroker,
) -> None:
    topic = "reject"
    await queue(broker, topic, 10)
    calls = Counter[bytes]()
    consumer = member(broker, topic)

    @consumer.handler(topic, on_error="reject")
    async def fail(value: bytes) -> None:
        calls[value] += 1
        if int(value) % 2:
            raise ValueError

    async with consumer:
        await until(lambda: len(calls) == 10)
        await until(lambda: consumer.health().in_flight == 0)
    assert max(calls.values()) == 1
    assert await left(broker, topic) == []


async def test_an_error_that_stops_the_consumer_releases_its_record(broker: KafkaBroker) -> None:
    topic = "stops"
    await queue(broker, topic, 1)
    consumer = member(broker, topic)

    @consumer.handler(topic, on_error="stop")
    async def fail(_value: bytes) -> None:
        raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        await consumer.run()
    assert await left(broker, topic) == [b"0"]


async def test_values_that_do_not_decode_are_not_called_again(broker: KafkaBroker) -> None:
    topic, letters = "decode", "decode.dlq"
    await queue(broker, topic, 2)
    await queue(broker, letters, 0)
    consumer = member(broker, topic)

    @consumer.handler(topic, retry=Retry(attempts=5), dead_letter=letters)
    async def handle(value: list[int]) -> None:
        raise AssertionError(value)

    async with consumer:
        await until(lambda: consumer.health().assigned > 0)
        await asyncio.sleep(1)
        await until(lambda: consumer.health().in_flight == 0)
    assert await left(broker, letters) == [b"0", b"1"]
    assert await left(broker, topic) == []


async def test_a_call_that_exceeds_its_time_is_cancelled_and_its_record_released(
    broker: KafkaBroker,
) -> None:
    topic = "time"
    await queue(broker, topic, 1)
    calls: list[int | None] = []
    consumer = member(broker, topic)

    @consumer.handler(topic, max_handler_time=0.3, release_delay=0.0)
    async def handle(record: Record) -> None:
        calls.append(record.delivery_count)
        if len(calls) == 1:
            await asyncio.sleep(60)

    async with consumer:
        await until(lambda: calls == [1, 2])
    assert await left(broker, topic) == []


async def test_results_are_acknowledged_before_their_record(broker: KafkaBroker) -> None:
    topic, results = "publish", "publish.results"
    await queue(broker, topic, 50)
    await queue(broker, results, 0)
    consumer = member(broker, topic)

    @consumer.handler(topic, publish_to=results)
    async def double(value: bytes, context: HandlerContext) -> bytes:
        await context.publish(results, b"context")
        return value + value

    async with consumer:
        await until(lambda: consumer.health().assigned > 0)
        await asyncio.sleep(1)
        await until(lambda: consumer.health().in_flight == 0)
    assert await left(broker, topic) == []
    found = await left(broker, results)
    assert found == sorted([b"%d%d" % (n, n) for n in range(50)] + [b"context"] * 50)


async def test_batches_accept_what_has_not_failed(broker: KafkaBroker) -> None:
    topic = "batches"
    await queue(broker, topic, 40)
    calls = Counter[bytes]()
    consumer = member(broker, topic, concurrency=4, max_in_flight=40)

    @consumer.handler(topic, batch=True, max_records=10, max_wait=0.2, on_error="reject")
    async def handle(values: list[bytes]) -> None:
        calls.update(values)
        failed = {n: ValueError() for n, value in enumerate(values) if value == b"7"}
        if failed:
            raise BatchError(failed)

    async with consumer:
        await until(lambda: len(calls) == 40)
        await until(lambda: consumer.health().in_flight == 0)
    assert max(calls.values()) == 1
    assert await left(broker, topic) == []


@pytest.mark.variant
async def test_sync_handlers_run_in_threads(broker: KafkaBroker) -> None:
    topic = "threads"
    await queue(broker, topic, 20)
    calls = Counter[bytes]()
    consumer = member(broker, topic)

    @consumer.handler(topic, run_in="thread")
    def handle(value: bytes) -> None:
        calls[value] += 1

    async with consumer:
        await until(lambda: len(calls) == 20)
    assert max(calls.values()) == 1
    assert await left(broker, topic) == []
