"""Middleware, handlers in processes, and records that cannot be read, in a share group on Apache
Kafka."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest
from broker.handlers.blocking_work import FOLDER, append
from broker.handlers.share.share_topics import left, member, queue, until
from broker.records.raw_producer import send_raw
from wire.frames.raw_batches import header_bomb, raw_batch, record

from asyncrevoke import CallNext, HandlerContext, Record, Retry

if TYPE_CHECKING:
    from pathlib import Path

    from asyncrevoke.broker import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]


async def test_middleware_may_complete_fail_or_pass_on_a_call(
    kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    topic = f"{kafka_topic}-queue"
    await queue(kafka_broker, topic, 3)
    consumer = member(kafka_broker, topic)
    handled: list[bytes] = []
    tried: list[bytes | None] = []

    @consumer.middleware
    async def choose(context: HandlerContext, call_next: CallNext) -> None:
        value = context.record.value
        tried.append(value)
        if value == b"1" and tried.count(value) == 1:
            raise ConnectionError("not yet")
        if value != b"0":
            await call_next()

    @consumer.handler(topic, retry=Retry(attempts=2, backoff=0.1))
    async def handle(value: bytes) -> None:
        handled.append(value)

    async with consumer:
        await until(lambda: len(handled) == 2 and consumer.health().in_flight == 0)
    assert (sorted(handled), tried.count(b"0")) == ([b"1", b"2"], 1)
    assert await left(kafka_broker, topic) == []


async def test_a_call_whose_process_is_killed_is_made_again(
    kafka_broker: RunningBroker, kafka_topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"{kafka_topic}-queue"
    monkeypatch.setenv(FOLDER, str(tmp_path))
    await queue(kafka_broker, topic, 40)
    consumer = member(kafka_broker, topic)
    consumer.handler(topic, run_in="process", retry=Retry(attempts=5, backoff=0.05))(append)

    def called() -> list[int]:
        files = [path for path in tmp_path.iterdir() if path.name.startswith("key-")]
        # Whole lines: a process may be writing the last one.
        return sorted(int(line) for path in files for line in path.read_text().split("\n")[:-1])

    most = 0
    async with consumer:
        while len(set(called())) < 40 or consumer.health().in_flight:
            share = consumer.health().share
            assert share is not None
            most = max(most, share.unstarted + share.running)
            await asyncio.sleep(0.01)
    assert set(called()) == set(range(40))
    # No more than processes work on.
    assert 0 < most <= (os.cpu_count() or 1)
    assert await left(kafka_broker, topic) == []


async def offsets_left(broker: RunningBroker, topic: str) -> list[int]:
    """The offsets of the records that another member gets, whatever is in them."""
    offsets: list[int] = []
    consumer = member(broker, topic)

    @consumer.handler(topic)
    async def keep(record: Record) -> None:
        offsets.append(record.offset)

    async with consumer:
        await until(lambda: consumer.health().assigned > 0)
        await asyncio.sleep(1)
        share = consumer.health().share
    assert share is not None
    assert (share.waiting, share.locks_lost) == (0, 0)
    return sorted(offsets)


async def test_records_that_cannot_be_read_are_rejected_after_their_dead_letters(
    kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    topic, letters = f"{kafka_topic}-queue", f"{kafka_topic}-letters"
    await queue(kafka_broker, topic, 0)
    await queue(kafka_broker, letters, 0)
    spoiled = raw_batch(
        record(0, key=b"a"), record(1, headers=[(b"\xff", b"")]), record(2, key=b"b")
    )
    await send_raw(
        kafka_broker.bootstrap_servers,
        topic,
        spoiled,
        header_bomb(),
        raw_batch(record(0, key=b"c")),
    )
    consumer = member(kafka_broker, topic)
    keys: list[bytes | None] = []

    @consumer.handler(topic, dead_letter=letters)
    async def handle(record: Record) -> None:
        keys.append(record.key)

    async with consumer:
        await until(lambda: len(keys) == 3 and consumer.health().in_flight == 0)
    assert sorted(key or b"" for key in keys) == [b"a", b"b", b"c"]
    assert await offsets_left(kafka_broker, letters) == [0, 1]
    assert await offsets_left(kafka_broker, topic) == []


async def test_records_that_cannot_be_read_are_released_without_a_dead_letter_topic(
    kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    topic = f"{kafka_topic}-queue"
    await queue(kafka_broker, topic, 0, options={"share.delivery.count.limit": "2"})
    await send_raw(kafka_broker.bootstrap_servers, topic, header_bomb())
    consumer = member(kafka_broker, topic)

    @consumer.handler(topic, release_delay=0.1)
    async def handle(record: Record) -> None:
        raise AssertionError(record)

    deliveries: set[int] = set()
    async with consumer:
        while deliveries != {1, 2} or consumer.health().in_flight:
            share = consumer.health().share
            assert share is not None
            if share.oldest is not None:
                deliveries.add(share.oldest_deliveries)
            await asyncio.sleep(0.01)
    assert await offsets_left(kafka_broker, topic) == []
