"""Committing offsets: one OffsetCommit in flight, coalesced, and each error with its meaning.

Commits travel while a JoinGroup is parked, so the broker may judge one against a generation that
its own JoinGroup has just ended. Such a verdict is *stale*: it counts only if the membership that
was sent is still the current one and no join or sync is outstanding (``Membership.is_verdict``).

After an ambiguous outcome the partition stays dirty, is committed again, and is in doubt
(:mod:`.commit_doubts`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from asyncrevoke.core.commit_doubts import CommitDoubts
from asyncrevoke.core.commit_verdict import VERDICTS, Verdict
from asyncrevoke.core.commit_waiters import CommitWaiters, Waiter
from asyncrevoke.core.effects import Channel, Complete, Failed, FailureKind, Node
from asyncrevoke.core.partition import PartitionInstance
from asyncrevoke.core.unknown_topics import UnknownTopics
from asyncrevoke.errors import (
    AuthenticationError,
    BrokerError,
    FatalError,
    GroupAuthorizationError,
    PartitionLostError,
    PartitionsError,
    TopicAuthorizationError,
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
    from asyncrevoke.core.assignment import Assignment
    from asyncrevoke.core.completion_maps import CompletionMaps
    from asyncrevoke.core.coordinator import Coordinator
    from asyncrevoke.core.outbox import Outbox, Reply

_TIMER = "commit"
_RETRY_TIMER = "commit-retry"
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
    node: Node
    stamp: GroupMetadata
    sent_at: float
    entries: dict[PartitionInstance, CommitEntry]
    sequences: dict[PartitionInstance, int]


class Commits:
    """Commits what counts, when it is due: at the interval, at a revoke, on request, at the end."""

    def __init__(
        self,
        outbox: Outbox,
        config: ConsumerConfig,
        coordinator: Coordinator,
        assignment: Assignment,
        maps: CompletionMaps,
    ) -> None:
        self._outbox = outbox
        self._config = config
        self._coordinator = coordinator
        self._assignment = assignment
        self._maps = maps
        self._manual = config.commit_mode == "manual"
        self.membership: Membership | None = None
        self.on_acknowledged: Callable[[float, list[PartitionInstance]], None] = (
            lambda _now, _instances: None
        )
        self.on_refused: Callable[[float, PartitionInstance, str], None] = (
            lambda _now, _instance, _reason: None
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
        # Manual mode: what the user asked to commit, and a number that grows with each request.
        self._wanted: dict[PartitionInstance, OffsetAndMetadata] = {}
        self._sequence: dict[PartitionInstance, int] = {}
        self._last: dict[PartitionInstance, OffsetAndMetadata] = {}
        self._acked_sequence: dict[PartitionInstance, int] = {}
        self._refused: dict[PartitionInstance, None] = {}
        self._unknown_topics = UnknownTopics(outbox, self.flush)
        self.slowest = 0.0

    # --- what is owed ----------------------------------------------------------------------------

    def entry(self, instance: PartitionInstance) -> CommitEntry | None:
        """What is to be committed for this instance now, None if the broker holds it already."""
        if not instance.can.commit or self._config.group_id is None:
            return None
        if self._manual:
            wanted = self._wanted.get(instance)
            if wanted is None:
                return None
            return CommitEntry(
                partition=instance.partition,
                offset=wanted.offset,
                leader_epoch=wanted.leader_epoch,
                metadata=wanted.metadata,
            )
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
        if instance in self._refused:
            return True
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
        if offsets is None:
            needs = {
                instance: entry.offset
                for instance in self._assignment.live()
                if (entry := self.entry(instance)) is not None
            }
            self._add_waiter(now, Waiter(ticket, needs, by_sequence=False))
            return
        gone = [tp for tp in offsets if tp not in self._assignment]
        if gone:
            self._outbox.put(Complete(ticket, error=PartitionLostError(gone)))
            return
        sequences: dict[PartitionInstance, int] = {}
        for tp, offset in offsets.items():
            instance = self._assignment.get(tp)
            if instance is not None:
                self._wanted[instance] = offset
                self._sequence[instance] = self._sequence.get(instance, 0) + 1
                sequences[instance] = self._sequence[instance]
                self._refused.pop(instance, None)
        self._add_waiter(now, Waiter(ticket, sequences, by_sequence=True))

    def _returned(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {
            instance.partition: OffsetAndMetadata(ledger.position, "", ledger.position_epoch)
            for instance in self._assignment.live()
            if (ledger := instance.ledger) is not None and ledger.position != instance.acked
        }

    def _add_waiter(self, now: float, waiter: Waiter) -> None:
        if self._waiters.add(waiter):
            self.flush(now)

    def _satisfied(self, instance: PartitionInstance, needed: int, by_sequence: bool) -> bool:
        if by_sequence:
            return self._acked_sequence.get(instance, 0) >= needed
        if self.entry(instance) is None:
            return True
        return instance.acked is not None and instance.acked >= needed and not instance.commit_owed

    def fail_waiters(self, error: Exception) -> None:
        """Nothing more will be committed: every waiting request ends with ``error``."""
        self._waiters.fail(error)

    def forget(self, instance: PartitionInstance) -> None:
        """The instance has ended: nothing of it will be sent any more."""
        for table in (self._wanted, self._last, self._sequence, self._acked_sequence):
            table.pop(instance, None)
        self._doubts.forget(instance)
        self._refused.pop(instance, None)
        self._unknown_topics.forget(instance)
        self._maps.forget(instance)
        self._waiters.check()

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
            if instance not in self._refused
            and not self._unknown_topics.has_to_wait(now, instance)
            and (entry := self.entry(instance)) is not None
        }
        self._due = False
        if not entries:
            self._doubts.verify(now, idle=True)
            return
        stamp = membership.stamp
        self._flight = _Flight(node, stamp, now, entries, dict(self._sequence))
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
                self._coordinator.unknown(now, f"commit: {detail or kind.value}")
                self._again(now)
            case _:
                self.on_error(now, FatalError(f"unexpected answer {type(reply).__name__}"))

    def _judge(self, now: float, flight: _Flight, errors: dict[TopicPartition, ErrorCode]) -> None:
        verdicts: dict[Verdict, ErrorCode] = {}
        acked: list[PartitionInstance] = []
        for instance, entry in flight.entries.items():
            # A partition that the answer leaves out is treated as a lost answer.
            error = errors.get(instance.partition, ErrorCode.network_exception)
            verdict = VERDICTS.get(error, Verdict.REFUSED)
            verdicts.setdefault(verdict, error)
            if instance.terminal:
                continue
            if verdict is Verdict.OK:
                self._acknowledge(flight, instance, entry)
                acked.append(instance)
            elif verdict is Verdict.AMBIGUOUS:
                self._doubts.add(instance)
            elif verdict is Verdict.UNKNOWN_TOPIC:
                self._unknown_topics.add(now, instance)
            elif verdict is Verdict.TOO_LARGE:
                self._strip(now, instance, entry)
            elif verdict is Verdict.REFUSED:
                self._refuse(now, instance, error)
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
        if self._doubts.pending:
            self.schedule(now)
        self._send(now)

    def _acknowledge(
        self, flight: _Flight, instance: PartitionInstance, entry: CommitEntry
    ) -> None:
        self._unknown_topics.forget(instance)
        instance.acked = entry.offset
        instance.acked_map = entry.metadata
        sequence = flight.sequences.get(instance, 0)
        self._acked_sequence[instance] = sequence
        if self._manual and self._sequence.get(instance, 0) == sequence:
            wanted = self._wanted.pop(instance, None)
            if wanted is not None:
                self._last[instance] = wanted
        ledger = instance.ledger
        if ledger is not None and ledger.commit_point >= entry.offset:
            instance.commit_owed = False

    def _strip(self, now: float, instance: PartitionInstance, entry: CommitEntry) -> None:
        wanted = self._wanted.get(instance)
        if not entry.metadata:
            # There is nothing left to leave out; the broker's limits may change.
            self._again(now)
            return
        if not self._manual:
            self._maps.too_large(instance, entry.metadata)
        if wanted is not None:
            self._outbox.emit(
                "error",
                "commit metadata too large",
                size=len(wanted.metadata),
                partition=str(instance),
            )
            self._wanted[instance] = wanted._replace(metadata="")
        self._due = True

    def _refuse(self, now: float, instance: PartitionInstance, error: ErrorCode) -> None:
        self._refused[instance] = None
        problem: PartitionsError
        if error is ErrorCode.topic_authorization_failed:
            problem = TopicAuthorizationError([instance.partition])
        else:
            problem = PartitionsError(
                [instance.partition],
                f"{instance.partition.topic}-{instance.partition.partition}: "
                f"the broker refuses to commit it: {error.name}",
            )
        self._waiters.refuse(instance, problem)
        self.on_error(now, problem)
        self.on_refused(now, instance, f"commit refused: {error.name}")

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
                self.on_error(now, BrokerError(f"commit refused: {error.name}", int(error)))
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
            self._coordinator.unknown(now, "commit answered by a broker that does not coordinate")
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
            if instance in self._last:
                self._wanted.setdefault(instance, self._last[instance])
        if certain:
            self.on_acknowledged(now, certain)
        if answered:
            # What was rewound goes at once: whoever closes may not be a member for long.
            self._due = self._due or bool(rewound)
            self._send(now)
        else:
            self._again(now)
