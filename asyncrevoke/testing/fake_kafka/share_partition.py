"""One partition of a share group at its leader: which offsets are available, acquired or ended.

A record is acquired for a member under a lock. An acknowledgement of the member ends the lock, and
so do its deadline, the end of the member's session, and a new leader. Each acquisition counts as a
delivery, whatever ends it; at the limit the record is archived (KIP-932).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from asyncrevoke.client.protocol.messages import ErrorCode
from asyncrevoke.client.protocol.share_messages import AcknowledgeType, AcquiredRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from asyncrevoke.client.protocol.share_messages import AcknowledgementBatch
    from asyncrevoke.testing.fake_kafka.topics import LoggedBatch, PartitionLog


class OffsetState(enum.Enum):
    """The state of an offset from the group's start offset on."""

    AVAILABLE = "available"
    ACQUIRED = "acquired"
    ACKNOWLEDGED = "acknowledged"
    ARCHIVED = "archived"


# What an acknowledgement makes of an acquired offset. RENEW keeps it acquired.
ACKNOWLEDGED: dict[AcknowledgeType, OffsetState] = {
    AcknowledgeType.GAP: OffsetState.ACKNOWLEDGED,
    AcknowledgeType.ACCEPT: OffsetState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: OffsetState.AVAILABLE,
    AcknowledgeType.REJECT: OffsetState.ARCHIVED,
    AcknowledgeType.RENEW: OffsetState.ACQUIRED,
}


class LockEnd(enum.Enum):
    """Why a record is not acquired any more."""

    ACKNOWLEDGED = "its member has acknowledged it"
    EXPIRED = "its lock has passed"
    SESSION_ENDED = "its member's session has ended"
    LEADER_MOVED = "the partition has another leader"


@dataclass(slots=True)
class ShareOffset:
    """``acquisition`` is the number of the response in which ``member`` has acquired it.
    ``stored_count`` are the deliveries that a new leader knows of."""

    state: OffsetState = OffsetState.AVAILABLE
    member: str = ""
    acquisition: int = 0
    deadline: float = 0.0
    count: int = 0
    stored_count: int = 0


@dataclass(slots=True)
class ShareGroupOptions:
    """The group's configuration, with Kafka's defaults. Times are in seconds."""

    lock: float = 30.0
    delivery_limit: int = 5
    # Between the first offset that has not ended and the last one that is acquired.
    locks: int = 2000
    renews: bool = True
    from_earliest: bool = True


# The offset, its lock, why that ends, and the acknowledgement that ends it.
LockEnded: TypeAlias = "Callable[[int, ShareOffset, LockEnd, AcknowledgeType | None], None]"


def _told_nobody(
    _offset: int, _lock: ShareOffset, _why: LockEnd, _kind: AcknowledgeType | None
) -> None:
    pass


class SharePartition:
    """``start`` is None until the first ShareFetch that may acquire a record; until then the
    group's reset has not chosen where the group begins. ``lock_ended`` is told of each lock."""

    def __init__(self, log: PartitionLog, options: ShareGroupOptions) -> None:
        self.log = log
        self.options = options
        self.start: int | None = None
        # Whether the leader has read the group's state of this partition, and until when it takes
        # no request for it.
        self.is_loaded = False
        self.loads_until = 0.0
        self.lock_ended: LockEnded = _told_nobody
        self.offsets: dict[int, ShareOffset] = {}
        self._acquired: dict[int, ShareOffset] = {}

    # --- acquiring -------------------------------------------------------------------------------

    def load(self) -> None:
        """Read the state, and choose the start offset if there is none yet."""
        self.is_loaded = True
        if self.start is None:
            self.start = self.log.start if self.options.from_earliest else self.log.end

    def acquire(
        self, now: float, member: str, most: int, *, exact: bool, acquisition: int
    ) -> list[AcquiredRange]:
        """Acquire available records: at most ``most``, or whole batches until there are as many."""
        taken: list[tuple[int, int]] = []
        last = (self.start or 0) + self.options.locks - 1
        for batch in self._batches():
            if len(taken) >= most:
                break
            free = [
                offset
                for offset in range(max(batch.base, self.start or 0), min(batch.end, last + 1))
                if offset not in self.offsets or self.offsets[offset].state is OffsetState.AVAILABLE
            ]
            size, isolated = self._piece(batch, free)
            for offset in free[: min(size, most - len(taken)) if exact else size]:
                entry = self.offsets.setdefault(offset, ShareOffset())
                entry.state, entry.member, entry.acquisition = (
                    OffsetState.ACQUIRED,
                    member,
                    acquisition,
                )
                entry.deadline = now + self.options.lock
                entry.count += 1
                self._acquired[offset] = entry
                taken.append((offset, entry.count))
            if isolated and taken:
                break
        return _as_ranges(taken)

    def _piece(self, batch: LoggedBatch, free: Sequence[int]) -> tuple[int, bool]:
        """How many of a batch's free offsets one fetch may acquire. Past half of the delivery limit
        they come in ever smaller pieces, at last alone."""
        half = -(-self.options.delivery_limit // 2)
        count = max((self.offsets[o].count for o in free if o in self.offsets), default=0) + 1
        if count <= half or self.options.delivery_limit <= 2:
            return len(free), False
        if count >= self.options.delivery_limit:
            return 1, True
        return max((batch.end - batch.base) >> (count - half), 1), True

    def _batches(self) -> Iterator[LoggedBatch]:
        return self.log.batches_from(self.start or 0)

    @property
    def has_available(self) -> bool:
        """Whether a fetch would acquire something."""
        last = (self.start or 0) + self.options.locks
        return any(
            offset not in self.offsets or self.offsets[offset].state is OffsetState.AVAILABLE
            for offset in range(self.start or 0, min(self.log.end, last))
        )

    # --- acknowledging ---------------------------------------------------------------------------

    def acknowledge(
        self, now: float, member: str, batches: Sequence[AcknowledgementBatch]
    ) -> ErrorCode:
        """Apply all of them, or none if one offset is not acquired by this member."""
        wanted: list[tuple[int, AcknowledgeType]] = []
        for batch in batches:
            first, last, kind = batch.first_offset, batch.last_offset, batch.type
            before = wanted[-1] if wanted else (-1, AcknowledgeType.RENEW)
            # An offset may be renewed and acknowledged in one request.
            if first < before[0] or last < first:
                return ErrorCode.invalid_request
            if first == before[0] and before[1] is not AcknowledgeType.RENEW:
                return ErrorCode.invalid_request
            wanted += [(offset, kind) for offset in range(first, last + 1)]
        start = self.start or 0
        for offset, kind in wanted:
            if offset < start:
                continue  # accepted without a word, whatever it is
            if offset >= self.log.end:
                return ErrorCode.invalid_request
            entry = self.offsets.get(offset)
            if entry is None or entry.state is not OffsetState.ACQUIRED or entry.member != member:
                return ErrorCode.invalid_record_state
            if kind is AcknowledgeType.RENEW and not self.options.renews:
                return ErrorCode.invalid_record_state
        for offset, kind in wanted:
            if offset >= start:
                self._apply(now, offset, kind)
        self._advance()
        return ErrorCode.none

    def _apply(self, now: float, offset: int, kind: AcknowledgeType) -> None:
        entry = self.offsets[offset]
        if kind is AcknowledgeType.RENEW:
            entry.deadline = now + self.options.lock
        else:
            self._end(offset, entry, ACKNOWLEDGED[kind], LockEnd.ACKNOWLEDGED, kind)

    def _end(
        self,
        offset: int,
        entry: ShareOffset,
        state: OffsetState,
        why: LockEnd,
        kind: AcknowledgeType | None = None,
    ) -> None:
        if state is OffsetState.AVAILABLE and entry.count >= self.options.delivery_limit:
            state = OffsetState.ARCHIVED
        self.lock_ended(offset, entry, why, kind)
        entry.state = state
        entry.stored_count = entry.count
        del self._acquired[offset]

    def _advance(self) -> None:
        """Move the start offset over what has ended."""
        ended = (OffsetState.ACKNOWLEDGED, OffsetState.ARCHIVED)
        while (
            self.start is not None
            and (entry := self.offsets.get(self.start)) is not None
            and entry.state in ended
        ):
            self.start += 1

    @property
    def lag(self) -> int:
        """How many offsets from the start offset on are neither acknowledged nor archived."""
        if self.start is None:
            return 0
        ended = (OffsetState.ACKNOWLEDGED, OffsetState.ARCHIVED)
        done = sum(o >= self.start and e.state in ended for o, e in self.offsets.items())
        return self.log.end - self.start - done

    # --- what else ends a lock -------------------------------------------------------------------

    def expire(self, now: float) -> bool:
        """End the locks that have passed. Returns whether there were some."""
        return self._release(lambda entry: entry.deadline <= now, LockEnd.EXPIRED)

    def release(self, member: str) -> None:
        """The session of this member has ended: its records are available at once."""
        self._release(lambda entry: entry.member == member, LockEnd.SESSION_ENDED)

    def _release(self, which: Callable[[ShareOffset], bool], why: LockEnd) -> bool:
        passed = [(offset, entry) for offset, entry in self.acquired() if which(entry)]
        for offset, entry in passed:
            self._end(offset, entry, OffsetState.AVAILABLE, why)
        self._advance()
        return bool(passed)

    def move(self) -> None:
        """Another leader reads the stored state, which has no locks."""
        self.is_loaded = False
        for offset, entry in self.acquired():
            self.lock_ended(offset, entry, LockEnd.LEADER_MOVED, None)
            entry.state, entry.count = OffsetState.AVAILABLE, entry.stored_count
        self._acquired.clear()

    def acquired(self) -> list[tuple[int, ShareOffset]]:
        """All locked offsets."""
        return list(self._acquired.items())

    @property
    def next_deadline(self) -> float:
        """When the first lock passes."""
        return min((entry.deadline for entry in self._acquired.values()), default=float("inf"))


def _as_ranges(taken: Iterable[tuple[int, int]]) -> list[AcquiredRange]:
    """Neighbours with the same delivery count as one range."""
    ranges: list[AcquiredRange] = []
    for offset, count in taken:
        last = ranges[-1] if ranges else None
        first = offset
        if last and last.last_offset == offset - 1 and last.delivery_count == count:
            first = ranges.pop().first_offset
        ranges.append(AcquiredRange(first_offset=first, last_offset=offset, delivery_count=count))
    return ranges
