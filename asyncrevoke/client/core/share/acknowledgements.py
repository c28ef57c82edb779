"""The acknowledgements for one broker that are not sent yet, merged to ranges.

If one offset of a partition is not acquired any more, the broker refuses all acknowledgements of
the partition in the request. Then each range is sent alone, and halved while it is refused, until
the refused offset is known. So a lost lock costs no other record its acknowledgement.
"""

from __future__ import annotations

from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.client import log_events
from asyncrevoke.client.core.share.acquisition import HeldRecord
from asyncrevoke.client.core.share.state_table import RecordState, RecordTransition
from asyncrevoke.client.protocol.share_messages import (
    AcknowledgementBatch,
    AcknowledgeType,
    SharePartition,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from asyncrevoke.client.core.io.outbox import Outbox
    from asyncrevoke.client.core.share.counts import AcknowledgeOutcome
    from asyncrevoke.client.core.share.held_records import HeldRecords
    from asyncrevoke.client.protocol.share_messages import TopicIdPartition

_ENDING = {
    AcknowledgeType.ACCEPT: RecordState.ACCEPTING,
    AcknowledgeType.RELEASE: RecordState.RELEASING,
    AcknowledgeType.REJECT: RecordState.REJECTING,
}
_TYPES = {state: kind for kind, state in _ENDING.items()}
_offset = attrgetter("offset")
_first_offset = attrgetter("first_offset")
# Records whose renewal was refused though they were locked, after which none is sent, if none has
# ever succeeded: the group's share.renew.acknowledge.enable is false. If the lock was lost, by a
# reset of the group's offsets or a new leader, the refusal says nothing about the option.
_RENEWALS_TRIED = 2


class AcknowledgedRange(NamedTuple):
    """Consecutive offsets with one type. ``records`` are those that are acquired, ascending; a GAP
    has none. ``alone``: no other range of the partition is in the request."""

    first_offset: int
    last_offset: int
    type: AcknowledgeType
    records: tuple[HeldRecord, ...]
    alone: bool = False

    def halves(self) -> tuple[AcknowledgedRange, AcknowledgedRange]:
        """The two halves of a range of more than one offset."""
        middle = (self.first_offset + self.last_offset) // 2
        lower = tuple(record for record in self.records if record.offset <= middle)
        return (
            AcknowledgedRange(self.first_offset, middle, self.type, lower, alone=True),
            AcknowledgedRange(
                middle + 1, self.last_offset, self.type, self.records[len(lower) :], alone=True
            ),
        )


class _Pending:
    """The acknowledgements of one partition."""

    __slots__ = ("alone", "ends", "gaps", "renewals")

    def __init__(self) -> None:
        # Those that are lost meanwhile stay among them until they are taken.
        self.ends: list[HeldRecord] = []
        # By offset.
        self.renewals: dict[int, HeldRecord] = {}
        self.gaps: list[tuple[int, int]] = []
        # Sent before all others, one in each request.
        self.alone: deque[AcknowledgedRange] = deque()

    def __bool__(self) -> bool:
        return bool(self.ends or self.renewals or self.gaps or self.alone)


class Acknowledgements:
    """Of one broker. A range is *taken* when it is sent; then it is applied, refused, returned or
    without a response."""

    def __init__(self, outbox: Outbox, held: HeldRecords) -> None:
        self._outbox = outbox
        self._held = held
        self._pending: dict[TopicIdPartition, _Pending] = {}
        self._has_renewed = False
        # Whether the renewal of any record was refused, and of how many that were locked.
        self._has_refused_renewals = False
        self._refused_renewals = 0

    def __bool__(self) -> bool:
        return any(self._pending.values())

    @property
    def renews(self) -> bool:
        """Whether locks are to be renewed: such a request fetches nothing."""
        return any(
            pending.renewals or (pending.alone and pending.alone[0].type is AcknowledgeType.RENEW)
            for pending in self._pending.values()
        )

    @property
    def partitions(self) -> list[TopicIdPartition]:
        """Those that have acknowledgements."""
        return [partition for partition, pending in self._pending.items() if pending]

    @property
    def ending(self) -> int:
        """How many records are to be acknowledged that were not refused before."""
        return sum(len(pending.ends) for pending in self._pending.values())

    def _of(self, partition: TopicIdPartition) -> _Pending:
        pending = self._pending.get(partition)
        if pending is None:
            pending = self._pending[partition] = _Pending()
        return pending

    def end(self, partition: TopicIdPartition, records: Sequence[HeldRecord]) -> None:
        """Acknowledge these records as their states, which have changed, say."""
        pending = self._of(partition)
        pending.ends += records
        if pending.renewals:
            for record in records:
                pending.renewals.pop(record.offset, None)

    def gap(self, partition: TopicIdPartition, first: int, last: int) -> None:
        """These acquired offsets have no record."""
        self._of(partition).gaps.append((first, last))

    def renew(self, records: Iterable[HeldRecord]) -> None:
        """Renew the locks of these records, whose state stays."""
        if self._refused_renewals >= _RENEWALS_TRIED:
            return
        for record in records:
            self._of(record.acquisition.partition).renewals[record.offset] = record

    def drop(self, partition: TopicIdPartition) -> None:
        """All locks of the partition are gone."""
        self._pending.pop(partition, None)

    def clear(self) -> None:
        """All locks of this broker are gone."""
        self._pending.clear()

    # --- sending -------------------------------------------------------------------------------

    def take(
        self, may: Callable[[TopicIdPartition], bool], *, renewals: bool
    ) -> dict[TopicIdPartition, list[AcknowledgedRange]]:
        """The ranges to send now, of partitions for which ``may`` is true; without ``renewals``,
        locks are renewed later."""
        taken: dict[TopicIdPartition, list[AcknowledgedRange]] = {}
        for partition in [partition for partition in self._pending if may(partition)]:
            pending = self._pending[partition]
            ranges = self._take_of(pending, renewals=renewals)
            if ranges:
                taken[partition] = ranges
            if not pending:
                del self._pending[partition]
        return taken

    def _take_of(self, pending: _Pending, *, renewals: bool) -> list[AcknowledgedRange]:
        while pending.alone:
            if pending.alone[0].type is AcknowledgeType.RENEW and not renewals:
                return []
            live = _live(pending.alone.popleft())
            if live:
                pending.alone.extendleft(reversed(live[1:]))
                return live[:1]
        ranges = _ranges([record for record in pending.ends if record.state in _TYPES])
        pending.ends.clear()
        if renewals and pending.renewals:
            due = [r for r in pending.renewals.values() if r.can(RecordTransition.RELEASE)]
            ranges += _ranges(due, AcknowledgeType.RENEW)
            pending.renewals.clear()
        if pending.gaps:
            ranges += _gap_ranges(sorted(pending.gaps))
            pending.gaps.clear()
        ranges.sort(key=_first_offset)
        return ranges

    # --- responses -----------------------------------------------------------------------------

    def applied(
        self, ranges: Iterable[AcknowledgedRange], sent_at: float, lock_timeout: float
    ) -> None:
        """The broker has applied them. Renewed locks last ``lock_timeout`` from ``sent_at`` on."""
        for taken in ranges:
            if taken.type is AcknowledgeType.RENEW:
                self._has_renewed = True
                self._held.counts.renewals += len(taken.records)
                for record in taken.records:
                    record.acquisition.renewed(record, sent_at, lock_timeout)
            elif taken.type in _ENDING:
                state = _ENDING[taken.type]
                ended = [record for record in taken.records if record.state is state]
                if self._has_refused_renewals:
                    for record in ended:
                        if not record.is_renewable:
                            self._was_locked()
                self._held.acknowledged(state, ended)
                self._count(taken.type, "acknowledged", len(ended))

    def refused(
        self,
        partition: TopicIdPartition,
        ranges: Sequence[AcknowledgedRange],
        *,
        with_request: bool = False,
    ) -> None:
        """The broker has applied none of them, because of one offset at least.

        ``with_request``: it has refused the whole request, perhaps for another reason: a range
        that was not sent alone is sent once more.
        """
        alone = len(ranges) == 1 and (ranges[0].alone or not with_request)
        again: list[AcknowledgedRange] = []
        for taken in ranges:
            if not alone:
                again.append(taken._replace(alone=True))
            elif taken.first_offset < taken.last_offset:
                again += taken.halves()
            elif taken.type is AcknowledgeType.RENEW:
                # It says nothing about the lock, whose deadline stands.
                taken.records[0].is_renewable = False
                self._has_refused_renewals = True
            else:
                lost = [r for r in taken.records if r.state is _ENDING[taken.type]]
                self._count(taken.type, "refused", len(lost))
                self._held.lose(lost, "refused", "the broker has refused the acknowledgement")
        if again:
            self._of(partition).alone.extendleft(reversed(again))

    def _was_locked(self) -> None:
        """A record whose renewal was refused was locked all the same."""
        if self._has_renewed:
            return
        self._refused_renewals += 1
        if self._refused_renewals == _RENEWALS_TRIED:
            self._outbox.emit(log_events.SHARE_RENEWALS_REFUSED)
            for pending in self._pending.values():
                pending.renewals.clear()
                pending.alone = deque(
                    taken for taken in pending.alone if taken.type is not AcknowledgeType.RENEW
                )

    def returned(self, partition: TopicIdPartition, ranges: Iterable[AcknowledgedRange]) -> None:
        """The broker has applied none of them, for a reason that is not theirs: send them again."""
        pending = self._of(partition)
        for taken in ranges:
            if taken.alone:
                pending.alone.append(taken)
            elif taken.type is AcknowledgeType.GAP:
                pending.gaps.append((taken.first_offset, taken.last_offset))
            elif taken.type is AcknowledgeType.RENEW:
                self.renew(taken.records)
            else:
                pending.ends += taken.records

    def no_response(self, ranges: Iterable[AcknowledgedRange]) -> None:
        """It is not known whether the broker has applied them."""
        for taken in ranges:
            if taken.type in _ENDING:
                pending = [r for r in taken.records if r.state is _ENDING[taken.type]]
                for record in pending:
                    self._held.change(record, RecordTransition.NO_RESPONSE)
                self._count(taken.type, "unknown", len(pending))

    def _count(self, kind: AcknowledgeType, outcome: AcknowledgeOutcome, records: int) -> None:
        if records:
            self._held.counts.acknowledgements[kind.name.lower(), outcome] += records


def _live(taken: AcknowledgedRange) -> list[AcknowledgedRange]:
    """The range without records whose locks have passed meanwhile: each part between them."""
    if taken.type is AcknowledgeType.GAP:
        return [taken]
    if taken.type is AcknowledgeType.RENEW:
        live = [r for r in taken.records if r.can(RecordTransition.RELEASE)]
    else:
        live = [r for r in taken.records if r.state is _ENDING[taken.type]]
    if len(live) == len(taken.records):
        return [taken]
    # The member may have acquired one that is lost again: no range covers it.
    return [part._replace(alone=True) for part in _ranges(live, taken.type)]


def _ranges(
    records: list[HeldRecord], kind: AcknowledgeType | None = None
) -> list[AcknowledgedRange]:
    """Neighbours of one type as one range. Without ``kind`` their states say the types."""
    ranges: list[AcknowledgedRange] = []
    records.sort(key=_offset)
    start, expected = 0, -1
    state: RecordState | None = None
    for index, record in enumerate(records):
        if record.offset != expected or (record.state is not state and kind is None):
            if index:
                ranges.append(_range(records[start:index], kind))
            start, state, expected = index, record.state, record.offset
        expected += 1
    if records:
        ranges.append(_range(records[start:], kind))
    return ranges


def _range(records: Sequence[HeldRecord], kind: AcknowledgeType | None) -> AcknowledgedRange:
    first, last = records[0], records[-1]
    kind = _TYPES[first.state] if kind is None else kind
    return AcknowledgedRange(first.offset, last.offset, kind, tuple(records))


def _gap_ranges(gaps: Iterable[tuple[int, int]]) -> list[AcknowledgedRange]:
    """Neighbours, which ascend, as one range."""
    ranges: list[AcknowledgedRange] = []
    for first, last in gaps:
        start = first
        if ranges and ranges[-1].last_offset == first - 1:
            start = ranges.pop().first_offset
        ranges.append(AcknowledgedRange(start, last, AcknowledgeType.GAP, ()))
    return ranges


def to_partition(
    partition: TopicIdPartition, ranges: Iterable[AcknowledgedRange]
) -> SharePartition:
    """The acknowledgements of a partition in a request."""
    return SharePartition(
        partition=partition,
        acknowledgements=tuple(
            AcknowledgementBatch(
                first_offset=taken.first_offset, last_offset=taken.last_offset, type=taken.type
            )
            for taken in ranges
        ),
    )
