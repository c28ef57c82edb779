"""Evaluates a group by acknowledged records, logs of handler calls, and committed offsets.

It does not use the consumer's counters. Definitions, for a record *r* of partition *p*:

- *lost*: no handler of r returned, and the group's committed offset of p is past r.
- *unfinished*: no handler of r returned, and the committed offset is not past r.
- *repeated*: more than one handler call was made for r. It is *permitted* if all calls but the last
  were of killed members, and r was not committed just before they were killed.
- *uncommitted*: a handler of r returned, and the committed offset is not past r: the next member of
  the group would handle r again.
- *order violation*: the first handler call of r came after the first call of a later record with
  the same partition and key, or some call of r came while another handler with its partition and
  key was running. Records without a key have no order.
- *waiting*: r is in the log (its producer has the acknowledgement) and no handler of it was called.
- *due*: r is waiting, it is the first waiting record with its key in p, and no handler with its key
  in p is running. A waiting record that is not due is explained by the order of keys.
- *tenure*: consecutive handler calls of p by one member, none by another in between. A call is
  *advancing* if its record has the highest offset of the tenure so far. The calls after the last
  advancing one are of records that waited for their keys. If another member then takes over p,
  these calls are the *draining* of the tenure.
- *stall of a kept partition*: the longest time between two handler calls of one tenure without its
  draining, if a record of p was due and the member had a free handler all the time. So a partition
  that is revoked and assigned again counts as kept, and a slow handler explains a stall only of its
  own key and of the handler that it occupies.
- *hand-over*: the longest time from a tenure's last advancing call to the next member's first call,
  less the time in which nothing was due; it contains the draining.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from asyncrevoke.cli.demo.member.handler_log import Abandoned, Ended, Started
from asyncrevoke.client.model import TopicPartition


class Produced(NamedTuple):
    """A record that the broker has acknowledged; ``at`` is when, on the shared clock."""

    partition: TopicPartition
    offset: int
    key: str | None
    at: float


class RecordId(NamedTuple):
    """Identifies a record."""

    partition: TopicPartition
    offset: int


class Disorder(NamedTuple):
    """``member`` started ``record`` although ``other``, with the same key, was running or has a
    higher offset."""

    record: RecordId
    other: RecordId
    key: str
    member: str


class Stall(NamedTuple):
    """For ``seconds``, no record of the partition was started, until ``member`` started one."""

    partition: TopicPartition
    member: str
    begin: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The observations of a run.

    Args:
        produced: all records of the topic.
        handled: the logs of all members, in any order.
        committed: the group's committed offsets after all members had left.
        concurrency: the number of handlers that a member may run at once.
        died: the times at which the processes of members, and so their handlers, ended.
        killed: members that were killed, with the committed offsets just before.
    """

    produced: Sequence[Produced]
    handled: Sequence[Started | Ended | Abandoned]
    committed: Mapping[TopicPartition, int]
    concurrency: int
    died: Mapping[str, float] = field(default_factory=dict[str, float])
    killed: Mapping[str, Mapping[TopicPartition, int]] = field(
        default_factory=dict[str, Mapping[TopicPartition, int]]
    )


class VisibleResults(NamedTuple):
    """Which results are visible; :mod:`.visible_results` defines the terms."""

    visible: int
    missing: tuple[RecordId, ...]
    doubled: tuple[RecordId, ...]
    out_of_order: tuple[RecordId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupResult:
    """The result; the module defines the terms."""

    produced: int
    handled: int
    lost: tuple[RecordId, ...]
    unfinished: tuple[RecordId, ...]
    repeated: tuple[RecordId, ...]
    permitted_repeats: tuple[RecordId, ...]
    uncommitted: tuple[RecordId, ...]
    disorder: tuple[Disorder, ...]
    stall: Stall | None
    hand_over: Stall | None
    latency_median: float
    latency_p99: float
    results: VisibleResults | None = None

    @property
    def longest_stall(self) -> float:
        """Seconds of the longest stall of a kept partition, 0 if there was none."""
        return self.stall.seconds if self.stall else 0.0


class ObservedCall(NamedTuple):
    """One handler call. ``end`` is infinite if the call never ended; ``returned`` says whether it
    returned."""

    record: RecordId
    key: str | None
    member: str
    begin: float
    end: float
    returned: bool


def evaluate(evidence: Evidence) -> GroupResult:
    """Evaluate a run."""
    calls = handler_calls(evidence.handled, evidence.died)
    by_record: dict[RecordId, list[ObservedCall]] = defaultdict(list)
    for call in calls:
        by_record[call.record].append(call)
    returned = {call.record: call.end for call in reversed(calls) if call.returned}
    lost: list[RecordId] = []
    unfinished: list[RecordId] = []
    uncommitted: list[RecordId] = []
    latencies: list[float] = []
    for record in evidence.produced:
        name = RecordId(record.partition, record.offset)
        past = evidence.committed.get(record.partition, 0) > record.offset
        end = returned.get(name)
        if end is None:
            (lost if past else unfinished).append(name)
            continue
        latencies.append(end - record.at)
        if not past:
            uncommitted.append(name)
    latencies.sort()
    stall, hand_over = _stalls(evidence, calls)
    repeated = {name: calls_of for name, calls_of in sorted(by_record.items()) if len(calls_of) > 1}
    return GroupResult(
        produced=len(evidence.produced),
        handled=len(latencies),
        lost=tuple(lost),
        unfinished=tuple(unfinished),
        repeated=tuple(repeated),
        permitted_repeats=tuple(
            name
            for name, calls_of in repeated.items()
            if _is_permitted_repeat(calls_of, evidence.killed)
        ),
        uncommitted=tuple(uncommitted),
        disorder=tuple(_disorder(calls)),
        stall=stall,
        hand_over=hand_over,
        latency_median=_quantile(latencies, 0.5),
        latency_p99=_quantile(latencies, 0.99),
    )


def handler_calls(
    events: Iterable[Started | Ended | Abandoned], died: Mapping[str, float]
) -> list[ObservedCall]:
    """The calls in these events, ordered by their start."""
    running: dict[tuple[str, RecordId], Started] = {}
    calls: list[ObservedCall] = []
    for event in sorted(events, key=lambda event: (event.at, not isinstance(event, Ended))):
        record = RecordId(TopicPartition(event.topic, event.partition), event.offset)
        if isinstance(event, Started):
            running[event.member, record] = event
        elif (started := running.pop((event.member, record), None)) is not None:
            calls.append(_call(record, started, event.at, returned=isinstance(event, Ended)))
    for (member, record), started in running.items():
        calls.append(_call(record, started, died.get(member, float("inf")), returned=False))
    calls.sort(key=lambda call: (call.begin, call.record))
    return calls


def _call(record: RecordId, started: Started, end: float, *, returned: bool) -> ObservedCall:
    return ObservedCall(record, started.key, started.member, started.at, end, returned)


def _is_permitted_repeat(
    calls: Sequence[ObservedCall], killed: Mapping[str, Mapping[TopicPartition, int]]
) -> bool:
    return all(
        call.member in killed
        and call.record.offset >= killed[call.member].get(call.record.partition, 0)
        for call in calls[:-1]
    )


def _disorder(calls: Sequence[ObservedCall]) -> list[Disorder]:
    by_key: dict[tuple[TopicPartition, str], list[ObservedCall]] = defaultdict(list)
    for call in calls:
        if call.key is not None:
            by_key[call.record.partition, call.key].append(call)
    found: list[Disorder] = []
    for (_, key), lane in by_key.items():
        seen: set[RecordId] = set()
        highest = lane[0]
        busy = lane[0]
        for call in lane:
            other: ObservedCall | None = None
            if call is not busy and call.begin < busy.end:
                other = busy
            elif call.record not in seen and call.record < highest.record:
                other = highest
            if other is not None:
                found.append(Disorder(call.record, other.record, key, call.member))
            seen.add(call.record)
            highest = max(highest, call, key=lambda call: call.record)
            busy = max(busy, call, key=lambda call: call.end)
    return sorted(found)


@dataclass(slots=True)
class _Key:
    """The records of one key in one partition."""

    waiting: set[int] = field(default_factory=set[int])
    running: int = 0

    @property
    def due(self) -> bool:
        return bool(self.waiting) and not self.running


def _stalls(evidence: Evidence, calls: Sequence[ObservedCall]) -> tuple[Stall | None, Stall | None]:
    busy = {
        member: _full_times([call for call in calls if call.member == member], evidence.concurrency)
        for member in {call.member for call in calls}
    }
    produced: dict[TopicPartition, list[Produced]] = defaultdict(list)
    for record in evidence.produced:
        produced[record.partition].append(record)
    called: dict[TopicPartition, list[ObservedCall]] = defaultdict(list)
    for call in calls:
        called[call.record.partition].append(call)
    kept: list[Stall] = []
    moved: list[Stall] = []
    for partition in sorted(called):
        for pause in _pauses(produced[partition], called[partition]):
            member = pause.until.member
            if pause.moved:
                seconds = pause.until.begin - pause.since
                moved.append(Stall(partition, member, pause.since, seconds))
            else:
                free = _longest_free(pause.since, pause.until.begin, busy[member])
                kept.append(Stall(partition, member, *free))
    return max(kept, key=_by_seconds, default=None), max(moved, key=_by_seconds, default=None)


def _by_seconds(stall: Stall) -> float:
    return stall.seconds


class _Pause(NamedTuple):
    """Time without calls while records were due: from ``since`` to the call ``until``."""

    since: float
    until: ObservedCall
    moved: bool


class _Tenure:
    """Divides the pauses of one partition into pauses within a tenure and hand-overs."""

    def __init__(self) -> None:
        self.pauses: list[_Pause] = []
        self._draining: list[_Pause] = []
        self._previous: ObservedCall | None = None
        self._advancing: ObservedCall | None = None

    def call(self, call: ObservedCall, due_since: float | None) -> None:
        """Add the partition's next call. ``due_since`` is None if no record was due just before
        it."""
        previous, advancing = self._previous, self._advancing
        self._previous = call
        if previous is None or advancing is None:
            self._advancing = call
        elif call.member != previous.member:
            self._draining.clear()
            self._advancing = call
            if due_since is not None:
                self.pauses.append(_Pause(max(advancing.begin, due_since), call, moved=True))
        else:
            if due_since is not None:
                pause = _Pause(max(previous.begin, due_since), call, moved=False)
                self._draining.append(pause)
            if call.record > advancing.record:
                self._advancing = call
                self.end()

    def end(self) -> None:
        """Count the latest pauses: they were not those of a draining member."""
        self.pauses += self._draining
        self._draining.clear()


def _pauses(produced: Iterable[Produced], calls: Sequence[ObservedCall]) -> list[_Pause]:
    """The times between calls of a partition in which a record was due."""
    # At equal times, ends precede appends, and appends precede calls.
    moments: list[tuple[float, int, int, Produced | ObservedCall]] = []
    moments += [(call.end, 0, call.record.offset, call) for call in calls]
    moments += [(record.at, 1, record.offset, record) for record in produced]
    moments += [(call.begin, 2, call.record.offset, call) for call in calls]
    moments.sort(key=lambda moment: moment[:3])
    keys: dict[object, _Key] = defaultdict(_Key)
    begun: set[int] = set()
    due = 0
    due_since = 0.0
    tenure = _Tenure()
    for at, kind, offset, what in moments:
        # A record without a key waits for no other record.
        lane = keys[offset if what.key is None else what.key]
        before = lane.due
        if kind == 0:
            lane.running -= 1
        elif kind == 1:
            # The handler may have started before the producer received the acknowledgement.
            if offset not in begun:
                lane.waiting.add(offset)
        else:
            assert isinstance(what, ObservedCall)
            tenure.call(what, due_since if due else None)
            begun.add(offset)
            lane.running += 1
            lane.waiting.discard(offset)
        if lane.due and not before:
            due += 1
            if due == 1:
                due_since = at
        elif before and not lane.due:
            due -= 1
    tenure.end()
    return tenure.pauses


def _full_times(calls: Sequence[ObservedCall], concurrency: int) -> list[tuple[float, float]]:
    """The times in which a member ran ``concurrency`` handlers."""
    changes = sorted([(call.begin, 1) for call in calls] + [(call.end, -1) for call in calls])
    full: list[tuple[float, float]] = []
    running = 0
    since = 0.0
    for at, change in changes:
        running += change
        if change > 0 and running == concurrency:
            since = at
        elif change < 0 and running == concurrency - 1:
            full.append((since, at))
    return full


def _longest_free(
    begin: float, end: float, full: Sequence[tuple[float, float]]
) -> tuple[float, float]:
    """The longest part of ``begin``..``end`` outside the times in ``full``: its begin and
    length."""
    best = (begin, 0.0)
    at = begin
    first = bisect.bisect_right(full, begin, key=lambda times: times[1])
    for busy_begin, busy_end in full[first:]:
        if busy_begin >= end:
            break
        if busy_begin - at > best[1]:
            best = (at, busy_begin - at)
        at = max(at, busy_end)
    return (at, end - at) if end - at > best[1] else best


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0
