"""Which offsets a TopicReader reads, and how it ends."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Self, cast

import pytest

from asyncrevoke import (
    ConfigError,
    IllegalStateError,
    OffsetAndTimestamp,
    PartitionLostError,
    PollResult,
    Record,
    RequestTimeoutError,
    TopicPartition,
    TopicReader,
)
from asyncrevoke.client.core.queries.offset_queries import TopicDescription
from asyncrevoke.replays.ranges import topic_reader

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from asyncrevoke import ConsumerConfig

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


def records(partition: TopicPartition, offsets: Iterable[int]) -> list[Record]:
    return [Record(*partition, offset, 0, 0, None, b"x", (), 1) for offset in offsets]


class Log:
    """Two partitions whose record n has a timestamp of n seconds, read by steps of five offsets."""

    def __init__(self, ends: Mapping[TopicPartition, int], starts: int = 0) -> None:
        self.ends = ends
        self.starts = starts
        self.without_records: frozenset[int] = frozenset()
        self.lost: frozenset[TopicPartition] = frozenset()
        self.stalls = False
        self.positions: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()
        self.left_out_before: dict[TopicPartition, int] = {}
        self.closed = False

    async def start(self) -> Self:
        return self

    async def aclose(self) -> None:
        self.closed = True

    async def describe_topics(self, topics: Sequence[str]) -> dict[str, TopicDescription]:
        numbers = frozenset(tp.partition for tp in self.ends)
        described = TopicDescription(bytes(16), numbers, is_internal=False)
        return {name: described for name in topics if name == "orders"}

    async def offset_ranges(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, range]:
        return {tp: range(self.starts, self.ends[tp]) for tp in partitions}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, datetime]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        for tp, time in timestamps.items():
            offset = max(self.starts, math.ceil(time.timestamp()))
            # Written since the end was looked up.
            grown = self.ends[tp] + 3
            found[tp] = None if offset >= grown else OffsetAndTimestamp(offset, offset * 1000, 0)
        return found

    def wall_clock(self) -> float:
        return 0.0

    def leave_out_older(self, times: Mapping[TopicPartition, int]) -> None:
        self.left_out_before |= times

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        self.positions = dict.fromkeys(partitions, 0)

    def resume(self, *_partitions: TopicPartition) -> None:
        self.paused.clear()

    def pause(self, partition: TopicPartition) -> None:
        self.paused.add(partition)

    def fetch_until(self, _ends: Mapping[TopicPartition, int]) -> None: ...

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.positions[partition] = offset

    def position(self, partition: TopicPartition) -> int:
        return self.positions[partition]

    async def poll(self, _timeout: float, _most: int | None) -> PollResult:
        slices: dict[TopicPartition, list[Record]] = {}
        for tp, position in self.positions.items():
            if tp not in self.paused and not self.stalls:
                self.positions[tp] = position + 5
                kept = [n for n in range(position, position + 5) if n not in self.without_records]
                if kept:
                    slices[tp] = records(tp, kept)
        return PollResult(slices, lost=self.lost)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    log = Log({A: 20, B: 7})

    def consumer_of(_config: ConsumerConfig) -> Log:
        return log

    monkeypatch.setattr(topic_reader, "consumer_of", consumer_of)
    return log


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


async def offsets(reader: TopicReader) -> dict[TopicPartition, list[int]]:
    found: dict[TopicPartition, list[int]] = {tp: [] for tp in reader.ranges}
    async for batch in reader:
        assert batch.records
        for tp, part in batch.by_partition().items():
            found[tp] += [record.offset for record in part]
    return found


@pytest.mark.parametrize(
    ("since", "until", "first", "second"),
    [
        (None, None, range(20), range(7)),
        (at(3), None, range(3, 20), range(3, 7)),
        (at(3.0005), at(5), range(4, 5), range(4, 5)),
        (at(21), None, range(20, 20), range(7, 7)),
        (at(9), at(30), range(9, 20), range(7, 7)),
        (None, at(0), range(0), range(0)),
    ],
)
async def test_it_reads_from_the_first_record_since_to_the_first_one_at_until(
    log: Log, since: datetime | None, until: datetime | None, first: range, second: range
) -> None:
    async with TopicReader("orders", since=since, until=until) as reader:
        assert reader.ranges == {A: first, B: second}
        assert await offsets(reader) == {A: list(first), B: list(second)}
    assert log.closed
    sought = {} if since is None else dict.fromkeys((A, B), math.ceil(since.timestamp() * 1000))
    assert log.left_out_before == sought


async def test_a_timedelta_counts_back_from_entering(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[datetime] = []

    async def found(times: Mapping[TopicPartition, datetime]) -> dict[TopicPartition, None]:
        asked.extend(set(times.values()))
        return dict.fromkeys(times)

    monkeypatch.setattr(log, "offsets_for_times", found)
    before = datetime.now(UTC)
    async with TopicReader("orders", since=timedelta(days=2), until=timedelta(days=1)):
        since, until = asked
        assert until - since == timedelta(days=1)
        assert before <= until + timedelta(days=1) <= datetime.now(UTC) + timedelta(milliseconds=1)


@pytest.mark.parametrize("since", [timedelta.max, datetime(1, 1, 1, tzinfo=UTC)])
async def test_a_time_before_the_epoch_is_the_epoch(log: Log, since: datetime | timedelta) -> None:
    async with TopicReader("orders", since=since) as reader:
        assert reader.ranges == {A: range(20), B: range(7)}


@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=-12))])
async def test_a_time_may_be_the_last_of_a_datetime(log: Log, zone: timezone) -> None:
    last = datetime.max.replace(tzinfo=zone)
    async with TopicReader("orders", until=last) as reader:
        assert reader.ranges == {A: range(20), B: range(7)}
    async with TopicReader("orders", since=last) as reader:
        assert reader.ranges == {A: range(20, 20), B: range(7, 7)}


async def test_it_begins_at_the_start_of_the_log_and_ends_without_a_record_at_its_end(
    log: Log,
) -> None:
    log.starts = 2
    log.without_records = frozenset(range(15, 20))
    async with TopicReader("orders", since=at(1)) as reader:
        assert await offsets(reader) == {A: list(range(2, 15)), B: list(range(2, 7))}


async def test_a_topic_that_is_deleted_meanwhile_is_an_error(log: Log) -> None:
    log.lost = frozenset({A})
    async with TopicReader("orders") as reader:
        with pytest.raises(PartitionLostError):
            await anext(reader)


async def test_no_progress_is_an_error_that_names_where_it_stands(log: Log) -> None:
    log.stalls = True
    async with TopicReader("orders", since=at(3), no_progress_timeout=0.001) as reader:
        with pytest.raises(RequestTimeoutError, match=r"orders-0 .* beyond offset 3, .* to 20"):
            await anext(reader)


@pytest.mark.parametrize("error", [None, KeyError("x")])
async def test_entering_closes_the_consumer_if_it_raises(
    log: Log, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    if error is not None:

        async def fails(_partitions: object) -> None:
            raise error

        monkeypatch.setattr(log, "offset_ranges", fails)
    topic = "missing" if error is None else "orders"
    with pytest.raises(ConfigError if error is None else KeyError):
        await TopicReader(topic).__aenter__()
    assert log.closed


async def test_until_must_be_after_since(log: Log) -> None:
    with pytest.raises(ConfigError, match="until= is not after since="):
        await TopicReader("orders", since=at(5), until=at(5)).__aenter__()
    assert log.closed


async def test_it_is_read_only_inside_its_block() -> None:
    with pytest.raises(IllegalStateError, match="inside `async with`"):
        await anext(TopicReader("orders"))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"since": 1_700_000_000}, "datetime with a time zone, or a timedelta"),
        ({"since": datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001
        ({"until": timedelta(seconds=-1)}, "not negative"),
        ({"group_id": "billing"}, "leave group_id out"),
        ({"auto_offset_reset": "latest"}, "would skip records"),
        ({"no_progress_timeout": 0}, "more than 0"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        cast("type", TopicReader)("orders", **options)


def test_it_has_no_pattern() -> None:
    with pytest.raises(ConfigError, match=r"'orders-\.\*' is not a valid topic name: letters"):
        TopicReader("orders-.*")


def test_it_needs_a_topic() -> None:
    with pytest.raises(ConfigError, match="needs a topic"):
        TopicReader()
