"""All acquired records of a consumer, until each is done, lost or unknown.

A record is known by its acquisition, not by its offset: if its lock passes and the same member
acquires it again, the former call must not acknowledge what the new one works on.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.core.share.acquired_records import acquired
from asyncrevoke.client.core.share.acquisition import Acquisition, HeldRecord
from asyncrevoke.client.core.share.counts import LockLoss, ShareCounts
from asyncrevoke.client.core.share.state_table import (
    RECORD_TRANSITIONS,
    RecordState,
    RecordTransition,
)
from asyncrevoke.client.model import ShareHealth

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from asyncrevoke.client.core.io.effects import Node
    from asyncrevoke.client.core.io.outbox import Outbox
    from asyncrevoke.client.core.share.acquired_records import AcquiredRecord
    from asyncrevoke.client.core.share.reactions import ShareReactions
    from asyncrevoke.client.model import Record
    from asyncrevoke.client.protocol.share_messages import AcquiredRange, TopicIdPartition

_TIMER = "share-locks"
# A response may come that much later than the renewal was sent without a lock passing.
_LEAST_CHECK = 0.01
# Seconds for which losses are counted.
_RECENT = 60.0
_IN_SLOTS = (RecordState.HELD, RecordState.RUNNING)
_UNFINISHED = (*_IN_SLOTS, RecordState.WAITING)
_ENDED = (RecordState.DONE, RecordState.LOST, RecordState.UNKNOWN)
_offset = attrgetter("offset")


class HeldRecords:
    """Counts the acquired records by state, renews their locks, and drops those that are lost."""

    def __init__(self, outbox: Outbox, reactions: ShareReactions) -> None:
        self._outbox = outbox
        self._reactions = reactions
        self._acquisitions: dict[int, Acquisition] = {}
        self._by_partition: dict[TopicIdPartition, dict[int, Acquisition]] = {}
        self._counts = dict.fromkeys(RecordState, 0)
        self.counts = ShareCounts()
        self._next_number = 0
        # When records were lost, and how many, within the last minute.
        self._losses: deque[tuple[float, int]] = deque()
        # Of the last response, in seconds.
        self.lock_timeout: float | None = None
        self._check_at = float("inf")
        self._now = 0.0
        # Records whose handlers are to be cancelled, since the last call of take_lost().
        self._lost: list[HeldRecord] = []

    def __len__(self) -> int:
        return sum(self._counts.values())

    @property
    def in_slots(self) -> int:
        """Records that have a handler's slot: those that run, or have not started."""
        return sum(self._counts[state] for state in _IN_SLOTS)

    @property
    def unfinished(self) -> int:
        """Records that are not acknowledged: what a fetch may acquire does not depend on those that
        are, because it is sent with their acknowledgements, or after them."""
        return sum(self._counts[state] for state in _UNFINISHED)

    def count(self, state: RecordState) -> int:
        """How many records are in this state."""
        return self._counts[state]

    def of_topic(self, topic: str) -> tuple[int, int]:
        """How many records of this topic run or are about to, and how many of them do not run."""
        states = [
            record.state
            for acquisition in self._acquisitions.values()
            if acquisition.topic == topic
            for record in acquisition.records.values()
        ]
        return sum(map(states.count, _IN_SLOTS)), states.count(RecordState.HELD)

    def has(self, partition: TopicIdPartition, node: Node) -> bool:
        """Whether any record of this partition is locked by this broker."""
        return any(a.node == node for a in self._by_partition.get(partition, {}).values())

    def of_node(self, node: Node) -> int:
        """How many records are locked by this broker."""
        return sum(len(each.records) for each in self._acquisitions.values() if each.node == node)

    def all(self) -> list[HeldRecord]:
        """All acquired records."""
        return [r for a in self._acquisitions.values() for r in a.records.values()]

    def find(self, record: AcquiredRecord) -> HeldRecord | None:
        """The acquired record; None if its lock has passed or it is acknowledged."""
        acquisition = self._acquisitions.get(record.response)
        return None if acquisition is None else acquisition.records.get(record.offset)

    def find_all(self, records: Iterable[AcquiredRecord]) -> list[HeldRecord]:
        """The acquired records without those whose locks have passed or which are acknowledged."""
        found: list[HeldRecord] = []
        number: int | None = None
        held: dict[int, HeldRecord] = {}
        for record in records:
            # Consecutive records are mostly of one response.
            if record.response != number:
                number = record.response
                acquisition = self._acquisitions.get(number)
                held = {} if acquisition is None else acquisition.records
            if (each := held.get(record.offset)) is not None:
                found.append(each)
        return found

    def acquire(
        self,
        topic: str,
        partition: TopicIdPartition,
        node: Node,
        sent_at: float,
        lock_timeout: float,
    ) -> Acquisition:
        """A new acquisition without records."""
        self._next_number += 1
        self.lock_timeout = lock_timeout
        acquisition = Acquisition(self._next_number, topic, partition, node, sent_at, lock_timeout)
        self._acquisitions[acquisition.number] = acquisition
        self._by_partition.setdefault(partition, {})[acquisition.number] = acquisition
        self._check_by(min(acquisition.renew_at, sent_at + lock_timeout))
        return acquisition

    def add(
        self,
        acquisition: Acquisition,
        records: Sequence[Record],
        ranges: Sequence[AcquiredRange],
        deadline: float,
    ) -> list[AcquiredRecord]:
        """Hold these records, which ascend, if they lie in ``ranges``. Returns those that do."""
        held: list[AcquiredRecord] = []
        added = acquisition.records
        first, last = ranges[0].first_offset, ranges[-1].last_offset
        acquisition.offsets = range(first, last + 1)
        end = 0
        for bound in ranges:
            count = bound.delivery_count
            start = bisect_left(records, bound.first_offset, end, key=_offset)
            end = bisect_left(records, bound.last_offset + 1, start, key=_offset)
            within = records[start:end]
            for record in within:
                offset = record.offset
                added[offset] = HeldRecord(acquisition, offset, count, deadline)
            held += acquired(within, acquisition.number, count)
        for other in list(self._by_partition[acquisition.partition].values()):
            overlaps = other.offsets.start <= last and first < other.offsets.stop
            if overlaps and other is not acquisition:
                # The broker has delivered the record again: the former lock has passed.
                again = other.records.keys() & acquisition.records.keys()
                lost = [other.records[offset] for offset in again]
                self.lose(lost, "acquired_again", "was acquired again")
        self._counts[RecordState.HELD] += len(held)
        self.counts.acquired += len(held)
        if not acquisition.records:
            self._forget(acquisition)
        return held

    def change(self, record: HeldRecord, transition: RecordTransition) -> bool:
        """Change the state of this record; False if the table does not have the transition."""
        was = record.state
        state = RECORD_TRANSITIONS.get((was, transition))
        if state is None:
            return False
        record.state = state
        counts = self._counts
        counts[was] -= 1
        if state in _ENDED:
            acquisition = record.acquisition
            del acquisition.records[record.offset]
            if not acquisition.records:
                self._forget(acquisition)
        else:
            counts[state] += 1
        return True

    def end(
        self, now: float, records: Iterable[HeldRecord], transition: RecordTransition
    ) -> dict[Acquisition, list[HeldRecord]]:
        """Change the states of these records to those in which an acknowledgement is sent, if their
        locks have not passed and the table has the transition. Returns those that are changed."""
        ended: dict[Acquisition, list[HeldRecord]] = {}
        acquisition: Acquisition | None = None
        of: list[HeldRecord] = []
        counts = self._counts
        for record in records:
            was = record.state
            state = RECORD_TRANSITIONS.get((was, transition))
            if state is None or record.deadline <= now:
                continue
            record.state = state
            counts[was] -= 1
            counts[state] += 1
            if record.acquisition is not acquisition:
                acquisition = record.acquisition
                of = ended.setdefault(acquisition, [])
            of.append(record)
        return ended

    def acknowledged(self, state: RecordState, ended: Sequence[HeldRecord]) -> None:
        """The broker has applied the acknowledgements of these records, all in this state."""
        done = RECORD_TRANSITIONS[state, RecordTransition.ACKNOWLEDGED]
        self._counts[state] -= len(ended)
        for record in ended:
            record.state = done
            acquisition = record.acquisition
            del acquisition.records[record.offset]
            if not acquisition.records:
                self._forget(acquisition)

    def _forget(self, acquisition: Acquisition) -> None:
        self._acquisitions.pop(acquisition.number, None)
        of_partition = self._by_partition.get(acquisition.partition, {})
        of_partition.pop(acquisition.number, None)
        if not of_partition:
            self._by_partition.pop(acquisition.partition, None)

    def health(
        self, now: float, delivery_limit: int | None, refused: tuple[str, ...]
    ) -> ShareHealth:
        """What is acquired. ``delivery_limit`` is that of the group; None: unknown."""
        held = self.all()
        oldest = min(held, key=lambda record: record.acquisition.acquired_at, default=None)
        while self._losses and self._losses[0][0] < now - _RECENT:
            self._losses.popleft()
        limit = float("inf") if delivery_limit is None else delivery_limit
        return ShareHealth(
            unstarted=self._counts[RecordState.HELD],
            running=self._counts[RecordState.RUNNING],
            waiting=self._counts[RecordState.WAITING],
            oldest=None
            if oldest is None
            else (oldest.acquisition.topic, oldest.acquisition.partition.partition, oldest.offset),
            oldest_seconds=0.0 if oldest is None else now - oldest.acquisition.acquired_at,
            oldest_deliveries=0 if oldest is None else oldest.delivery_count,
            last_deliveries=sum(record.delivery_count >= limit for record in held),
            locks_lost=sum(count for _, count in self._losses),
            refused_sessions=refused,
        )

    # --- losses --------------------------------------------------------------------------------

    def lose(self, records: Iterable[HeldRecord], loss: LockLoss, why: str) -> None:
        """The locks of these records are gone; ``why`` is for the log."""
        lost = list(records)
        if not lost:
            return
        for record in lost:
            runs = record.state in (RecordState.HELD, RecordState.RUNNING, RecordState.WAITING)
            self.change(record, RecordTransition.LOSE)
            if runs:
                self._lost.append(record)
        self._losses.append((self._now, len(lost)))
        self.counts.locks_lost[loss] += len(lost)
        first = lost[0].acquisition
        self._outbox.emit(
            log_events.SHARE_LOCKS_LOST,
            topic=first.topic,
            partition=first.partition.partition,
            records=len(lost),
            offsets=_ranges(sorted(record.offset for record in lost)),
            reason=why,
        )
        self._reactions.records_lost()

    def lose_partition(self, partition: TopicIdPartition, node: Node, why: str) -> None:
        """All locks of this partition at this broker are gone, because it has another leader."""
        acquisitions = self._by_partition.get(partition, {}).values()
        held = [r for a in acquisitions if a.node == node for r in a.records.values()]
        self.lose(held, "leader_moved", why)

    def lose_node(self, node: Node, loss: LockLoss, why: str) -> None:
        """All locks of this broker are gone."""
        for acquisition in [a for a in self._acquisitions.values() if a.node == node]:
            self.lose(list(acquisition.records.values()), loss, why)

    def take_lost(self) -> list[HeldRecord]:
        """The records whose handlers are to be cancelled, since the last call."""
        lost, self._lost = self._lost, []
        return lost

    # --- locks ---------------------------------------------------------------------------------

    def _check_by(self, at: float) -> None:
        if at < self._check_at:
            self._check_at = at
            self._outbox.set_timer(_TIMER, at, self.check_locks)

    def check_locks(self, now: float) -> None:
        """Lose what has passed, and renew what is due. Called at each event, and by a timer."""
        self._now = now
        if now < self._check_at:
            return
        self._check_at = float("inf")
        self._outbox.cancel_timer(_TIMER)
        for acquisition in list(self._acquisitions.values()):
            passed = [r for r in acquisition.records.values() if r.deadline <= now]
            self.lose(passed, "expired", "the lock has passed")
            if acquisition.records and acquisition.renew_at <= now:
                self._reactions.locks_due(acquisition.to_renew(now))
        due = min(
            (min(a.renew_at, a.deadline) for a in self._acquisitions.values()),
            default=float("inf"),
        )
        if due != float("inf"):
            self._check_by(max(due, now + _LEAST_CHECK))


def _ranges(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """The first and the last of consecutive offsets, which ascend."""
    ranges: list[tuple[int, int]] = []
    for offset in offsets:
        first = ranges.pop()[0] if ranges and ranges[-1][1] == offset - 1 else offset
        ranges.append((first, offset))
    return ranges
