"""Ranges of offsets, read by position, of a consumer whose steps are written down."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, cast

import pytest

from asyncrevoke.audit.errors import TopicError
from asyncrevoke.audit.offsets import Range
from asyncrevoke.audit.topic.batch_reader import read_batches
from asyncrevoke.client.model import PollResult, Record, TopicPartition
from asyncrevoke.replays.ranges.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from asyncrevoke.replays.ranges.range_consumer import RangeConsumer

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Step(NamedTuple):
    """Records up to and with these offsets, and where the positions are after it."""

    positions: Mapping[TopicPartition, int]
    records: Mapping[TopicPartition, int] = {}
    lost: frozenset[TopicPartition] = frozenset()

    def result(self) -> PollResult:
        return PollResult(
            {tp: [Record(*tp, last, 0, 0, None, b"")] for tp, last in self.records.items()},
            lost=self.lost,
        )


class Scripted:
    """A consumer with these steps, each of which takes as long as it may; then nothing comes."""

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)
        self.now = 0.0
        self.positions: dict[TopicPartition, int | None] = {}
        self.paused: list[TopicPartition] = []
        self.begins: list[tuple[TopicPartition, int]] = []
        self.ends: dict[TopicPartition, int] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        return

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        self.positions = dict.fromkeys(partitions)
        self.paused = [each for each in self.paused if each in partitions]

    def fetch_until(self, ends: Mapping[TopicPartition, int]) -> None:
        self.ends = dict(ends)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.positions[partition] = offset
        self.begins.append((partition, offset))

    def pause(self, partition: TopicPartition) -> None:
        self.paused.append(partition)

    def resume(self, *partitions: TopicPartition) -> None:
        self.paused = [each for each in self.paused if each not in partitions]

    def position(self, partition: TopicPartition) -> int | None:
        return self.positions[partition]

    async def poll(self, timeout: float, _most: int | None) -> PollResult:  # noqa: ASYNC109
        self.now += timeout
        if not self.steps:
            return PollResult({})
        step = self.steps.pop(0)
        self.positions.update(step.positions)
        for partition in step.lost:
            del self.positions[partition]
        return step.result()


def reader_of(consumer: Scripted, patience: float = 60.0, **ranges: range) -> Reader:
    wanted = {{"a": A, "b": B}[name]: offset_range for name, offset_range in ranges.items()}
    reader = Reader(cast("RangeConsumer", consumer), wanted, patience)
    reader.begin()
    return reader


async def test_what_has_reached_its_end_is_paused_while_the_others_continue() -> None:
    consumer = Scripted(Step({A: 10}, {A: 9}), Step({B: 5}, {B: 4}), Step({B: 10}, {B: 9}))
    reader = reader_of(consumer, a=range(10), b=range(3, 10))
    assert consumer.positions == {A: 0, B: 3}
    assert consumer.ends == {A: 10, B: 10}
    await reader.next()
    assert (consumer.paused, list(reader.left)) == ([A], [B])
    await reader.next()
    await reader.next()
    assert (consumer.paused, list(reader.left)) == ([A, B], [])


async def test_an_end_that_is_reached_without_any_record_ends_it() -> None:
    reader = reader_of(Scripted(Step({A: 4}), Step({A: 10})), a=range(10))
    step = await reader.next()
    assert step is not None
    assert not step.records
    assert not reader.left


async def test_progress_of_one_partition_extends_the_deadline_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = Scripted(*(Step({A: n // 3}) for n in range(27)), Step({B: 1}, {B: 0}))
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: consumer.now)
    # Time for three steps without progress, and not for four.
    reader = reader_of(consumer, 0.9, a=range(10), b=range(10))
    assert await reader.next() is not None
    assert (reader.positions, consumer.now) == ({A: 8, B: 1}, 28 * 0.25)
    assert await reader.next() is None
    assert consumer.now == 32 * 0.25


async def test_a_lost_partition_is_reported_and_its_position_not_resolved() -> None:
    consumer = Scripted(Step({}, lost=frozenset({A})))
    step = await reader_of(consumer, a=range(10), b=range(10)).next()
    assert step is not None
    assert step.lost == {A}


def test_nothing_is_left_of_an_empty_range() -> None:
    assert not reader_of(Scripted(), a=range(7, 7)).left


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ([], "orders-1 returns no record from offset 3 on, and the journal has records up to 9"),
        ([Step({}, lost=frozenset({B}))], "orders was deleted, and perhaps created again"),
    ],
)
async def test_an_audit_says_why_it_cannot_read_batches(
    steps: list[Step], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = Scripted(*steps)
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: consumer.now)
    with pytest.raises(TopicError, match=told):
        await read(consumer, Range(1, 3, 9))


async def test_ranges_of_one_partition_are_read_one_after_another_by_one_consumer() -> None:
    consumer = Scripted(Step({A: 5, B: 9}, {A: 4, B: 8}), Step({A: 20}, {A: 19}))
    found = await read(consumer, Range(0, 10, 20), Range(0, 0, 5), Range(1, 0, 9))
    assert found == [Range(0, 0, 5), Range(1, 0, 9), Range(0, 10, 20)]
    assert (consumer.begins, consumer.paused) == ([(A, 0), (B, 0), (A, 10)], [A])


async def read(consumer: Scripted, *ranges: Range) -> list[Range]:
    """The range of each call."""
    found: list[Range] = []
    await read_batches(
        cast("RangeConsumer", consumer),
        "orders",
        ranges,
        lambda wanted, _: found.append(wanted),
        no_progress_timeout=30,
    )
    return found
