"""Revocation in two steps (KIP-983), and the barrier after which the group may learn of it.

The next poll result announces a requested revocation. It completes at the start of a later poll,
once no record of the partition is in flight and the final commit is acknowledged. A withdrawn
revocation resumes with its position and buffer; an overdue one loses its partition alone. The
barrier is reached when no instance is being revoked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.core.partition.instance import (
    InstanceState,
    InstanceTransition,
    PartitionInstance,
)
from asyncrevoke.client.model import BlockingRecord, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.io.outbox import Outbox
    from asyncrevoke.client.core.partition.assignment import Assignment
    from asyncrevoke.client.core.partition.reactions import PartitionReactions

_DEADLINE_TIMER = "revoke-deadline"
_LEAST_MARGIN = 1.0


class Revocation:
    """The revocations that are under way; those that overlap share one barrier."""

    def __init__(
        self,
        outbox: Outbox,
        config: ConsumerConfig,
        assignment: Assignment,
        reactions: PartitionReactions,
    ) -> None:
        self._outbox = outbox
        self._assignment = assignment
        self._reactions = reactions
        self._manual = config.commit_mode == "manual"
        self._auto_delay_revoke = config.auto_delay_revoke and not self._manual
        # Finished records are in flight until they are committed: no revocation ends before.
        self._in_transactions = config.exactly_once
        # The newest instance of each partition that a poll result has announced.
        self._announced: dict[TopicPartition, PartitionInstance] = {}
        self._revoking: dict[PartitionInstance, None] = {}
        self._requested: dict[PartitionInstance, float] = {}
        # Instances near their deadlines, whose one last commit is under way.
        self._last_commits: dict[PartitionInstance, None] = {}
        # Only while a poll waits may an announced partition be released.
        self._polling = False
        # Leaving the group: nothing is announced, and only records that tasks run are waited for.
        self.leaving = False
        self.wait_for_tasks = True
        # The iterator has ended: no poll result will announce anything.
        self._iterator_ended = False
        self.barrier_requested = False
        # Whether all members of the generation are known to read completion maps.
        self.maps_are_read = False
        self._slowest_commit = 0.0

    # --- requests from the group -----------------------------------------------------------------

    def request(
        self, now: float, instances: Iterable[PartitionInstance], deadline: float | None
    ) -> None:
        """Revoke these instances until ``deadline``; those already revoking keep theirs."""
        self._assignment.take_back()
        requested: list[str] = []
        for instance in instances:
            if instance.terminal:
                continue
            if instance.revoking:
                if instance.deadline is None:  # it was withdrawn meanwhile
                    instance.set_deadline(deadline)
                continue
            requested.append(str(instance.partition))
            if instance.state is InstanceState.INIT and self._reactions.is_committed(instance):
                self._end(now, instance, InstanceTransition.REVOKE)
                continue
            unseen = instance.state is InstanceState.INIT
            instance.transition(InstanceTransition.COMMIT if unseen else InstanceTransition.REVOKE)
            instance.set_deadline(deadline)
            self._assignment.lifespans.cancel_entering(instance)
            self._revoking[instance] = None
            self._requested[instance] = now
            if unseen or self._in_transactions:
                self._reactions.commit_now(now)
        self.barrier_requested = True
        self._arm_deadline()
        if requested:
            self._outbox.emit(log_events.REVOCATION_REQUESTED, partitions=requested)
            self._outbox.wake()
        if self.leaving or self._iterator_ended:
            self.progress(now)

    def tighten(self, deadline: float) -> None:
        """A rebalance has started that does not wait for revocations beyond ``deadline``."""
        for instance in self._revoking:
            if instance.deadline is None or instance.deadline > deadline:
                instance.set_deadline(deadline)
        self._arm_deadline()

    def withdraw(self, instance: PartitionInstance) -> bool:
        """The group has assigned the partition again before it was released: resume. False if the
        user may have cancelled its work (announced and not delayed), or if its lifespan exits: the
        release then completes."""
        instance.set_deadline(None)
        self._last_commits.pop(instance, None)
        resumable = self._assignment.lifespans.is_resumable(instance) and (
            instance.state is InstanceState.REVOKE_REQUESTED
            or instance.delayed_by_user
            or (self._auto_delay_revoke and not self.leaving)
        )
        if not resumable:
            return False
        instance.transition(InstanceTransition.WITHDRAW)
        instance.set_delayed_by_user(False)
        self._revoking.pop(instance, None)
        self._outbox.emit(log_events.REVOCATION_WITHDRAWN, partition=str(instance.partition))
        self._assignment.read_abandoned_again(instance)
        self._reactions.position_changed(instance)
        # Deliver what is still buffered.
        self._outbox.wake()
        self.barrier_requested = True
        return True

    def lose(self, now: float, instances: Iterable[PartitionInstance], reason: str) -> None:
        """These partitions are no longer assigned, whatever was under way."""
        gone = [instance for instance in instances if not instance.terminal]
        if not gone:
            return
        self._outbox.emit(
            log_events.PARTITIONS_LOST, partitions=[str(i.partition) for i in gone], reason=reason
        )
        for instance in gone:
            self._end(now, instance, InstanceTransition.LOSE)
        self._outbox.wake()

    # --- the poll --------------------------------------------------------------------------------

    def begin_poll(self, now: float) -> None:
        """A poll starts: complete announced revocations without records in flight."""
        self._polling = True
        for instance in list(self._revoking):
            if instance.state is InstanceState.DELAYED and instance.delayed_by_user:
                instance.transition(InstanceTransition.END_DELAY)
            elif instance.state in (InstanceState.ANNOUNCED, InstanceState.DELAYED):
                if self._exit_if_drained(instance):
                    self._complete(now, instance)
                else:
                    instance.transition(InstanceTransition.DELAY)
                    instance.transition(InstanceTransition.END_DELAY)

    def resume_poll(self, now: float) -> None:
        """A poll waits (again): release what has drained meanwhile."""
        if not self._polling:
            self._polling = True
            self.progress(now)

    def poll_ended(self) -> None:
        """No poll waits: nothing is released before the next one."""
        self._polling = False

    def end_iterator(self) -> None:
        """No poll will announce anything any more: release unannounced."""
        self._iterator_ended = True

    @property
    def has_news(self) -> bool:
        """Whether a requested revocation is not announced yet."""
        return any(instance.state is InstanceState.REVOKE_REQUESTED for instance in self._revoking)

    @property
    def delayed_by_user(self) -> bool:
        """Whether a delay has to be renewed by the user at the next poll."""
        return any(instance.delayed_by_user for instance in self._revoking)

    def announce(self) -> frozenset[TopicPartition]:
        """A poll returns: the partitions that its result lists as to be revoked."""
        self._polling = False
        listed: list[TopicPartition] = []
        new: list[str] = []
        for instance in self._revoking:
            if instance.state in (InstanceState.REVOKE_REQUESTED, InstanceState.ANNOUNCED):
                if instance.state is InstanceState.REVOKE_REQUESTED:
                    new.append(str(instance.partition))
                instance.transition(InstanceTransition.ANNOUNCE)
                instance.set_delayed_by_user(False)
                self._announced[instance.partition] = instance
                listed.append(instance.partition)
        if new:
            self._outbox.emit(log_events.REVOCATION_ANNOUNCED, partitions=new)
        return frozenset(listed)

    def delay(self, partitions: Iterable[TopicPartition]) -> bool:
        """Keep announced partitions for one more poll; False if one of them is no longer assigned.
        Raises ValueError, and delays nothing, for a partition that no poll result announced."""
        wanted = list(dict.fromkeys(partitions))
        strangers = [tp for tp in wanted if tp not in self._announced]
        if strangers:
            known = ", ".join(str(tp) for tp in sorted(self._announced))
            named = ", ".join(f"{tp[0]}-{tp[1]}" for tp in sorted(strangers))
            raise ValueError(
                f"never announced as to be revoked: {named}; announced so far: {known or 'none'}"
            )
        all_ours = True
        delayed: list[str] = []
        for tp in wanted:
            instance = self._announced[tp]
            if instance.state in (InstanceState.ANNOUNCED, InstanceState.DELAYED):
                instance.transition(InstanceTransition.DELAY)
                instance.set_delayed_by_user(True)
                delayed.append(str(instance.partition))
            elif instance.state not in (InstanceState.ACTIVE, InstanceState.REVOKE_REQUESTED):
                all_ours = False
        if delayed:
            self._outbox.emit(log_events.REVOCATION_DELAYED, partitions=delayed)
        return all_ours

    def blocking_records(self, now: float, stopped_at: float | None) -> list[BlockingRecord]:
        """The oldest record in flight of each partition being revoked; after a stop, of all."""
        wanted = self._assignment.live() if stopped_at is not None else self._revoking
        found: list[BlockingRecord] = []
        for instance in wanted:
            since = self._requested.get(instance, stopped_at)
            offset = instance.oldest_in_flight
            if since is not None and offset is not None:
                seconds = round(now - since, 3)
                unfinished = instance.in_flight
                found.append(BlockingRecord(*instance.partition, offset, seconds, unfinished))
        return found

    @property
    def is_under_way(self) -> bool:
        """Whether a partition is being revoked."""
        return bool(self._revoking)

    # --- progress --------------------------------------------------------------------------------

    def progress(self, now: float) -> None:
        """Release what has drained, if a poll waits or the consumer leaves."""
        for instance in list(self._revoking):
            if instance.state is InstanceState.COMMITTING:
                if self._reactions.is_committed(instance):
                    self._end(now, instance, InstanceTransition.RELEASE)
            elif self._may_complete(instance) and self._exit_if_drained(instance):
                # Even near its deadline: its last commit may just have covered all of it.
                self._complete(now, instance)
            elif instance in self._last_commits:
                if self._reactions.is_committed(instance):
                    self._lose_late(now, instance)
                else:
                    # More of it is done than the last commit says.
                    self._reactions.commit_now(now)

    def commit_rejected(self, now: float, instance: PartitionInstance, reason: str) -> None:
        """The last attempt to commit it was rejected: release it without a final commit."""
        if instance.state is InstanceState.COMMITTING:
            self._outbox.emit(
                log_events.RELEASED_UNCOMMITTED, partition=str(instance.partition), reason=reason
            )
            self._end(now, instance, InstanceTransition.RELEASE)

    def leave(self, now: float, *, wait_for_tasks: bool) -> None:
        """Release everything unannounced; ``wait_for_tasks`` until tasks have ended."""
        self.leaving = True
        self.wait_for_tasks = wait_for_tasks
        self.request(now, self._assignment.live(), None)

    def successors_read_maps(self, they_do: bool) -> None:
        """Whether every member of the generation reads completion maps."""
        self.maps_are_read = they_do

    def membership_begins(self) -> None:
        """A new membership begins."""
        self.maps_are_read = False
        self.leaving = False
        self.wait_for_tasks = True

    def _may_complete(self, instance: PartitionInstance) -> bool:
        if self.leaving:
            return True
        if not self._polling or instance.delayed_by_user:
            return False
        announced = instance.state in (InstanceState.ANNOUNCED, InstanceState.DELAYED)
        return announced or (
            self._iterator_ended and instance.state is InstanceState.REVOKE_REQUESTED
        )

    def _exit_if_drained(self, instance: PartitionInstance) -> bool:
        """Have its lifespan exit if its release waits for no record. True if that has exited."""
        if self._waits_for_records(instance):
            return False
        drained = self.wait_for_tasks or not self.leaving
        return self._assignment.lifespans.exit(instance, drained=drained)

    def _waits_for_records(self, instance: PartitionInstance) -> bool:
        if self.leaving:
            return self.wait_for_tasks and instance.held > 0
        delays = self._auto_delay_revoke or instance.has_unfinished_lifespan
        return delays and instance.in_flight > 0

    def lifespan_failed(self, now: float, instance: PartitionInstance, reason: str) -> None:
        """Its lifespan has failed to save its state: lose it without a final commit."""
        revoking = instance.revoking
        self.lose(now, [instance], reason)
        if revoking:
            self._reactions.revocation_ended(now, instance)

    def _complete(self, now: float, instance: PartitionInstance) -> None:
        if instance.state is InstanceState.REVOKE_REQUESTED:
            instance.transition(InstanceTransition.ANNOUNCE)
        if self._reactions.is_committed(instance):
            self._end(now, instance, InstanceTransition.RELEASE)
        else:
            instance.transition(InstanceTransition.COMMIT)
            self._reactions.commit_now(now)

    def _end(self, now: float, instance: PartitionInstance, step: InstanceTransition) -> None:
        self._revoking.pop(instance, None)
        self._last_commits.pop(instance, None)
        started = self._requested.pop(instance, None)
        self._assignment.end(instance, step)
        self.barrier_requested = True
        if instance.state is InstanceState.RELEASED:
            seconds = None if started is None else round(now - started, 3)
            self._outbox.emit(
                log_events.RELEASED, partition=str(instance.partition), seconds=seconds
            )
            self._reactions.revocation_ended(now, instance)

    def request_barrier(self) -> None:
        """Have ``Core.after_event`` call the membership's ``barrier`` as soon as no instance
        is being revoked."""
        self.barrier_requested = True

    def take_barrier_request(self) -> bool:
        """Whether :meth:`request_barrier` was called since the last call."""
        requested, self.barrier_requested = self.barrier_requested, False
        return requested

    @property
    def at_barrier(self) -> bool:
        """Whether no instance is being revoked."""
        return not self._revoking

    # --- deadlines -------------------------------------------------------------------------------

    def set_slowest_commit(self, seconds: float) -> None:
        """How long the slowest of the last commits took, in seconds."""
        self._slowest_commit = seconds

    def margin(self, instance: PartitionInstance) -> float:
        """Seconds before its deadline at which its last commit is sent. If that is not acknowledged
        by half of them, it is lost, so that this member can still join."""
        margin = max(_LEAST_MARGIN, 2 * self._slowest_commit)
        since = self._requested.get(instance)
        if instance.deadline is None or since is None:
            return margin
        return min(margin, (instance.deadline - since) / 2)

    def _arm_deadline(self) -> None:
        due = [
            instance.deadline - self.margin(instance) / (2 if instance in self._last_commits else 1)
            for instance in self._revoking
            if instance.deadline is not None
        ]
        if due:
            self._outbox.set_timer(_DEADLINE_TIMER, min(due), self._deadline_near)

    def _deadline_near(self, now: float) -> None:
        for instance in list(self._revoking):
            if instance.deadline is None:
                continue
            margin = self.margin(instance)
            if now >= instance.deadline - margin / 2:
                self._lose_late(now, instance)
            elif now >= instance.deadline - margin and instance not in self._last_commits:
                # One last commit: later completions do not count.
                self._last_commits[instance] = None
                # A lifespan that has not saved its state: a commit would cover records it lacks.
                if instance.has_unfinished_lifespan or self._reactions.is_committed(instance):
                    self._lose_late(now, instance)
                else:
                    self._reactions.commit_now(now)
        self._arm_deadline()

    def _lose_late(self, now: float, instance: PartitionInstance) -> None:
        """Lose it shortly before its deadline. The group may have assigned it to this member
        again."""
        self.lose(now, [instance], "its revoke was not finished before the deadline")
        self._reactions.revocation_ended(now, instance)
