"""Calls of a share group whose locks are lost, and calls that take longer than a lock."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from broker.handlers.share.share_topics import LOCK, SHORT_LOCKS, left, member, queue, until

from asyncrevoke.broker import KafkaBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker(properties=SHORT_LOCKS) as broker:
        yield broker


async def test_a_call_that_takes_twice_the_lock_keeps_its_record(
    broker: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    topic = "long"
    await queue(broker, topic, 64)
    calls = Counter[bytes]()
    consumer = member(broker, topic)

    @consumer.handler(topic)
    async def handle(value: bytes) -> None:
        calls[value] += 1
        await asyncio.sleep(2 * LOCK)

    async with consumer:
        await until(lambda: len(calls) == 64)
        health = consumer.health()
        assert health.share is not None
        assert health.share.running == 64
        await until(lambda: consumer.health().in_flight == 0)
    assert max(calls.values()) == 1
    assert not [line for line in caplog.messages if "locks" in line]
    assert await left(broker, topic) == []


async def test_a_blocked_loop_is_named_and_its_records_are_delivered_again(
    broker: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    topic = "blocked"
    await queue(broker, topic, 1)
    calls: list[int | None] = []
    cancelled: list[bool] = []
    consumer = member(broker, topic)

    @consumer.handler(topic)
    async def handle(_value: bytes) -> None:
        calls.append(1)
        if len(calls) > 1:
            return
        time.sleep(1.5 * LOCK)  # noqa: ASYNC251 - what is tested
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async with consumer:
        await until(lambda: len(calls) == 2)
        await asyncio.sleep(1.1)
        health = consumer.health().share
        assert health is not None
        assert health.locks_lost == 1
    assert cancelled == [True]
    assert await left(broker, topic) == []
    blocked = [line for line in caplog.messages if "were not renewed in time" in line]
    assert len(blocked) == 1
    assert "handle" in blocked[0]


async def test_a_restarted_broker_delivers_again_what_was_running(
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = "restart"
    with KafkaBroker(properties=SHORT_LOCKS) as broker:
        await queue(broker, topic, 5)
        began, ended, cancelled = Counter[bytes](), Counter[bytes](), Counter[bytes]()
        consumer = member(broker, topic)

        @consumer.handler(topic)
        async def handle(value: bytes) -> None:
            began[value] += 1
            try:
                await asyncio.sleep(60 if began[value] == 1 else 0)
            except asyncio.CancelledError:
                cancelled[value] += 1
                raise
            ended[value] += 1

        with caplog.at_level(logging.ERROR, "asyncrevoke"):
            async with consumer:
                await until(lambda: len(began) == 5)
                await asyncio.to_thread(broker.restart, orderly=False)
                await until(lambda: len(ended) == 5, within=60)
                await until(lambda: consumer.health().in_flight == 0)
        assert cancelled == began - ended
        assert set(cancelled.values()) == {1}
        assert await left(broker, topic) == []


async def test_a_topic_that_is_deleted_ends_its_calls_and_is_reported_once(
    broker: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    topic = "deleted"
    await queue(broker, topic, 4)
    began, ended, cancelled = (Counter[bytes]() for _ in range(3))
    deleted = asyncio.Event()
    consumer = member(broker, topic)

    @consumer.handler(topic)
    async def handle(value: bytes) -> None:
        began[value] += 1
        try:
            await (deleted.wait() if value in (b"0", b"1") else asyncio.sleep(60))
        except asyncio.CancelledError:
            cancelled[value] += 1
            raise
        ended[value] += 1

    async with consumer, asyncio.timeout(60):
        await until(lambda: len(began) == 4)
        await asyncio.to_thread(broker.delete_topic, topic)
        deleted.set()
        await until(lambda: consumer.health().assigned == 0)
        health = consumer.health()
        assert health.in_flight == 0
        assert health.missing_topics == frozenset((topic,))
        assert health.share is not None
        assert health.share.locks_lost == 4
    # Whether the first two end before the member hears of it is not known.
    assert ended + cancelled == began == Counter(map(b"%d".__mod__, range(4)))
    assert {b"2", b"3"} <= set(cancelled)
    lost = [line for line in caplog.messages if "locks of acquired records are lost" in line]
    assert sum(int(count) for count in re.findall(r"records=(\d+)", " ".join(lost))) == 4


async def test_whole_batches_are_acquired_renewed_and_released(broker: KafkaBroker) -> None:
    topic = "whole"
    await queue(broker, topic, 200)
    began, ended = Counter[bytes](), Counter[bytes]()
    consumer = member(broker, topic, concurrency=8, max_in_flight=100, acquire="batches")

    @consumer.handler(topic)
    async def handle(value: bytes) -> None:
        began[value] += 1
        await asyncio.sleep(0.05 if len(began) < 60 else 1.5 * LOCK)
        ended[value] += 1

    async with consumer:
        await until(lambda: len(ended) >= 60)
        health = consumer.health().share
        assert health is not None
        assert health.unstarted > 8
    assert began == ended
    assert max(ended.values()) == 1
    again = await left(broker, topic)
    assert len(again) == 200 - len(ended)
    assert not set(again) & ended.keys()


async def test_a_member_is_ready_once_it_has_joined(broker: KafkaBroker) -> None:
    topic = "ready"
    await queue(broker, topic, 1)
    consumer = member(broker, topic)
    running = asyncio.Event()

    @consumer.handler(topic)
    async def handle(_value: bytes) -> None:
        running.set()
        await asyncio.sleep(1)

    async with consumer:
        assert not consumer.probe().ready
        await asyncio.wait_for(running.wait(), 30)
        assert consumer.probe().ready
        health = consumer.health().share
        assert health is not None
        assert (health.running, health.oldest, health.oldest_deliveries) == (1, (topic, 0, 0), 1)
        assert consumer.group_metadata().member_id
    assert not consumer.probe().ready
