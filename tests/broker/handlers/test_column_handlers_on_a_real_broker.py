"""Batch handlers that receive Arrow batches, whose rows are decoded from whole record batches."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from broker.handlers.test_handlers_on_a_real_broker import DEADLINE, SOON, HandlerTopic, until
from broker.records.raw_producer import send_raw
from wire.frames.raw_batches import raw_batch, record

from asyncrevoke import BatchError, Consumer, HandlerContext
from asyncrevoke.journal import Journal

pa: Any = pytest.importorskip("pyarrow", reason="needs the extra arrow")

if TYPE_CHECKING:
    from pathlib import Path

    from asyncrevoke.broker import RunningBroker
    from asyncrevoke.client.config import GroupProtocol

    # pyarrow has no types.
    RecordBatch: TypeAlias = Any
else:
    RecordBatch = pa.RecordBatch

pytestmark = [pytest.mark.broker, pytest.mark.timeout(90)]


@pytest.fixture
def kafka(kafka_broker: RunningBroker, kafka_topic: str) -> HandlerTopic:
    return HandlerTopic(kafka_broker, kafka_topic)


def numbers(orders: Any) -> list[int]:
    return [int(value) for value in orders.column("value").to_pylist()]


@pytest.mark.kafka_topic(partitions=1)
@pytest.mark.parametrize("journal", [False, True])
async def test_failed_rows_are_retried_and_dead_lettered_and_all_others_are_done_once(
    kafka: HandlerTopic, tmp_path: Path, *, journal: bool
) -> None:
    await kafka.create(kafka.dead)
    await kafka.produce(3000)
    consumer = Consumer(
        **kafka.options(max_in_flight=2000), journal=Journal(tmp_path) if journal else None
    )
    done: Counter[int] = Counter()
    attempts: list[tuple[int, int]] = []

    @consumer.handler(
        kafka.topic, batch=True, max_records=700, max_wait=0.2, retry=SOON, dead_letter=kafka.dead
    )
    async def store(orders: RecordBatch, context: HandlerContext) -> None:
        failed: dict[int, Exception] = {}
        for row, number in enumerate(numbers(orders)):
            if number % 1000 == 5 or (number % 1000 == 77 and context.attempt == 1):
                failed[row] = ValueError(f"no {number}")
                attempts.append((number, context.attempt))
            else:
                done[number] += 1
        if failed:
            raise BatchError(failed)

    async with consumer:
        await until(lambda: len(done) == 2997)
        await until(lambda: attempts.count((2005, 3)) == 1)
        consumer.stop()
    assert set(done.values()) == {1}
    assert await kafka.committed() == 3000
    assert [attempt for number, attempt in attempts if number == 1077] == [1]
    letters = await kafka.dead_letters(3)
    assert sorted(letter.value or b"" for letter in letters) == [b"1005", b"2005", b"5"]
    letter = next(letter for letter in letters if letter.value == b"1005")
    assert letter.key == b"k%d" % (1005 % 7)
    assert dict(letter.headers)["number"] == b"1005"


@pytest.mark.kafka_topic(partitions=1)
async def test_an_unreadable_record_goes_to_the_dead_letter_topic_and_the_rest_are_rows(
    kafka: HandlerTopic,
) -> None:
    await kafka.create(kafka.dead)
    spoiled = raw_batch(
        record(0, value=b"1"), record(1, headers=[(b"\xff", b"")]), record(2, value=b"2")
    )
    await send_raw(kafka.address, kafka.topic, spoiled, raw_batch(record(0, value=b"3")))
    consumer = Consumer(**kafka.options())
    received: list[int] = []

    @consumer.handler(kafka.topic, batch=True, max_wait=0.1, dead_letter=kafka.dead)
    async def store(orders: RecordBatch) -> None:
        received.extend(numbers(orders))

    async with consumer:
        await until(lambda: len(received) == 3)
        await until(lambda: consumer.health().in_flight == 0)
        consumer.stop()
    assert sorted(received) == [1, 2, 3]
    (letter,) = await kafka.dead_letters(1)
    assert dict(letter.headers)["asyncrevoke-origin-offset"] == b"1"
    assert await kafka.committed() == 4


@pytest.mark.kafka_topic(partitions=4)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_each_row_is_handled_once_while_members_come_and_go(
    kafka: HandlerTopic, protocol: GroupProtocol
) -> None:
    seen: Counter[int] = Counter()

    def member() -> Consumer:
        consumer = Consumer(**kafka.options(group_protocol=protocol, max_in_flight=1000))

        @consumer.handler(kafka.topic, batch=True, max_records=150, max_wait=0.05)
        async def store(orders: RecordBatch) -> None:
            await asyncio.sleep(0.02)
            seen.update(numbers(orders))

        return consumer

    def more_than(count: int) -> bool:
        return len(seen) > count

    await kafka.produce(12_000, partitions=4)
    async with asyncio.timeout(DEADLINE), AsyncExitStack() as stack:
        members = [member(), member(), member()]
        for count, each in enumerate(members):
            await stack.enter_async_context(each)
            enough = 1500 * count
            await until(partial(more_than, enough))
        members[0].stop()
        await until(lambda: len(seen) == 12_000)
        for each in members:
            each.stop()
    assert set(seen.values()) == {1}
    assert await kafka.committed() == 12_000
