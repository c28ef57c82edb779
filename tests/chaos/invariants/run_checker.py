"""Checks what a chaos run must keep.

Two checks are independent of each other. The audit compares the journals with the topic. The demo
compares the logs of the handlers with the records that were acknowledged to the producer, and with
the committed offsets; *lost*, *repeated*, *order violation*, *stall* and *hand-over* are defined in
``asyncrevoke/cli/demo/group_result.py``.

A repeated record is *permitted* by an ending of a member, which was killed, frozen for longer than
its session, or lost the partition, if the call had begun by then and no commit covered the record.
With ``on_unconfirmed_membership="continue"`` a member that has lost a partition and does not know
it yet works on: that is permitted too.
Each ending permits at most ``concurrency`` records, and those that were completed after the last
acknowledged commit but one (the last one may have been sent before they were). The faults of a run
decide whether endings may happen in it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from asyncrevoke.audit.anomalies import Anomaly, AnomalyKind, Severity
from asyncrevoke.audit.results.report import counts
from asyncrevoke.cli.demo.group_result import (
    Evidence,
    ObservedCall,
    RecordId,
    evaluate,
    handler_calls,
)
from asyncrevoke.cli.demo.member.handler_log import Abandoned, Ended, Started
from asyncrevoke.client.model import TopicPartition

if TYPE_CHECKING:
    from asyncrevoke.audit.results.audit_result import AuditResult
    from asyncrevoke.cli.demo.group_result import GroupResult, Produced

Handling: TypeAlias = Started | Ended | Abandoned

# What an audit says of two members of which one did not know that its partition had gone.
_BY_ENDINGS = frozenset(
    (AnomalyKind.CONCURRENT_DUPLICATE, AnomalyKind.KEY_ORDER, AnomalyKind.OWNERSHIP)
)
_WITHOUT_PAUSE = _BY_ENDINGS | {AnomalyKind.DUPLICATE_AFTER_COMMIT}


class Ending(NamedTuple):
    """From ``at`` on others may handle again what ``member`` had begun.

    ``committed`` is what the group had committed then; ``partitions`` None for all.
    """

    why: Literal["killed", "frozen", "lost", "closed"]
    member: str
    at: float
    committed: Mapping[TopicPartition, int]
    partitions: frozenset[TopicPartition] | None = None

    def covers(self, call: ObservedCall) -> bool:
        """Whether another call after this one is permitted."""
        place = call.record.partition
        return self._concerns(call) and call.record.offset >= self.committed.get(place, 0)

    def comes_after(self, call: ObservedCall) -> bool:
        """Whether the member of this call did not know of its loss yet."""
        return self.why == "lost" and self._concerns(call)

    def _concerns(self, call: ObservedCall) -> bool:
        return (
            call.member == self.member
            and call.begin <= self.at
            and (self.partitions is None or call.record.partition in self.partitions)
        )


class Commit(NamedTuple):
    """A commit of a member that the group coordinator has acknowledged."""

    member: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """What the faults of a run allow. ``stall`` and ``exit`` are seconds."""

    endings: bool = False
    failures: bool = False
    stall: float
    exit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunObservations:
    """Everything that is known of a run.

    Args:
        produced: the records that were acknowledged to the producer and that the log still has.
        handled: what the handlers wrote down.
        committed: the committed offsets after the members had gone.
        died: when members' processes ended.
        endings: kills, freezes and losses.
        commits: acknowledged commits.
        failures: members that ended by themselves.
        longest_exit: seconds from SIGTERM to the end of a process.
        audited: what the audit of the journals found; None if the topic cannot be compared.
        concurrency: how many handlers a member may run at once.
        stored: what lifespans have stored as counted; None without lifespans.
        pausing: whether members begin nothing while their membership is not confirmed.
    """

    produced: Sequence[Produced]
    handled: Sequence[Handling]
    committed: Mapping[TopicPartition, int]
    died: Mapping[str, float]
    endings: Sequence[Ending]
    commits: Sequence[Commit]
    failures: Sequence[str]
    longest_exit: float
    audited: AuditResult | None
    concurrency: int
    stored: Sequence[tuple[TopicPartition, int]] | None = None
    pausing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What came of a run; ``faults`` are sentences, none if all that was promised held."""

    produced: int
    lost: int
    unhandled: int
    repeated: int
    not_permitted: int
    out_of_order: int
    longest_stall: float
    longest_exit: float
    audit: str
    repeats_by_ending: Mapping[str, int] = field(default_factory=dict[str, int])
    faults: Sequence[str] = ()


def check_run(observations: RunObservations, allowed: Allowed) -> RunResult:
    """Evaluate a run."""
    handled = _cut_at_freezes(observations)
    result = evaluate(
        Evidence(
            produced=observations.produced,
            handled=handled,
            committed=observations.committed,
            concurrency=observations.concurrency,
            died=observations.died,
        )
    )
    not_permitted, by_ending = _permitted_by(
        observations, handler_calls(handled, observations.died), result.repeated
    )
    stall = max(
        result.longest_stall, result.hand_over.seconds if result.hand_over is not None else 0.0
    )
    faults: list[str] = [
        *_records("lost: committed past, and no handler returned", result.lost),
        *_records("not handled when the run was stopped", result.unfinished),
        *_records("not committed after all members had left", _uncommitted(observations, result)),
        *_records("repeated and not permitted", not_permitted),
        *_records("out of order", [each.record for each in result.disorder]),
        *_endings(observations, allowed, by_ending),
        *_audit(observations, allowed),
        *_stored(observations),
        *([] if allowed.failures else observations.failures),
    ]
    if stall > allowed.stall:
        faults.append(f"records waited for {stall:.1f} s, more than {allowed.stall:g} s")
    if observations.longest_exit > allowed.exit:
        faults.append(
            f"a member ended {observations.longest_exit:.1f} s after SIGTERM, "
            f"later than {allowed.exit:g} s"
        )
    return RunResult(
        produced=len(observations.produced),
        lost=len(result.lost),
        unhandled=len(result.unfinished),
        repeated=len(result.repeated),
        not_permitted=len(not_permitted),
        out_of_order=len(result.disorder),
        longest_stall=stall,
        longest_exit=observations.longest_exit,
        audit="none" if observations.audited is None else str(observations.audited.status),
        repeats_by_ending=by_ending,
        faults=faults,
    )


def _cut_at_freezes(observations: RunObservations) -> list[Handling]:
    """A handler that was frozen in mid-call does nothing from then on: others may begin."""
    frozen = [ending for ending in observations.endings if ending.why == "frozen"]
    if not frozen:
        return list(observations.handled)
    begun: dict[tuple[str, RecordId], float] = {}
    cut: list[Handling] = []
    for event in sorted(observations.handled, key=lambda each: each.at):
        name = RecordId(TopicPartition(event.topic, event.partition), event.offset)
        if isinstance(event, Started):
            begun[event.member, name] = event.at
            cut.append(event)
            continue
        since = begun.pop((event.member, name), event.at)
        times = [each.at for each in frozen if each.member == event.member]
        at = min((time for time in times if since <= time <= event.at), default=event.at)
        kind = Ended if isinstance(event, Ended) else Abandoned
        cut.append(
            kind(
                member=event.member,
                topic=event.topic,
                partition=event.partition,
                offset=event.offset,
                key=event.key,
                at=at,
            )
        )
    return cut


def _permitted_by(
    observations: RunObservations, calls: Iterable[ObservedCall], repeated: Iterable[RecordId]
) -> tuple[list[RecordId], dict[str, int]]:
    by_record: dict[RecordId, list[ObservedCall]] = defaultdict(list)
    for call in calls:
        by_record[call.record].append(call)
    not_permitted: list[RecordId] = []
    counts = {_name(ending): 0 for ending in observations.endings}
    for record in repeated:
        own = by_record[record]
        endings = [
            _ending_of(observations, call, number, len(own)) for number, call in enumerate(own)
        ]
        if endings.count(None) > 1:
            not_permitted.append(record)
        for name in {_name(each) for each in endings if each is not None}:
            counts[name] += 1
    return not_permitted, counts


def _ending_of(
    observations: RunObservations, call: ObservedCall, number: int, calls: int
) -> Ending | None:
    for ending in observations.endings:
        if number < calls - 1 and ending.covers(call):
            return ending
        if number > 0 and not observations.pausing and ending.comes_after(call):
            return ending
    return None


def _name(ending: Ending) -> str:
    return f"{ending.member} {ending.why} at {ending.at:.3f}"


def _endings(
    observations: RunObservations, allowed: Allowed, by_ending: Mapping[str, int]
) -> list[str]:
    found: list[str] = []
    for ending in observations.endings:
        repeats = by_ending[_name(ending)]
        bound = observations.concurrency + _done_since_commit(observations, ending)
        if not (allowed.endings or (ending.why == "closed" and observations.failures)):
            found.append(f"{_name(ending)}: no fault of this run allows that")
        elif repeats > bound:
            found.append(f"{_name(ending)}: {repeats} repeated, at most {bound} were expected")
    return found


def _done_since_commit(observations: RunObservations, ending: Ending) -> int:
    commits = {
        c.at for c in observations.commits if c.member == ending.member and c.at <= ending.at
    }
    since = sorted(commits)[-2] if len(commits) > 1 else float("-inf")
    return sum(
        isinstance(event, Ended) and event.member == ending.member and since < event.at <= ending.at
        for event in observations.handled
    )


def _uncommitted(observations: RunObservations, result: GroupResult) -> Sequence[RecordId]:
    # Whoever ends by itself leaves what it did since its last commit to the next owner, and the
    # last member of all has none.
    return () if observations.failures else result.uncommitted


def _stored(observations: RunObservations) -> list[str]:
    """Each record is in one stored state if each partition was given over, and none was lost."""
    if observations.stored is None or observations.endings or observations.failures:
        return []
    times = Counter(RecordId(place, offset) for place, offset in observations.stored)
    produced = [RecordId(each.partition, each.offset) for each in observations.produced]
    return [
        *_records("in no state that a lifespan has stored", [r for r in produced if not times[r]]),
        *_records("in several states", [record for record, count in times.items() if count > 1]),
    ]


def _audit(observations: RunObservations, allowed: Allowed) -> list[str]:
    if observations.audited is None:
        return []
    kinds = _BY_ENDINGS if observations.pausing else _WITHOUT_PAUSE
    by_kind: dict[AnomalyKind, list[Anomaly]] = defaultdict(list)
    for anomaly in observations.audited.anomalies:
        permitted = allowed.endings and anomaly.kind in kinds
        if anomaly.severity in {Severity.FAIL, Severity.INCONCLUSIVE} and not permitted:
            by_kind[anomaly.kind].append(anomaly)
    return [
        f"audit: {kind}: {counts(found)[kind]}, the first in partition {found[0].partition}, "
        f"offsets {found[0].offset_lo} to {found[0].offset_hi}, {dict(found[0].evidence)}"
        for kind, found in by_kind.items()
    ]


def _records(what: str, records: Sequence[RecordId]) -> list[str]:
    if not records:
        return []
    first = ", ".join(f"{r.partition.partition}: {r.offset}" for r in records[:5])
    return [f"{len(records)} {what} (partition: offset): {first}"]
