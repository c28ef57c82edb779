"""Commits offsets: one OffsetCommit in flight, and each error with its meaning.

While the coordinator delays a JoinGroup, a commit may be rejected for a generation that this
JoinGroup has just ended. Such an error counts only if the identity that was sent is the current one
and no join or sync is outstanding (:meth:`.CommitterMembership.is_current_membership`).

A commit without a response is sent again, and the broker is asked for its offsets
(:mod:`.unverified_commits`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.backoff import Backoff
from asyncrevoke.client.core.commit.error_table import COMMIT_ERRORS, CommitErrorAction
from asyncrevoke.client.core.commit.rejected_commits import (
    PartitionBackoff,
    RejectedCommits,
    commit_error,
)
from asyncrevoke.client.core.commit.unverified_commits import ReadBack, UnverifiedCommits
from asyncrevoke.client.core.commit.user_commits import CommitWaiters, RequestedOffsets, Waiter
from asyncrevoke.client.core.io.effects import Channel, CompleteRequest, Failed, FailureKind, Node
from asyncrevoke.client.core.io.fatal_error import FATAL_FAILURES, fatal_error
from asyncrevoke.client.core.io.wait_log import WaitLog
from asyncrevoke.client.core.partition.instance import InstanceState, PartitionInstance
from asyncrevoke.client.errors import (
    FatalError,
    GroupAuthorizationError,
    PartitionLostError,
    PartitionsError,
    UnsupportedVersionError,
)
from asyncrevoke.client.model import GroupMetadata, OffsetAndMetadata, TopicPartition, Value
from asyncrevoke.client.protocol.messages import (
    CommitEntry,
    ErrorCode,
    OffsetCommitRequest,
    OffsetCommitResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.commit.committed_maps import CommittedMaps
    from asyncrevoke.client.core.commit.reactions import CommitReactions
    from asyncrevoke.client.core.io.outbox import Outbox, Reply
    from asyncrevoke.client.core.metadata.cluster import ClusterMetadata
    from asyncrevoke.client.core.metadata.coordinator import Coordinator
    from asyncrevoke.client.core.partition.assignment import Assignment

_TIMER = "commit"
RETRY_TIMER = "commit-retry"
_UNKNOWN_TOPIC_TIMER = "commit-unknown-topic"
_FIRST_BACKOFF = 0.05
_LONGEST_BACKOFF = 2.0
_WAIT = "commit"
# These pass by themselves, or never.
_DELAYS = (
    CommitErrorAction.RETRY,
    CommitErrorAction.AMBIGUOUS,
    CommitErrorAction.COORDINATOR,
    CommitErrorAction.UNKNOWN_TOPIC,
)


class InFlightCommit(Value, frozen=True):
    """The commit that has no response yet."""

    number: int
    node: Node
    member_identity: GroupMetadata
    sent_at: float
    entries: dict[PartitionInstance, CommitEntry]
    # Those that wait only for this commit to be released.
    flushing: frozenset[PartitionInstance]


class Committer:
    """Commits when it is due: at the interval, at a revocation, on request, at the end."""

    def __init__(
        self,
        outbox: Outbox,
        config: ConsumerConfig,
        cluster: ClusterMetadata,
        coordinator: Coordinator,
        assignment: Assignment,
        maps: CommittedMaps,
        requested: RequestedOffsets,
        reactions: CommitReactions,
    ) -> None:
        self._outbox = outbox
        self._config = config
        self._cluster = cluster
        self._coordinator = coordinator
        self._assignment = assignment
        self._maps = maps
        self._read_back = ReadBack(outbox, config, cluster, maps)
        self._requested = requested
        self._reactions = reactions
        self._manual = config.commit_mode == "manual"
        self._unverified = UnverifiedCommits(outbox, self._read_back, coordinator, self)
        self._in_flight: InFlightCommit | None = None
        self._due = False
        self._scheduled = False
        self._backoff = Backoff(_FIRST_BACKOFF, _LONGEST_BACKOFF)
        self.waiters = CommitWaiters(outbox, self)
        # The number of OffsetCommits sent, and of the last one acknowledged for each instance.
        self._sent = 0
        self._acknowledged_commits: dict[PartitionInstance, int] = {}
        self._rejected = RejectedCommits(outbox, self)
        self._log = WaitLog(outbox)
        # The last error of a commit that is sent again; empty after an acknowledged one.
        self._delayed_by = ""
        # The coordinator does not know these topics yet, or they were deleted.
        self._unknown_topics = PartitionBackoff(
            outbox,
            self,
            timer=_UNKNOWN_TOPIC_TIMER,
            first=_FIRST_BACKOFF,
            longest=_LONGEST_BACKOFF,
        )
        self.slowest = 0.0

    # --- what to commit --------------------------------------------------------------------------

    def entry(self, instance: PartitionInstance) -> CommitEntry | None:
        """What to commit for this instance now, None if the broker holds it already."""
        return self._owed(instance) if instance.can.commit else None

    def _owed(self, instance: PartitionInstance) -> CommitEntry | None:
        if self._config.group_id is None:
            return None
        if self._manual:
            return self._requested.entry(instance)
        tracker = instance.tracker
        if tracker is None:
            return None
        point = tracker.commit_point
        finished = self._maps.metadata(instance, tracker)
        if (
            point == instance.committed_offset
            and finished == instance.committed_map
            and not instance.commit_required
        ):
            return None
        return CommitEntry(
            partition=instance.partition,
            offset=point,
            leader_epoch=tracker.commit_epoch,
            metadata=finished,
        )

    def is_acknowledged(self, instance: PartitionInstance) -> bool:
        """Whether nothing of it is to be committed, in flight or unverified."""
        if self._in_flight is not None and instance in self._in_flight.entries:
            return False
        return self.entry(instance) is None and instance not in self._unverified

    def schedule(self, now: float) -> None:
        """Commit within the interval. Cheap to call again."""
        if not self._scheduled:
            self._scheduled = True
            self._outbox.set_timer(_TIMER, now + self._config.commit_interval, self._interval)

    def _interval(self, now: float) -> None:
        self._scheduled = False
        self._assignment.complete_read()
        if self._assignment.reader_records.is_counting:
            # The reader does not report its progress: look again.
            self.schedule(now)
        self._maps.resume_delivery()
        self.flush(now)

    def flush(self, now: float) -> None:
        """Commit everything that is owed as soon as no commit is in flight."""
        self._due = True
        self._send(now)

    # --- requests of the user --------------------------------------------------------------------

    def request(
        self,
        now: float,
        call_id: int,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None,
    ) -> None:
        """Complete the call when everything done by now (or ``offsets``) is acknowledged."""
        if offsets is None:
            offsets = self._returned() if self._manual else None
        concerned = self._assignment.live()
        if offsets is not None:
            gone = [tp for tp in offsets if tp not in self._assignment]
            if gone:
                self._outbox.put(CompleteRequest(call_id, error=PartitionLostError(gone)))
                return
            concerned = [i for tp in offsets if (i := self._assignment.get(tp)) is not None]
            for instance in concerned:
                self._requested.request(instance, offsets[instance.partition])
        sent, needs = self._in_flight, dict[PartitionInstance, int]()
        for instance in concerned:
            entry = self.entry(instance)
            if entry is None:
                continue
            if sent is not None and sent.entries.get(instance) == entry:
                needs[instance] = sent.number
            else:
                needs[instance] = self._sent + 1
                self._rejected.end_wait(now, instance)
        if self.waiters.add(Waiter(call_id, needs)):
            self.flush(now)

    def _returned(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {
            instance.partition: OffsetAndMetadata(tracker.position, "", tracker.position_epoch)
            for instance in self._assignment.live()
            if (tracker := instance.tracker) is not None
            and tracker.position != instance.committed_offset
        }

    def is_satisfied(self, instance: PartitionInstance, number: int) -> bool:
        """Whether the OffsetCommit ``number`` or a later one was acknowledged for this instance,
        or nothing of it is owed any more."""
        return self._acknowledged_commits.get(instance, 0) >= number or self.entry(instance) is None

    def forget(self, instance: PartitionInstance) -> None:
        """The instance has ended: commit nothing of it any more."""
        is_acknowledged = instance.state is InstanceState.RELEASED and self._owed(instance) is None
        self.waiters.ended(instance, acknowledged=is_acknowledged)
        self._requested.forget(instance)
        self._acknowledged_commits.pop(instance, None)
        self._unverified.forget(instance)
        self._rejected.forget(instance)
        self._unknown_topics.forget(instance)
        self._maps.forget(instance)

    # --- sending ---------------------------------------------------------------------------------

    def _send(self, now: float) -> None:
        membership = self._reactions.membership
        if (
            not self._due
            or self._in_flight is not None
            or self._unverified.verifying
            or not membership.may_commit
            or self._outbox.has_timer(RETRY_TIMER)
        ):
            return
        node = self._coordinator.node
        if node is None:
            self._coordinator.call_when_known("commit", self._send, now)
            return
        entries = {
            instance: entry
            for instance in self._assignment.live()
            if not instance.is_commit_withheld
            and not self._rejected.has_to_wait(now, instance)
            and not self._unknown_topics.has_to_wait(now, instance)
            and (entry := self.entry(instance)) is not None
        }
        self._due = False
        if not entries:
            self.waiters.check()
            self._unverified.verify(now, idle=True)
            return
        identity = membership.member_identity
        self._sent += 1
        flushing = frozenset(i for i in entries if i.state is InstanceState.COMMITTING)
        self._in_flight = InFlightCommit(self._sent, node, identity, now, entries, flushing)
        self._outbox.send(
            OffsetCommitRequest(
                group_id=identity.group_id,
                generation=identity.generation,
                member_id=identity.member_id,
                group_instance_id=identity.group_instance_id,
                entries=tuple(entries.values()),
                topic_ids=self._cluster.topic_ids(instance.partition for instance in entries),
            ),
            node,
            Channel.COMMIT,
            self._config.request_timeout,
            self._commit_response_received,
        )

    def call_without_transaction(self, now: float, function: Callable[[float], None]) -> None:
        """Call when no transaction has begun that has not ended."""
        function(now)

    def resume(self, now: float) -> None:
        """The membership may commit (again): send what is owed."""
        self._outbox.cancel_timer(RETRY_TIMER)
        self.flush(now)

    def _commit_response_received(self, now: float, reply: Reply) -> None:
        sent = self._in_flight
        if sent is None:  # pragma: no cover - a response comes once, to the one in flight
            return
        self._in_flight = None
        match reply:
            case OffsetCommitResponse(errors=errors):
                self.slowest = max(self.slowest * 0.99, now - sent.sent_at)
                self._handle_response(now, sent, dict(errors))
            case Failed() as failed if failed.kind in FATAL_FAILURES:
                self._reactions.failed(now, fatal_error(failed))
            case Failed(kind=kind, detail=detail):
                if kind is not FailureKind.UNREACHABLE:
                    for instance in sent.entries:
                        self._unverified.add(instance)
                self._coordinator.no_response(now, f"commit: {detail or kind.value}", sent.node)
                self._retry_later(now)
            case _:
                self._reactions.failed(
                    now, FatalError(f"unexpected response {type(reply).__name__}")
                )

    def _handle_response(
        self, now: float, sent: InFlightCommit, errors: dict[TopicPartition, ErrorCode]
    ) -> None:
        actions: dict[CommitErrorAction, ErrorCode] = {}
        acked: list[PartitionInstance] = []
        rejected: list[tuple[PartitionInstance, PartitionsError]] = []
        for instance, entry in sent.entries.items():
            # A partition that is missing in the response may or may not have been committed.
            error = errors.get(instance.partition, ErrorCode.network_exception)
            action = COMMIT_ERRORS.get(error, CommitErrorAction.REJECTED)
            actions.setdefault(action, error)
            if instance.terminal:
                continue
            if action in _DELAYS:
                self._delayed(now, error)
            if action is CommitErrorAction.OK:
                self._acknowledge(now, sent, instance, entry)
                acked.append(instance)
            elif action is CommitErrorAction.AMBIGUOUS:
                self._unverified.add(instance)
            elif action is CommitErrorAction.UNKNOWN_TOPIC:
                self._unknown_topics.add(now, instance)
            elif action is CommitErrorAction.TOO_LARGE and not self._shorten_metadata(
                instance, entry
            ):
                action = CommitErrorAction.REJECTED
            if action is CommitErrorAction.REJECTED:
                problem = self._reject(now, sent, instance, error)
                if problem is not None:
                    rejected.append((instance, problem))
        if acked:
            self._some_acknowledged(now, sent, acked)
        self._apply_actions(now, sent, actions)
        self.waiters.check()
        self._unverified.verify(now)
        if acked:
            self._reactions.commit_acknowledged(now, acked)
        for instance, problem in rejected:
            self._reactions.commit_rejected(now, instance, problem)
        if self._unverified.pending:
            self.schedule(now)
        self._send(now)

    def _acknowledge(
        self, now: float, sent: InFlightCommit, instance: PartitionInstance, entry: CommitEntry
    ) -> None:
        self._unknown_topics.forget(instance)
        self._rejected.accepted(now, instance)
        self._requested.acknowledged(instance, entry)
        instance.commit_acknowledged(entry.offset, entry.metadata)
        self._read_back.committed(sent.node, instance, entry)
        self._acknowledged_commits[instance] = sent.number

    def _some_acknowledged(
        self, now: float, sent: InFlightCommit, acked: list[PartitionInstance]
    ) -> None:
        self._backoff.succeeded()
        if self._delayed_by:
            self._delayed_by = ""
            self._log.over(now, _WAIT, log_events.COMMITS_ACCEPTED)
        self._outbox.emit(
            log_events.COMMITTED,
            offsets={str(i.partition): sent.entries[i].offset for i in acked},
            seconds=round(now - sent.sent_at, 4),
        )

    def _delayed(self, now: float, error: ErrorCode) -> None:
        """The commit is sent again: logged if that lasts."""
        if not self._delayed_by:
            self._log.watch(now, _WAIT, log_events.WAITING_FOR_COMMITS, self._why_delayed)
        self._delayed_by = error.name

    def _why_delayed(self) -> dict[str, object] | None:
        if not any(map(self.entry, self._assignment.live())):
            return None
        return {"reason": self._delayed_by}

    def _shorten_metadata(self, instance: PartitionInstance, entry: CommitEntry) -> bool:
        """Commit again with less metadata; False if it has none."""
        if not entry.metadata:
            return False
        if self._manual:
            self._requested.drop_metadata(instance)
        else:
            self._maps.too_large(instance, entry.metadata)
        self._due = True
        return True

    def _reject(
        self, now: float, sent: InFlightCommit, instance: PartitionInstance, error: ErrorCode
    ) -> PartitionsError | None:
        """Fail the waiting calls. Returns the error if it is not committed again."""
        problem, entry = commit_error(instance, error), sent.entries[instance]
        self.waiters.reject(instance, sent.number, problem)
        if self._manual:
            retries = self._requested.rejected(instance, entry, error.name)
            if not retries:
                self._unverified.forget(instance)
        else:
            retries = self._rejected.add(now, instance, error, instance in sent.flushing)
        if self.waiters.needs(instance):
            # A call waits for a later offset than the rejected one.
            self._rejected.end_wait(now, instance)
        self._due = self._due or not self._rejected.has_to_wait(now, instance)
        return None if retries else problem

    def _apply_actions(
        self, now: float, sent: InFlightCommit, actions: dict[CommitErrorAction, ErrorCode]
    ) -> None:
        """React to the errors of one response. If there are several, the gravest one decides."""
        membership = self._reactions.membership
        if CommitErrorAction.FATAL in actions:
            error = actions[CommitErrorAction.FATAL]
            if error is ErrorCode.group_authorization_failed:
                self._reactions.failed(
                    now,
                    GroupAuthorizationError(
                        f"not authorized to commit for group {sent.member_identity.group_id!r}"
                    ),
                )
            else:
                self._reactions.failed(
                    now, UnsupportedVersionError(f"commit rejected: {error.name}")
                )
        elif (
            rejection := actions.get(CommitErrorAction.FENCED)
            or actions.get(CommitErrorAction.MEMBERSHIP)
        ) is not None:
            if membership.is_current_membership(sent.member_identity, sent.sent_at):
                membership.rejected(now, rejection)
            else:
                self._retry_later(now)
        elif CommitErrorAction.COORDINATOR in actions or CommitErrorAction.AMBIGUOUS in actions:
            why = "a broker that does not coordinate the group responded to a commit"
            self._coordinator.mark_unknown(now, why, sent.node)
            self._retry_later(now)
        elif CommitErrorAction.REBALANCE in actions:
            self._retry_later(now)
            if sent.member_identity == membership.member_identity:
                membership.rebalance_seen(now)
        elif CommitErrorAction.RETRY in actions:
            self._retry_later(now)
        if CommitErrorAction.UNKNOWN_TOPIC in actions:
            self._reactions.commit_topic_unknown(now)

    def _retry_later(self, now: float) -> None:
        self._due = True
        delay = self._backoff.failed()
        self._outbox.set_timer(RETRY_TIMER, now + delay, self._send, spread=delay / 2)

    def verified(
        self,
        now: float,
        certain: list[PartitionInstance],
        rewound: list[PartitionInstance],
        complete: bool,
    ) -> None:
        """The broker holds the right offsets of ``certain``, and older ones of ``rewound``.
        ``complete``: whether the response has all of them."""
        for instance in rewound:
            self._requested.rewound(instance)
        if certain:
            self._reactions.commit_acknowledged(now, certain)
        if complete:
            # Commit rewound offsets at once: a member that closes may leave soon.
            self._due = self._due or bool(rewound)
            self._send(now)
        else:
            self._retry_later(now)
