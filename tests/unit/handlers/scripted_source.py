"""A record source whose polls a test scripts, and handlers that end when the test says so."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from enum import Enum
from typing import TYPE_CHECKING

from asyncrevoke.client.model import PollResult, Record, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from asyncrevoke.client.core.commit.returned_records import InFlightLimits
    from asyncrevoke.handlers.scheduling.lanes import LaneQueue

ORDERS = TopicPartition("orders", 0)
OTHERS = TopicPartition("orders", 1)


def record(
    offset: int,
    key: bytes | None = b"k",
    *,
    partition: TopicPartition = ORDERS,
    value: bytes | None = b"v",
    tracker_id: int = 1,
) -> Record:
    return Record(partition.topic, partition.partition, offset, 0, 0, key, value, (), tracker_id)


def busy_lanes(lanes: LaneQueue) -> int:
    """How many lanes are assigned: each has an entry that is ready, started or waiting."""
    return sum(len(part.lanes) for part in lanes._parts.values())


class RecordState(Enum):
    """What has become of a record that a poll returned."""

    PENDING = "pending"
    HELD = "held"
    DONE = "done"
    ABANDONED = "abandoned"
    DROPPED = "dropped"
    LOST = "lost"


class ScriptedMembership:
    """In doubt when the test says so; the result is valid for ``lasts`` seconds."""

    def __init__(self) -> None:
        self.in_doubt = False
        self.lasts = float("inf")
        self._waiting: list[asyncio.Future[object]] = []

    def confirm(self) -> None:
        self.in_doubt = False
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    @property
    def waiting(self) -> int:
        return sum(not future.done() for future in self._waiting)

    def may_begin_for(self) -> float:
        return float("-inf") if self.in_doubt else self.lasts

    def confirmation(self) -> asyncio.Future[object]:
        self._waiting.append(asyncio.get_running_loop().create_future())
        return self._waiting[-1]


class ScriptedSource:
    """Returns what was fed, in order, and rejects calls that break the protocol."""

    def __init__(self) -> None:
        self.membership = ScriptedMembership()
        self.states: dict[tuple[TopicPartition, int, int], RecordState] = {}
        self.completions: list[Record] = []
        self.calls = 0  # of complete_all
        self.dropped_after: list[tuple[TopicPartition, int]] = []
        # From which offset on a revoke may drop gaps: as if a member read no completion maps.
        self.gaps_from = 2**62
        # Until a revoked partition is lost.
        self.seconds_left: float | None = None
        self.stopped = False
        self.paused: list[TopicPartition] = []
        self.revoking: set[TopicPartition] = set()
        self.limits: InFlightLimits | None = None
        self.parks = 0
        self.parked_now = 0
        self._trackers: dict[TopicPartition, int] = {}
        self._script: asyncio.Queue[PollResult | Exception | None] = asyncio.Queue()

    # -- what the test does

    def feed(
        self,
        *records: Record,
        revoke: Iterable[TopicPartition] = (),
        lost: Iterable[TopicPartition] = (),
    ) -> None:
        """The next poll returns this."""
        self._script.put_nowait(self.batch(*records, revoke=revoke, lost=lost))

    def batch(
        self,
        *records: Record,
        revoke: Iterable[TopicPartition] = (),
        lost: Iterable[TopicPartition] = (),
    ) -> PollResult:
        """A poll result as the user's own loop would get it."""
        slices: Mapping[TopicPartition, list[Record]] = defaultdict(list)
        for each in records:
            slices[each.topic_partition].append(each)
        self.revoking |= set(revoke)
        return PollResult(slices, frozenset(revoke), frozenset(lost))

    def deliver(self, batch: PollResult) -> PollResult:
        for partition in batch.lost:
            for known in list(self.states):
                if known[0] == partition and self.states[known] in (
                    RecordState.PENDING,
                    RecordState.HELD,
                ):
                    self.states[known] = RecordState.LOST
        for partition, records in batch.by_partition().items():
            self._trackers[partition] = records[0].tracker_id
            for each in records:
                self.states[self._name(each)] = RecordState.PENDING
        return batch

    def fail(self, error: Exception) -> None:
        """The next poll raises this."""
        self._script.put_nowait(error)

    def state_of(self, of: Record) -> RecordState:
        return self.states[self._name(of)]

    def commit_point(self, records: Sequence[Record]) -> int:
        """The offset of the first of these that is not done."""
        undone = [each.offset for each in records if self.state_of(each) is not RecordState.DONE]
        return min(undone, default=records[-1].offset + 1)

    # -- the protocol

    @property
    def in_flight(self) -> int:
        return sum(
            state in (RecordState.PENDING, RecordState.HELD) for state in self.states.values()
        )

    async def poll(self) -> PollResult:
        assert not self.parked_now, "a poll is a poll boundary by itself"
        if self.stopped:
            raise StopAsyncIteration
        step = await self._script.get()
        if step is None:
            raise StopAsyncIteration
        if isinstance(step, Exception):
            raise step
        return self.deliver(step)

    @property
    def stopping(self) -> bool:
        return self.stopped

    def stop(self) -> None:
        self.stopped = True
        self._script.put_nowait(None)

    def submit(self, record: Record) -> bool:
        if self.states[self._name(record)] is not RecordState.PENDING:
            return False
        self.states[self._name(record)] = RecordState.HELD
        return True

    def complete(self, record: Record) -> bool:
        state = self.states[self._name(record)]
        if state is RecordState.LOST:
            return False
        assert state in (RecordState.PENDING, RecordState.HELD), (
            f"{record.offset} ends a second time: {state}"
        )
        self.states[self._name(record)] = RecordState.DONE
        self.completions.append(record)
        return True

    def complete_all(self, records: Sequence[Record]) -> None:
        self.calls += 1
        for each in records:
            self.complete(each)

    def abandon(self, record: Record) -> None:
        if self.states[self._name(record)] in (RecordState.PENDING, RecordState.HELD):
            self.states[self._name(record)] = RecordState.ABANDONED

    def abandon_all(self, records: Sequence[Record]) -> None:
        for each in records:
            self.abandon(each)

    def droppable_from(self, partition: TopicPartition, unstarted: Sequence[Record]) -> int:
        return self.gaps_from

    def revocation_ends_in(self, partition: TopicPartition) -> float | None:
        return self.seconds_left if partition in self.revoking else None

    def drop_after(self, partition: TopicPartition, offset: int) -> None:
        self.dropped_after.append((partition, offset))
        for known, state in self.states.items():
            if known[:2] == (partition, self._trackers[partition]) and known[2] > offset:
                assert state is RecordState.PENDING, f"{known} is dropped, and it is {state}"
                self.states[known] = RecordState.DROPPED

    def limit_in_flight(self, limits: InFlightLimits) -> None:
        self.limits = limits

    def is_revoking(self, partition: TopicPartition) -> bool:
        return partition in self.revoking

    def is_paused(self, partition: TopicPartition) -> bool:
        return partition in self.paused

    def pause_after_failure(self, record: Record) -> None:
        self.paused.append(record.topic_partition)

    def resume_after_failure(self, partition: TopicPartition) -> None:
        self.paused.remove(partition)

    @contextlib.contextmanager
    def awaiting_library(self) -> Generator[None]:
        self.parks += 1
        self.parked_now += 1
        try:
            yield
        finally:
            self.parked_now -= 1

    @staticmethod
    def _name(of: Record) -> tuple[TopicPartition, int, int]:
        return of.topic_partition, of.tracker_id, of.offset


class HeldWork:
    """Async work on records that ends when the test lets it end.

    ``started`` lists the records in the order in which their work began.
    """

    def __init__(self) -> None:
        self.started: list[Record] = []
        self.cancelled: list[Record] = []
        self.most_at_once = 0
        self._holds: dict[int, tuple[Record, asyncio.Future[None]]] = {}

    @property
    def running(self) -> list[Record]:
        return [hold for hold, _ in self._holds.values()]

    @property
    def offsets(self) -> list[int]:
        return [each.offset for each in self.started]

    async def __call__(self, record: Record) -> None:
        self.started.append(record)
        hold: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._holds[id(hold)] = record, hold
        self.most_at_once = max(self.most_at_once, len(self._holds))
        try:
            await hold
        except asyncio.CancelledError:
            self.cancelled.append(record)
            raise
        finally:
            del self._holds[id(hold)]

    def end(self, *records: Record, error: BaseException | None = None) -> None:
        """Let the work on these records end, or on all that runs if none is named."""
        for each, hold in list(self._holds.values()):
            if (not records or any(each is one for one in records)) and not hold.done():
                if error is None:
                    hold.set_result(None)
                else:
                    hold.set_exception(error)


class LogLines:
    """A log that keeps its lines as (level, event, fields)."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, object]]] = []

    def write(self, level: str, event: str, fields: Mapping[str, object], /) -> None:
        self.lines.append((level, event, dict(fields)))

    def fields(self, event: str) -> dict[str, object]:
        """The fields of the only line of this event."""
        (fields,) = (fields for _, of, fields in self.lines if of == event)
        return fields

    def events(self, level: str) -> list[str]:
        return [event for its_level, event, _ in self.lines if its_level == level]


async def turns(count: int = 30) -> None:
    """Let the loop go round: without I/O or timers, all that can happen has happened then."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(condition: Callable[[], object], deadline: float = 5.0) -> None:
    """Let the loop go round until the condition holds."""
    end = time.monotonic() + deadline
    while not condition():
        assert time.monotonic() < end, "the condition has not come true in time"
        await asyncio.sleep(0)
