"""Commits offsets in transactions only, together with the results of the records (KIP-447).

A record whose handler has ended is *finished*, and stays in flight until the transaction with its
results is committed: so a partition is released after that, and a completed record is one whose
results are visible. Which finished records a transaction may have follows from the offset and the
completion map that it can commit beside them:

- all records before the new commit point,
- those beyond it if the completion map has room for them, and all members read maps.

What a map has once listed as done stands in each later map, as results of it are visible.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from asyncrevoke.client import log_events
from asyncrevoke.client.core.commit.committer import RETRY_TIMER, Committer, InFlightCommit
from asyncrevoke.client.core.commit.error_table import COMMIT_ERRORS, CommitErrorAction
from asyncrevoke.client.core.commit.fitting_records import (
    Finished,
    TransactionRoom,
    kept_to,
    last_offset,
    offsets_of,
    that_fit,
    that_never_fit,
    whole_map,
)
from asyncrevoke.client.core.io.effects import Node, TransactionDue
from asyncrevoke.client.core.partition.completion_map import other_metadata, without_stop
from asyncrevoke.client.core.partition.instance import InstanceState, PartitionInstance
from asyncrevoke.client.model import GroupMetadata
from asyncrevoke.client.protocol.messages import CommitEntry, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from asyncrevoke.client.core.commit.returned_records import ReturnedRecords
    from asyncrevoke.client.core.partition.offset_tracker import OffsetTracker
    from asyncrevoke.client.core.partition.revocation import Revocation
    from asyncrevoke.client.errors import PartitionsError
    from asyncrevoke.client.model import TopicPartition

_UNKNOWN_NODE: Final = Node(-1, "", 0)


class ComposedOffsets(NamedTuple):
    """The offsets that a transaction commits with ``identity``, and the records that it completes.

    The others are by tracker id: ``completes`` has the offsets of these records, ``included`` the
    indices of the finished records that they are, and ``dropped`` the indices of those that no
    transaction can have, because their partition or their position is gone. Without ``entries``
    there is nothing to commit. ``batch``: it completes the records of the last poll result of
    these. ``is_delayed``: the commits of a partition were rejected, and are tried again later.
    """

    number: int
    identity: GroupMetadata
    composed_at: float
    entries: dict[PartitionInstance, CommitEntry]
    completes: dict[int, Sequence[int]]
    included: dict[int, Sequence[int]]
    dropped: dict[int, Sequence[int]]
    batch: tuple[PartitionInstance, ...] = ()
    is_delayed: bool = False

    def changed(self) -> dict[TopicPartition, CommitEntry]:
        """The entries that differ from what was committed before, of partitions that are not lost:
        the committed offsets say by them whether the transaction was committed."""
        return {
            instance.partition: entry
            for instance, entry in self.entries.items()
            if not instance.terminal
            and (entry.offset, entry.metadata)
            != (instance.committed_offset, instance.committed_map)
        }


class TransactionalCommitter(Committer):
    """The committer of ``processing="exactly_once"``: it asks for a transaction, one at a time,
    where the other one sends a request.

    Who writes transactions calls :meth:`begin_transaction`, and when that returns entries,
    :meth:`transaction_committed` or :meth:`transaction_aborted`.
    """

    _composed: ComposedOffsets | None = None
    _when_ended: Callable[[float], None] | None = None
    _revocation: Revocation
    _returned_records: ReturnedRecords
    # The last state of a partition in which none of its finished records fitted: another partition
    # that commits often costs no search in this one.
    _none_fitted: dict[PartitionInstance, tuple[object, ...]]

    def compose_with(self, revocation: Revocation, returned_records: ReturnedRecords) -> None:
        """Set the parts that are made after this one."""
        self._revocation = revocation
        self._returned_records = returned_records
        self._none_fitted = {}

    def forget(self, instance: PartitionInstance) -> None:
        """The instance has ended: commit nothing of it any more."""
        super().forget(instance)
        self._none_fitted.pop(instance, None)

    # --- what to commit --------------------------------------------------------------------------

    def _owed(self, instance: PartitionInstance) -> CommitEntry | None:
        if self._config.group_id is None or instance.tracker is None:
            return None
        return self._entry_of(instance, instance.tracker)

    def is_acknowledged(self, instance: PartitionInstance) -> bool:
        """Whether nothing of it is to be committed, or is in a transaction that has not ended."""
        if self._composed is not None and instance in self._composed.entries:
            return False
        return self.entry(instance) is None

    def _entry_of(
        self,
        instance: PartitionInstance,
        tracker: OffsetTracker,
        metadata: str | None = None,
        *,
        force: bool = False,
    ) -> CommitEntry | None:
        """What to commit for a state of its tracker, whose completion map is ``metadata`` if it is
        known; None if the broker holds it. ``force``: also then, with other metadata that means the
        same: committed offsets say whether a transaction was committed."""
        if metadata is None:
            metadata = whole_map(tracker)
        point, held = tracker.commit_point, instance.committed_map
        is_held = point == instance.committed_offset and metadata == without_stop(held)
        if metadata is None or (is_held and not (force or instance.commit_required)):
            return None
        if is_held:
            metadata = other_metadata(held) if force else held
        return CommitEntry(
            partition=instance.partition,
            offset=point,
            leader_epoch=tracker.commit_epoch,
            metadata=metadata,
        )

    # --- transactions ----------------------------------------------------------------------------

    def records_finished(self, now: float, waiting: int, *, urgent: bool) -> None:
        """``waiting`` finished records are in no committed transaction. They use no capacity.
        ``urgent``: begin a transaction at once; a revocation that waits for them needs it, too."""
        self._returned_records.set_finished(now, waiting)
        if urgent or (waiting and self._revocation.is_under_way):
            self.flush(now)
        elif waiting:
            self.schedule(now)

    def _interval(self, now: float) -> None:
        self._scheduled = False
        self._assignment.complete_read()
        self.flush(now)

    def _send(self, now: float) -> None:  # noqa: ARG002 - as the base class
        if (
            self._due
            and self._composed is None
            and self._reactions.membership.may_commit
            and not self._outbox.has_timer(RETRY_TIMER)
        ):
            self._due = False
            self._outbox.put(TransactionDue())

    def begin_transaction(
        self,
        now: float,
        finished: Mapping[int, Sequence[Finished]],
        *,
        with_batch: bool = False,
        room: TransactionRoom | None = None,
    ) -> ComposedOffsets | None:
        """What the next transaction commits, of these finished records by tracker id, with those of
        a tracker in order; ``with_batch``: and all records of the last poll result that no task
        runs. ``room``: how many of them it takes, None: all.

        None if none can begin now: another :class:`TransactionDue` follows when it can.
        """
        membership = self._reactions.membership
        if self._composed is not None or not membership.may_commit:
            self._due = True
            return None
        batch: tuple[PartitionInstance, ...] = ()
        if with_batch:
            batch = tuple(i for i in self._returned_records.last_batch() if not i.terminal)
            if any(self._rejected.has_to_wait(now, instance) for instance in batch):
                # Its results would be visible without this offset. A timer ends the wait.
                return None
        live = [instance for instance in self._assignment.live() if instance.can.commit]
        ready = [i for i in live if not self._rejected.has_to_wait(now, i)]
        composed = ComposedOffsets(
            self._sent + 1,
            membership.member_identity,
            now,
            {},
            {},
            {},
            {},
            batch,
            is_delayed=len(ready) < len(live),
        )
        sources: dict[PartitionInstance, Mapping[int, Sequence[Finished]]] = {}
        for tracker_id, groups in finished.items():
            instance = self._assignment.instance_of(tracker_id)
            if instance is None:
                composed.dropped[tracker_id] = range(len(groups))
            else:
                sources[instance] = {**sources.get(instance, {}), tracker_id: groups}
        if room is None:
            for instance in ready:
                self._compose(composed, instance, sources.get(instance, {}))
        else:
            self._compose_within(composed, ready, sources, room)
        if composed.entries:
            self._sent += 1
            self._composed = composed
        else:
            self.waiters.check()
        return composed

    def _compose_within(
        self,
        composed: ComposedOffsets,
        ready: list[PartitionInstance],
        sources: Mapping[PartitionInstance, Mapping[int, Sequence[Finished]]],
        room: TransactionRoom,
    ) -> None:
        """Add what there is room for; the partitions that have waited longest come first."""
        # So many finished records may be other ones in the next transaction.
        self._none_fitted.clear()
        ready.sort(key=lambda instance: self._acknowledged_commits.get(instance, 0))
        for instance in ready:
            offered = room.offer(sources.get(instance, {}))
            self._compose(composed, instance, offered)
            included = {t: composed.included[t] for t in offered if t in composed.included}
            room.take(included, sum(len(composed.completes[t]) for t in included))

    def _compose(
        self,
        composed: ComposedOffsets,
        instance: PartitionInstance,
        sources: Mapping[int, Sequence[Finished]],
    ) -> None:
        """Add what can be committed of one partition."""
        tracker = instance.tracker
        if tracker is None:
            return
        own = sources.get(tracker.tracker_id, ())
        # Of former positions: those that the present tracker counts, and the others.
        kept: list[tuple[int, int, Finished]] = []
        others: list[tuple[int, int, Finished]] = []
        for tracker_id, former in sources.items():
            if tracker_id == tracker.tracker_id:
                continue
            end = kept_to(instance, tracker_id, tracker)
            for index, group in enumerate(former):
                (kept if last_offset(group) < end else others).append((tracker_id, index, group))
        groups = [*own, *(group for _, _, group in kept)] if kept else own
        if instance in composed.batch:
            tracker = tracker.preview()
            tracker.complete_pending()
        limit = self._maps.limit if self._revocation.maps_are_read else 0
        after, chosen, metadata = self._that_fit(instance, tracker, groups, limit)
        self._maps.left_waiting(instance, tracker, len(groups) - len(chosen))
        included, dropped = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
        if kept:
            for tracker_id, index, _ in (kept[n - len(own)] for n in chosen if n >= len(own)):
                included[tracker_id].append(index)
            chosen = [index for index in chosen if index < len(own)]
        for tracker_id, index, group in others:
            # Of a position that is not the present one: results of records below it are visible.
            is_passed = last_offset(group) < after.commit_point
            (included if is_passed else dropped)[tracker_id].append(index)
        if stuck := that_never_fit(instance, own, chosen):
            dropped[tracker.tracker_id] = stuck
            self._none_fitted.pop(instance, None)
        composed.dropped.update(dropped)
        for tracker_id, indices in (*included.items(), (tracker.tracker_id, chosen)):
            if indices:
                composed.included[tracker_id] = indices
                composed.completes[tracker_id] = offsets_of(sources[tracker_id], indices)
        entry = self._entry_of(instance, after, metadata, force=bool(chosen or included))
        if entry is not None:
            composed.entries[instance] = entry

    def _that_fit(
        self,
        instance: PartitionInstance,
        tracker: OffsetTracker,
        groups: Sequence[Finished],
        limit: int,
    ) -> tuple[OffsetTracker, Sequence[int], str | None]:
        state = (tracker.tracker_id, tracker.progress, len(groups), limit)
        if groups and self._none_fitted.get(instance) == state:
            return tracker, (), None
        fitting = that_fit(tracker, groups, limit)
        self._none_fitted[instance] = () if fitting[1] else state
        return fitting

    def renewed_identity(
        self, now: float, composed: ComposedOffsets, rejected: GroupMetadata
    ) -> GroupMetadata | None:
        """The identity to send the offsets with, as the group coordinator has rejected the
        generation or epoch of this one. None if no other follows, and after a loss."""
        if any(instance.terminal for instance in composed.entries):
            return None
        return self._reactions.membership.renewed_identity(now, rejected)

    def call_without_transaction(self, now: float, function: Callable[[float], None]) -> None:
        """Call when no transaction has begun that has not ended."""
        if self._composed is None:
            function(now)
        else:
            self._when_ended = function

    def _transaction_ended(self, now: float) -> None:
        self._composed = None
        function, self._when_ended = self._when_ended, None
        if function is not None:
            function(now)

    def transaction_committed(self, now: float, composed: ComposedOffsets) -> None:
        """The transaction is committed: its records are completed."""
        self._transaction_ended(now)
        self._backoff.succeeded()
        self.slowest = max(self.slowest * 0.99, now - composed.composed_at)
        acked: list[PartitionInstance] = []
        for instance, entry in composed.entries.items():
            if not instance.terminal:
                self._rejected.accepted(now, instance)
                instance.commit_acknowledged(entry.offset, entry.metadata)
                self._acknowledged_commits[instance] = composed.number
                acked.append(instance)
        self._outbox.emit(
            log_events.COMMITTED,
            offsets={str(i.partition): entry.offset for i, entry in composed.entries.items()},
            seconds=round(now - composed.composed_at, 4),
        )
        self._returned_records.complete_offsets(now, composed.completes)
        for instance in composed.batch:
            if not instance.terminal:
                self._assignment.complete_pending(instance)
        self.waiters.check()
        if acked:
            self._reactions.commit_acknowledged(now, acked)
        self._send(now)

    def transaction_aborted(
        self,
        now: float,
        composed: ComposedOffsets,
        errors: Mapping[TopicPartition, ErrorCode] | None = None,
        *,
        at_once: bool = False,
    ) -> None:
        """Nothing of the transaction is visible: begin another one after a backoff, or ``at_once``.
        ``errors``: why the coordinator has rejected the offsets."""
        self._transaction_ended(now)
        self._due = True
        if errors:
            self._offsets_rejected(now, composed, errors)
        elif at_once:
            self._send(now)
        else:
            self._retry_later(now)

    def _offsets_rejected(
        self, now: float, composed: ComposedOffsets, errors: Mapping[TopicPartition, ErrorCode]
    ) -> None:
        sent = InFlightCommit(
            composed.number,
            self._coordinator.node or _UNKNOWN_NODE,
            composed.identity,
            composed.composed_at,
            composed.entries,
            frozenset(i for i in composed.entries if i.state is InstanceState.COMMITTING),
        )
        actions: dict[CommitErrorAction, ErrorCode] = {}
        rejected: list[tuple[PartitionInstance, PartitionsError]] = []
        for instance, entry in composed.entries.items():
            error = errors.get(instance.partition, ErrorCode.none)
            if error is ErrorCode.illegal_generation and self._reactions.membership.has_epochs:
                # TxnOffsetCommit up to version 5 has no other code for a stale member epoch.
                error = ErrorCode.stale_member_epoch
            action = COMMIT_ERRORS.get(error, CommitErrorAction.REJECTED)
            if error is ErrorCode.none or instance.terminal:
                continue
            actions.setdefault(action, error)
            if action is CommitErrorAction.TOO_LARGE and entry.metadata:
                self._maps.too_large(instance, entry.metadata)
            elif action in (CommitErrorAction.REJECTED, CommitErrorAction.TOO_LARGE):
                problem = self._reject(now, sent, instance, error)
                if problem is not None:
                    rejected.append((instance, problem))
        self._retry_later(now)
        self._apply_actions(now, sent, actions)
        for instance, problem in rejected:
            self._reactions.commit_rejected(now, instance, problem)
