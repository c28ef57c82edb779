"""Committing offsets: one OffsetCommit in flight, coalesced, and each error with its meaning.

Commits travel while a JoinGroup is parked, so the broker may judge one against a generation that
its own JoinGroup has just ended. Such a verdict is *stale*: it counts only if the membership that
was sent is still the current one and no join or sync is outstanding (``Membership.is_verdict``).

After an ambiguous outcome the partition stays dirty, is committed again, and is in doubt
(:mod:`.commit_doubts`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from asyncrevoke.core.commit.error_table import VERDICTS, Verdict
from asyncrevoke.core.commit.partition_backoff import PartitionBackoff
from asyncrevoke.core.commit.refused_commits import RefusedCommits, refusal
from asyncrevoke.core.commit.unverified_commits import CommitDoubts
from asyncrevoke.core.commit.waiters import CommitWaiters, Waiter
from asyncrevoke.core.io.effects import Channel, Complete, Failed, FailureKind, Node
from asyncrevoke.core.partition.instance import PartitionInstance, State
from asyncrevoke.errors import (
    AuthenticationError,
    FatalError,
    GroupAuthorizationError,
    PartitionLostError,
    PartitionsError,
    UnsupportedVersionError,
)
from asyncrevoke.model import GroupMetadata, OffsetAndMetadata, TopicPartition
from asyncrevoke.protocol.messages import (
    CommitEntry,
    ErrorCode,
    OffsetCommitRequest,
    OffsetCommitResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.core.commit.completion_maps import CompletionMaps
    from asyncrevoke.core.commit.requested_offsets import RequestedOffsets
    from asyncrevoke.core.io.outbox import Outbox, Reply
    from asyncrevoke.core.metadata.coordinator import Coordinator
    from asyncrevoke.core.partition.assignment import Assignment

_TIMER = "commit"
_RETRY_TIMER = "commit-retry"
_UNKNOWN_TOPIC_TIMER = "commit-unknown-topic"
_FIRST_BACKOFF = 0.05
_LONGEST_BACKOFF = 2.0


class Membership(Protocol):
    """What commits must know of the membership."""

    @property
    def stamp(self) -> GroupMetadata:
        """The identity to commit with."""
        ...

    @property
    def may_commit(self) -> bool:
        """Whether a commit sent now can be accepted."""
        ...

    def is_verdict(self, sent: GroupMetadata, sent_at: float, /) -> bool:
        """Whether a refusal of this identity is about the membership as it is now."""
        ...

    def refused(self, now: float, error: ErrorCode) -> None:
        """A commit was refused with a true verdict about the membership."""
        ...

    def rebalance_seen(self, now: float) -> None:
        """A commit was answered with REBALANCE_IN_PROGRESS."""
        ...


class _Flight(NamedTuple):
    number: int
    node: Node
    stamp: GroupMetadata
    sent_at: float
    entries: dict[PartitionInstance, CommitEntry]
    # Those that wait for this commit alone to be released.
    flushing: frozenset[PartitionInstance]


class Commits:
    """Commits what counts, when it is due: at the interval, at a revoke, on request, at the end."""

    def __init__(
        self,
        outbox: Outbox,
        config: ConsumerConfig,
        coordinator: Coordinator,
        assignment: Assignment,
        maps: CompletionMaps,
        requested: RequestedOffsets,
    ) -> None:
        self._outbox = outbox
        self._config = config
        self._coordinator = coordinator
        self._assignment = assignment
        self._maps = maps
        self._requested = requested
        self._manual = config.commit_mode == "manual"
        self.membership: Membership | None = None
        self.on_acknowledged: Callable[[float, list[PartitionInstance]], None] = (
            lambda _now, _instances: None
        )
        # The last attempt to commit it before its release was refused.
        self.on_refused: Callable[[float, PartitionInstance, PartitionsError], None] = (
            lambda _now, _instance, _error: None
        )
        self.on_error: Callable[[float, Exception], None] = lambda _now, _error: None
        # The ids of topics, so that nothing is committed for another one of the same name.
        self.topic_ids: Callable[[Iterable[TopicPartition]], dict[str, bytes] | None] = (
            lambda _partitions: None
        )
        self._doubts = CommitDoubts(
            outbox,
            config,
            coordinator,
            owes=lambda instance: self.entry(instance) is not None,
            topic_ids=lambda partitions: self.topic_ids(partitions),  # noqa: PLW0108 - set later
        )
        self._doubts.on_verified = self._verified
        self.on_unknown_topic: Callable[[float], None] = lambda _now: None
        self._flight: _Flight | None = None
        self._due = False
        self._scheduled = False
        self._backoff = _FIRST_BACKOFF
        self._waiters = CommitWaiters(outbox, self._satisfied)
        # How many OffsetCommits were sent, and the last one that was acknowledged for an instance.
        self._sent = 0
        self._acked: dict[PartitionInstance, int] = {}
        self._refused = RefusedCommits(outbox, self.flush)
        # The coordinator has not heard of the topic yet, or it is gone: the metadata will say so.
        self._unknown_topics = PartitionBackoff(
            outbox,
            self.flush,
            timer=_UNKNOWN_TOPIC_TIMER,
            first=_FIRST_BACKOFF,
            longest=_LONGEST_BACKOFF,
        )
        self.slowest = 0.0

    # --- what is owed ----------------------------------------------------------------------------

    def entry(self, instance: PartitionInstance) -> CommitEntry | None:
        """What is to be committed for this instance now, None if the broker holds it already."""
        return self._owed(instance) if instance.can.commit else None

    def _owed(self, instance: PartitionInstance) -> CommitEntry | None:
        if self._config.group_id is None:
            return None
        if self._manual:
            return self._requested.entry(instance)
        ledger = instance.ledger
        if ledger is None:
            return None
        point = ledger.commit_point
        finished = self._maps.metadata(instance, ledger)
        if point == instance.acked and finished == instance.acked_map and not instance.commit_owed:
            return None
        return CommitEntry(
            partition=instance.partition,
            offset=point,
            leader_epoch=ledger.commit_epoch,
            metadata=finished,
        )

    def is_acknowledged(self, instance: PartitionInstance) -> bool:
        """Whether nothing of it is owed, in flight or uncertain."""
        if self._flight is not None and instance in self._flight.entries:
            return False
        return self.entry(instance) is None and instance not in self._doubts

    def schedule(self, now: float) -> None:
        """Something may count now: commit it within the interval. Cheap to call again."""
        if not self._scheduled:
            self._scheduled = True
            self._outbox.set_timer(_TIMER, now + self._config.commit_interval, self._interval)

    def _interval(self, now: float) -> None:
        self._scheduled = False
        self._assignment.count_handed_out()
        if self._assignment.hand_out.is_counting:
            # The reader does not tell how far it has come: look again.
            self.schedule(now)
        self._maps.look()
        self.flush(now)

    def flush(self, now: float) -> None:
        """Commit everything that is owed as soon as the one in flight is answered."""
        self._due = True
        self._send(now)

    # --- the user's requests ---------------------------------------------------------------------

    def request(
        self,
        now: float,
        ticket: int,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None,
    ) -> None:
        """Answer ``ticket`` when everything that counts now (or ``offsets``) is acknowledged."""
        if offsets is None:
            offsets = self._returned() if self._manual else None
        concerned = self._assignment.live()
        if offsets is not None:
            gone = [tp for tp in offsets if tp not in self._assignment]
            if gone:
                self._outbox.put(Complete(ticket, error=PartitionLostError(gone)))
                return
            concerned = [i for tp in offsets if (i := self._assignment.get(tp)) is not None]
            for instance in concerned:
                self._requested.request(instance, offsets[instance.partition])
        flight, needs = self._flight, dict[PartitionInstance, int]()
        for instance in concerned:
            entry = self.entry(instance)
            if entry is None:
                continue
            if flight is not None and flight.entries.get(instance) == entry:
                needs[instance] = flight.number
            else:
                needs[instance] = self._sent + 1
                self._refused.end_wait(now, instance)
        if self._waiters.add(Waiter(ticket, needs)):
            self.flush(now)

    def _returned(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {
            instance.partition: OffsetAndMetadata(ledger.position, "", ledger.position_epoch)
            for instance in self._assignment.live()
            if (ledger := instance.ledger) is not None and ledger.position != instance.acked
        }

    def _satisfied(self, instance: PartitionInstance, number: int) -> bool:
        return self._acked.get(instance, 0) >= number or self.entry(instance) is None

    def fail_waiters(self, error: Exception) -> None:
        """Nothing more will be committed: every waiting request ends with ``error``."""
        self._waiters.fail(error)

    def forget(self, instance: PartitionInstance) -> None:
        """The instance has ended: nothing of it will be sent any more."""
        is_acknowledged = instance.state is State.RELEASED and self._owed(instance) is None
        self._waiters.ended(instance, acknowledged=is_acknowledged)
        self._requested.forget(instance)
        self._acked.pop(instance, None)
        self._doubts.forget(instance)
        self._refused.forget(instance)
        self._unknown_topics.forget(instance)
        self._maps.forget(instance)

    # --- sending ---------------------------------------------------------------------------------

    def _send(self, now: float) -> None:
        membership = self.membership
        if (
            not self._due
            or self._flight is not None
            or self._doubts.asking
            or membership is None
            or not membership.may_commit
            or self._outbox.has_timer(_RETRY_TIMER)
        ):
            return
        node = self._coordinator.node
        if node is None:
            self._coordinator.call_when_known("commit", self._send, now)
            return
        entries = {
            instance: entry
            for instance in self._assignment.live()
            if not self._refused.has_to_wait(now, instance)
            and not self._unknown_topics.has_to_wait(now, instance)
            and (entry := self.entry(instance)) is not None
        }
        self._due = False
        if not entries:
            self._waiters.check()
            self._doubts.verify(now, idle=True)
            return
        stamp = membership.stamp
        self._sent += 1
        flushing = frozenset(i for i in entries if i.state is State.RV_FLUSH)
        self._flight = _Flight(self._sent, node, stamp, now, entries, flushing)
        self._outbox.send(
            OffsetCommitRequest(
                group_id=stamp.group_id,
                generation=stamp.generation,
                member_id=stamp.member_id,
                group_instance_id=stamp.group_instance_id,
                entries=tuple(entries.values()),
                topic_ids=self.topic_ids(instance.partition for instance in entries),
            ),
            node,
            Channel.COMMIT,
            self._config.request_timeout,
            self._answered,
        )

    def kick(self, now: float) -> None:
        """The membership may commit (again): send what is owed."""
        self._outbox.cancel_timer(_RETRY_TIMER)
        self.flush(now)

    def _answered(self, now: float, reply: Reply) -> None:
        flight = self._flight
        if flight is None:  # pragma: no cover - an answer comes once, to the one in flight
            return
        self._flight = None
        match reply:
            case OffsetCommitResponse(errors=errors):
                self.slowest = max(self.slowest * 0.99, now - flight.sent_at)
                self._judge(now, flight, dict(errors))
            case Failed(kind=FailureKind.AUTHENTICATION, detail=detail):
                self.on_error(now, AuthenticationError(detail))
            case Failed(kind=FailureKind.UNSUPPORTED, detail=detail):
                self.on_error(now, UnsupportedVersionError(detail))
            case Failed(kind=kind, detail=detail):
                if kind is not FailureKind.UNREACHABLE:
                    for instance in flight.entries:
                        self._doubts.add(instance)
                self._coordinator.unanswered(now, f"commit: {detail or kind.value}", flight.node)
                self._again(now)
            case _:
                self.on_error(now, FatalError(f"unexpected answer {type(reply).__name__}"))

    def _judge(self, now: float, flight: _Flight, errors: dict[TopicPartition, ErrorCode]) -> None:
        verdicts: dict[Verdict, ErrorCode] = {}
        acked: list[PartitionInstance] = []
        given_up: list[tuple[PartitionInstance, PartitionsError]] = []
        for instance, entry in flight.entries.items():
            # A partition that the answer leaves out is treated as a lost answer.
            error = errors.get(instance.partition, ErrorCode.network_exception)
            verdict = VERDICTS.get(error, Verdict.REFUSED)
            verdicts.setdefault(verdict, error)
            if instance.terminal:
                continue
            if verdict is Verdict.OK:
                self._acknowledge(now, flight, instance, entry)
                acked.append(instance)
            elif verdict is Verdict.AMBIGUOUS:
                self._doubts.add(instance)
            elif verdict is Verdict.UNKNOWN_TOPIC:
                self._unknown_topics.add(now, instance)
            elif verdict is Verdict.TOO_LARGE and not self._strip(instance, entry):
                verdict = Verdict.REFUSED
            if verdict is Verdict.REFUSED:
                problem = self._refuse(now, flight, instance, error)
                if problem is not None:
                    given_up.append((instance, problem))
        if acked:
            self._backoff = _FIRST_BACKOFF
            self._outbox.emit(
                "debug",
                "committed",
                offsets={
                    f"{i.partition.topic}-{i.partition.partition}": flight.entries[i].offset
                    for i in acked
                },
                seconds=round(now - flight.sent_at, 4),
            )
        self._follow(now, flight, verdicts)
        self._waiters.check()
        self._doubts.verify(now)
        if acked:
            self.on_acknowledged(now, acked)
        for instance, problem in given_up:
            self.on_refused(now, instance, problem)
        if self._doubts.pending:
            self.schedule(now)
        self._send(now)

    def _acknowledge(
        self, now: float, flight: _Flight, instance: PartitionInstance, entry: CommitEntry
    ) -> None:
        self._unknown_topics.forget(instance)
        self._refused.accepted(now, instance)
        self._requested.acknowledged(instance, entry)
        instance.acked = entry.offset
        instance.acked_map = entry.metadata
        self._acked[instance] = flight.number
        # If something else counts by now, that is owed because it differs from this.
        instance.commit_owed = False

    def _strip(self, instance: PartitionInstance, entry: CommitEntry) -> bool:
        """Commit again with less metadata; False if there is nothing left to leave out."""
        if not entry.metadata:
            return False
        if self._manual:
            self._requested.leave_out_metadata(instance)
        else:
            self._maps.too_large(instance, entry.metadata)
        self._due = True
        return True

    def _refuse(
        self, now: float, flight: _Flight, instance: PartitionInstance, error: ErrorCode
    ) -> PartitionsError | None:
        """Tell whoever waits for it. Returns the error if it is not to be committed again."""
        problem, entry = refusal(instance, error), flight.entries[instance]
        self._waiters.refuse(instance, flight.number, problem)
        if self._manual:
            goes_on = self._requested.refused(instance, entry, error.name)
            if not goes_on:
                self._doubts.forget(instance)
        else:
            goes_on = self._refused.add(now, instance, error, instance in flight.flushing)
        if self._waiters.needs(instance):
            # Somebody has asked for more than what was refused.
            self._refused.end_wait(now, instance)
        self._due = self._due or not self._refused.has_to_wait(now, instance)
        return None if goes_on else problem

    def _follow(self, now: float, flight: _Flight, verdicts: dict[Verdict, ErrorCode]) -> None:
        membership = self.membership
        if membership is None:  # pragma: no cover - nothing is sent without a membership
            return
        if Verdict.FATAL in verdicts:
            error = verdicts[Verdict.FATAL]
            if error is ErrorCode.group_authorization_failed:
                self.on_error(
                    now,
                    GroupAuthorizationError(
                        f"not authorized to commit for group {flight.stamp.group_id!r}"
                    ),
                )
            else:
                self.on_error(now, UnsupportedVersionError(f"commit refused: {error.name}"))
        elif Verdict.FENCED in verdicts:
            if membership.is_verdict(flight.stamp, flight.sent_at):
                membership.refused(now, verdicts[Verdict.FENCED])
            else:
                self._again(now)
        elif Verdict.MEMBERSHIP in verdicts:
            if membership.is_verdict(flight.stamp, flight.sent_at):
                membership.refused(now, verdicts[Verdict.MEMBERSHIP])
            else:
                self._again(now)
        elif Verdict.COORDINATOR in verdicts or Verdict.AMBIGUOUS in verdicts:
            why = "commit answered by a broker that does not coordinate"
            self._coordinator.unknown(now, why, flight.node)
            self._again(now)
        elif Verdict.REBALANCE in verdicts:
            self._again(now)
            if flight.stamp == membership.stamp:
                membership.rebalance_seen(now)
        elif Verdict.RETRY in verdicts:
            self._again(now)
        if Verdict.UNKNOWN_TOPIC in verdicts:
            self.on_unknown_topic(now)

    def _again(self, now: float) -> None:
        self._due = True
        self._outbox.set_timer(
            _RETRY_TIMER, now + self._backoff, self._send, spread=self._backoff / 2
        )
        self._backoff = min(self._backoff * 2, _LONGEST_BACKOFF)

    def _verified(
        self,
        now: float,
        certain: list[PartitionInstance],
        rewound: list[PartitionInstance],
        answered: bool,
    ) -> None:
        for instance in rewound:
            self._requested.rewound(instance)
        if certain:
            self.on_acknowledged(now, certain)
        if answered:
            # What was rewound goes at once: whoever closes may not be a member for long.
            self._due = self._due or bool(rewound)
            self._send(now)
        else:
            self._again(now)
