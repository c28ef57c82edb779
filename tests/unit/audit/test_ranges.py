"""Ranges of offsets, read by position, of a consumer whose steps are written down."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, cast

import pytest

from asyncrevoke.audit.comparison import Range
from asyncrevoke.audit.errors import TopicError
from asyncrevoke.audit.topic import batch_reader as topic_batches
from asyncrevoke.config import ConsumerConfig
from asyncrevoke.model import PollResult, Record, TopicPartition
from asyncrevoke.ranges.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from asyncrevoke.consumer import Consumer

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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        return

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        self.positions = dict.fromkeys(partitions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.positions[partition] = offset

    def pause(self, partition: TopicPartition) -> None:
        self.paused.append(partition)

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
    wanted = {{"a": A, "b": B}[name]: each for name, each in ranges.items()}
    reader = Reader(cast("Consumer", consumer), wanted, patience)
    reader.begin()
    return reader


async def test_what_has_reached_its_end_is_paused_while_the_others_continue() -> None:
    consumer = Scripted(Step({A: 10}, {A: 9}), Step({B: 5}, {B: 4}), Step({B: 10}, {B: 9}))
    reader = reader_of(consumer, a=range(10), b=range(3, 10))
    assert consumer.positions == {A: 0, B: 3}
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
        ([], "orders-1 gives nothing beyond offset 3, and the journal goes to 9"),
        ([Step({}, lost=frozenset({B}))], "orders was deleted, or made anew"),
    ],
)
async def test_an_audit_says_why_it_cannot_read_batches(
    steps: list[Step], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = Scripted(*steps)

    def consumer_of(_config: ConsumerConfig, *, whole_batches: bool) -> Scripted:
        assert whole_batches
        return consumer

    monkeypatch.setattr(topic_batches, "consumer_of", consumer_of)
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: consumer.now)
    with pytest.raises(TopicError, match=told):
        await topic_batches.read_headers(
            ConsumerConfig(), "orders", [Range(1, 3, 9)], lambda _: None, patience=30
        )
