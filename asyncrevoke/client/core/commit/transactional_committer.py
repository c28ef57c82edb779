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
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

from asyncrevoke.client import log_events
from asyncrevoke.client.core.commit.committer import RETRY_TIMER, Committer, InFlightCommit
from asyncrevoke.client.core.commit.error_table import COMMIT_ERRORS, CommitErrorAction
from asyncrevoke.client.core.io.effects import Node, TransactionDue
from asyncrevoke.client.core.partition.completion_map import LONGEST, encode
from asyncrevoke.client.core.partition.instance import InstanceState, PartitionInstance
from asyncrevoke.client.core.partition.truncated_tracker import TruncatedTracker
from asyncrevoke.client.model import GroupMetadata
from asyncrevoke.client.protocol.messages import CommitEntry, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.client.core.commit.returned_records import ReturnedRecords
    from asyncrevoke.client.core.partition.offset_tracker import OffsetTracker
    from asyncrevoke.client.core.partition.revocation import Revocation
    from asyncrevoke.client.errors import PartitionsError
    from asyncrevoke.client.model import TopicPartition

# The offset of a finished record, or those of records that enter a transaction together.
Finished: TypeAlias = int | tuple[int, ...]
# Characters of a map that offsets without a record may need later.
_ROOM: Final = 16
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
    _revocation: Revocation
    _returned_records: ReturnedRecords

    def compose_with(self, revocation: Revocation, returned_records: ReturnedRecords) -> None:
        """Set the parts that are made after this one."""
        self._revocation = revocation
        self._returned_records = returned_records

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
        known; None if the broker holds it. ``force``: also then."""
        if metadata is None:
            metadata = _map(tracker, LONGEST)
        point = tracker.commit_point
        is_held = point == instance.committed_offset and metadata == instance.committed_map
        if metadata is None or (is_held and not (force or instance.commit_required)):
            return None
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
    ) -> ComposedOffsets | None:
        """What the next transaction commits, of these finished records by tracker id;
        ``with_batch``: and all records of the last poll result that no task runs.

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
        sources: dict[PartitionInstance, dict[int, Sequence[Finished]]] = {}
        for tracker_id, groups in finished.items():
            instance = self._assignment.instance_of(tracker_id)
            if instance is None:
                composed.dropped[tracker_id] = range(len(groups))
            else:
                sources.setdefault(instance, {})[tracker_id] = groups
        for instance in ready:
            self._compose(composed, instance, sources.get(instance, {}))
        if composed.entries:
            self._sent += 1
            self._composed = composed
        else:
            self.waiters.check()
        return composed

    def _compose(
        self,
        composed: ComposedOffsets,
        instance: PartitionInstance,
        sources: dict[int, Sequence[Finished]],
    ) -> None:
        """Add what can be committed of one partition."""
        tracker = instance.tracker
        if tracker is None:
            return
        groups = list(sources.get(tracker.tracker_id, ()))
        own = len(groups)
        origins: list[tuple[int, int]] = []
        others: list[tuple[int, int, Finished]] = []
        for tracker_id, former in sources.items():
            if tracker_id == tracker.tracker_id:
                continue
            kept_to = _kept_to(instance, tracker_id, tracker)
            for index, group in enumerate(former):
                if _last(group) < kept_to:
                    groups.append(group)
                    origins.append((tracker_id, index))
                else:
                    others.append((tracker_id, index, group))
        if instance in composed.batch:
            tracker = tracker.preview()
            tracker.complete_pending()
        limit = self._maps.limit if self._revocation.maps_are_read else 0
        after, chosen, metadata = _that_fit(tracker, groups, limit)
        self._maps.left_waiting(instance, tracker, len(groups) - len(chosen))
        stuck = _that_never_fit(instance, groups[:own], chosen)
        included, dropped = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
        completes = defaultdict[int, list[int]](list)
        if not origins and chosen:
            composed.included[tracker.tracker_id] = chosen
            composed.completes[tracker.tracker_id] = _offsets(groups, chosen)
        elif chosen:
            for number in chosen:
                source, index = (
                    (tracker.tracker_id, number) if number < own else origins[number - own]
                )
                included[source].append(index)
                completes[source] += _offsets(groups, (number,))
        for source, index, group in others:
            # Of a position that is not the present one: results of records below it are visible.
            if _last(group) < after.commit_point:
                included[source].append(index)
                completes[source] += _offsets((group,), (0,))
            else:
                dropped[source].append(index)
        if stuck:
            dropped[tracker.tracker_id] = stuck
        composed.included.update(included)
        composed.completes.update(completes)
        composed.dropped.update(dropped)
        entry = self._entry_of(instance, after, metadata, force=bool(chosen or included))
        if entry is not None:
            composed.entries[instance] = entry

    def transaction_committed(self, now: float, composed: ComposedOffsets) -> None:
        """The transaction is committed: its records are completed."""
        self._composed = None
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
        self._composed = None
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


def _map(tracker: OffsetTracker, limit: int) -> str | None:
    """The completion map of a tracker; None if ``limit`` characters have no room for it."""
    if tracker.is_contiguous:
        return ""
    encoded = encode(tracker.commit_point, tracker.completed_runs(), tracker.leader_epoch, limit)
    return encoded.metadata if encoded.cut_at is None else None


def _that_fit(
    tracker: OffsetTracker, groups: Sequence[Finished], limit: int
) -> tuple[OffsetTracker, Sequence[int], str | None]:
    """The indices of groups that can be committed together, the tracker after that, and its
    completion map, None if it is not known."""
    every = range(len(groups))
    after = _after(tracker, groups, every)
    metadata = _map_with_room(after, limit)
    if not groups or metadata is not None:
        return after, every, metadata
    # All that the commit point passes: no map lists more than before.
    chosen: Sequence[int] = every
    while True:
        passed = [index for index in chosen if _last(groups[index]) < after.commit_point]
        if len(passed) == len(chosen):
            break
        chosen, after = passed, _after(tracker, groups, passed)
    known = set(chosen)
    beyond = sorted(set(every) - known, key=lambda index: _last(groups[index]))
    base, low, high = after, 0, len(beyond) if limit else 0
    while low < high:
        middle = (low + high + 1) // 2
        trial = _after(base, groups, beyond[:middle])
        if (trial_map := _map_with_room(trial, limit)) is not None:
            low, after, metadata = middle, trial, trial_map
        else:
            high = middle - 1
    return after, sorted([*chosen, *beyond[:low]]), metadata


def _that_never_fit(
    instance: PartitionInstance, own: Sequence[Finished], chosen: Sequence[int]
) -> list[int]:
    """The indices of finished records that are left at a revocation when all handlers have ended:
    the next owner handles them, since one before them was abandoned."""
    if not instance.revoking or instance.tracker is None:
        return []
    finished = sum(1 if isinstance(group, int) else len(group) for group in own)
    if instance.tracker.in_flight > finished:
        return []
    known = set(chosen)
    return [index for index in range(len(own)) if index not in known]


def _map_with_room(tracker: OffsetTracker, limit: int) -> str | None:
    """The completion map of a tracker; None if ``limit`` characters have no room for a larger
    one."""
    if tracker.is_contiguous:
        return ""
    if limit <= _ROOM:
        return "" if next(tracker.completed_runs(), None) is None else None
    return _map(tracker, limit - _ROOM)


def _after(
    tracker: OffsetTracker, groups: Sequence[Finished], chosen: Sequence[int]
) -> OffsetTracker:
    """The tracker after these groups are completed."""
    if not chosen:
        return tracker
    preview = tracker.preview()
    preview.complete_all(_offsets(groups, chosen))
    return preview


def _offsets(groups: Sequence[Finished], chosen: Sequence[int]) -> list[int]:
    if len(chosen) == len(groups) and set(map(type, groups)) == {int}:
        return list(cast("Sequence[int]", groups))
    offsets: list[int] = []
    for index in chosen:
        group = groups[index]
        if isinstance(group, int):
            offsets.append(group)
        else:
            offsets.extend(group)
    return offsets


def _last(group: Finished) -> int:
    return group if isinstance(group, int) else max(group)


def _kept_to(instance: PartitionInstance, tracker_id: int, tracker: OffsetTracker) -> int:
    """The offset before which the records of a former tracker are those of the present one."""
    former = instance.former_trackers.get(tracker_id)
    return former.kept_by(tracker) if isinstance(former, TruncatedTracker) else 0
