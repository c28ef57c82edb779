"""Cores with one bug each in releases, commits, delivery and rebalances; see :mod:`.mutant`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from simulation.members.consumer_style import ConsumerStyle
from simulation.mutants.mutant import Mutant
from simulation.mutants.mutant_schedules import (
    crashes_amid_slow_tasks,
    long_freezes,
    many_partitions_and_unequal_drains,
    moves_amid_rebalances,
    parked_behind_an_eager_member,
    partitions_are_added_late,
    slow_tasks_and_a_crowd,
)
from simulation.schedules.schedule import (
    Disturbance,
    GroupMode,
)

from asyncrevoke.client.core.assignors import cooperative_sticky
from asyncrevoke.client.core.commit import committed_maps
from asyncrevoke.client.core.commit.committed_maps import CommittedMaps
from asyncrevoke.client.core.commit.committer import Committer
from asyncrevoke.client.core.core import Core
from asyncrevoke.client.core.fetch.cursor import PartitionCursor
from asyncrevoke.client.core.io.effects import NotifyKind
from asyncrevoke.client.core.membership.classic import group_leader, led_generation
from asyncrevoke.client.core.membership.classic.member import ClassicMembership
from asyncrevoke.client.core.membership.classic.state_table import ClassicState
from asyncrevoke.client.core.partition import assignment as assignment_module
from asyncrevoke.client.core.partition import completion_map, offset_flags
from asyncrevoke.client.core.partition import offset_tracker as tracker_module
from asyncrevoke.client.core.partition.assignment import Assignment
from asyncrevoke.client.core.partition.instance import (
    PERMISSIONS,
    InstanceState,
    InstanceTransition,
    PartitionInstance,
    Permissions,
)
from asyncrevoke.client.core.partition.offset_tracker import OffsetTracker
from asyncrevoke.client.core.partition.revocation import Revocation
from asyncrevoke.client.core.position.seek import Seeking

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from asyncrevoke.client.core.membership.classic.user_data import AssignmentUserData
    from asyncrevoke.client.core.partition.completion_map import CompletionMap
    from asyncrevoke.client.model import GroupMetadata, TopicPartition

Plan: TypeAlias = "dict[str, list[TopicPartition]]"


def release_before_acknowledged(patch: pytest.MonkeyPatch) -> None:
    def is_acknowledged(_self: Committer, _instance: PartitionInstance) -> bool:
        return True

    patch.setattr(Committer, "is_acknowledged", is_acknowledged)


def leader_does_not_withhold(patch: pytest.MonkeyPatch) -> None:
    def withhold(plan: Plan, _claims: object) -> Plan:
        return plan

    def repair(plan: Plan, _members: object) -> tuple[Plan, list[object]]:
        return plan, []

    patch.setattr(cooperative_sticky, "withhold", withhold)
    patch.setattr(led_generation, "repair", repair)


def lost_instance_commits(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(
        PERMISSIONS,
        InstanceState.LOST,
        Permissions(fetch=False, deliver=False, commit=True, owned=False),
    )
    end, live = Assignment.end, Assignment.live
    zombies: dict[int, list[PartitionInstance]] = {}

    def end_and_remember(
        self: Assignment, instance: PartitionInstance, step: InstanceTransition
    ) -> None:
        end(self, instance, step)
        if step is InstanceTransition.LOSE:
            zombies.setdefault(id(self), []).append(instance)

    patch.setattr(Assignment, "end", end_and_remember)

    def live_and_dead(self: Assignment) -> list[PartitionInstance]:
        return live(self) + zombies.get(id(self), [])

    patch.setattr(Assignment, "live", live_and_dead)


def no_stale_error_rule(patch: pytest.MonkeyPatch) -> None:
    def is_current(_self: ClassicMembership, _sent: GroupMetadata, _sent_at: float) -> bool:
        return True

    patch.setattr(ClassicMembership, "is_current_membership", is_current)


def rejections_of_before_the_sync_count(patch: pytest.MonkeyPatch) -> None:
    def is_current(self: ClassicMembership, sent: GroupMetadata, _sent_at: float) -> bool:
        return sent == self.member_identity and self.state in (
            ClassicState.STABLE,
            ClassicState.REVOKING,
        )

    patch.setattr(ClassicMembership, "is_current_membership", is_current)


def no_follow_up_after_a_release_while_parked(patch: pytest.MonkeyPatch) -> None:
    received = ClassicMembership.assignment_received

    def forgetful(
        self: ClassicMembership,
        now: float,
        assigned: tuple[TopicPartition, ...],
        user_data: AssignmentUserData | None,
    ) -> None:
        self._partitions._owned &= self._assignment.partitions()
        received(self, now, assigned, user_data)

    patch.setattr(ClassicMembership, "assignment_received", forgetful)


def no_commit_of_a_reset_position(patch: pytest.MonkeyPatch) -> None:
    def place(
        self: Seeking,
        _now: float,
        instance: PartitionInstance,
        offset: int,
        leader_epoch: int,
        finished: CompletionMap | None = None,
    ) -> None:
        self._assignment.set_position(instance, offset, leader_epoch, finished)
        instance.committed_offset = offset
        self._outbox.wake()

    patch.setattr(Seeking, "_place", place)


def commits_past_unfinished_work(patch: pytest.MonkeyPatch) -> None:
    def position(self: OffsetTracker) -> int:
        return self.position

    def nothing_beyond(_self: OffsetTracker) -> bool:
        return True

    patch.setattr(OffsetTracker, "commit_point", property(position))
    patch.setattr(OffsetTracker, "is_contiguous", property(nothing_beyond))


def joins_before_the_barrier(patch: pytest.MonkeyPatch) -> None:
    def at_barrier(_self: Revocation) -> bool:
        return True

    patch.setattr(Revocation, "at_barrier", property(at_barrier))


def delivers_while_revoking(patch: pytest.MonkeyPatch) -> None:
    def may_flow(self: PartitionCursor) -> bool:
        return not self.instance.terminal

    patch.setattr(PartitionCursor, "is_active", property(may_flow))


def delay_is_always_granted(patch: pytest.MonkeyPatch) -> None:
    delay = Revocation.delay

    def grant(self: Revocation, partitions: frozenset[TopicPartition]) -> bool:
        delay(self, partitions)
        return True

    patch.setattr(Revocation, "delay", grant)


def losses_are_not_reported(patch: pytest.MonkeyPatch) -> None:
    end = Assignment.end

    def end_silently(
        self: Assignment, instance: PartitionInstance, step: InstanceTransition
    ) -> None:
        end(self, instance, step)
        self.lost.pop(instance.partition, None)

    patch.setattr(Assignment, "end", end_silently)


def listeners_receive_losses_last(patch: pytest.MonkeyPatch) -> None:
    order = (NotifyKind.ASSIGNED, NotifyKind.REVOKED, NotifyKind.LOST)
    patch.setattr(assignment_module, "_NOTICE_ORDER", order)


def listeners_are_called_twice(patch: pytest.MonkeyPatch) -> None:
    flush = Assignment.flush_notices

    def flush_again(self: Assignment) -> None:
        kept = {kind: dict(partitions) for kind, partitions in self._notices.items()}
        flush(self)
        self._notices.update(kept)

    patch.setattr(Assignment, "flush_notices", flush_again)


def commits_do_not_wait_for_each_other(patch: pytest.MonkeyPatch) -> None:
    send = Committer._send

    def impatient(self: Committer, now: float) -> None:
        self._in_flight = None
        send(self, now)

    patch.setattr(Committer, "_send", impatient)


def kept_partitions_start_again_at_their_commit(patch: pytest.MonkeyPatch) -> None:
    received = ClassicMembership.assignment_received

    def forgetful(
        self: ClassicMembership,
        now: float,
        assigned: tuple[TopicPartition, ...],
        user_data: AssignmentUserData | None,
    ) -> None:
        for instance in self._assignment.live():
            if instance.state is InstanceState.ACTIVE and instance.committed_offset is not None:
                self._assignment.set_position(instance, instance.committed_offset)
        received(self, now, assigned, user_data)

    patch.setattr(ClassicMembership, "assignment_received", forgetful)


def commits_rewind(patch: pytest.MonkeyPatch) -> None:
    point = OffsetTracker.commit_point
    assert isinstance(point, property)
    turns = [0]

    def sometimes_less(self: OffsetTracker) -> int:
        turns[0] += 1
        found: int = point.__get__(self)
        return max(found - 2, 0) if turns[0] % 5 == 0 else found

    patch.setattr(OffsetTracker, "commit_point", property(sometimes_less))


def maps_are_read_one_too_far(patch: pytest.MonkeyPatch) -> None:
    def shifted(offset: int, metadata: str) -> CompletionMap | None:
        found = completion_map.decode(offset, metadata)
        if found is None:
            return None
        return found._replace(runs=tuple((first - 1, end) for first, end in found.runs))

    patch.setattr(committed_maps, "decode", shifted)


def maps_are_not_read(patch: pytest.MonkeyPatch) -> None:
    def read(
        _self: CommittedMaps, _instance: PartitionInstance, _offset: int, _metadata: str
    ) -> CompletionMap | None:
        return None

    patch.setattr(CommittedMaps, "read", read)


def maps_count_what_was_never_started(patch: pytest.MonkeyPatch) -> None:
    table = bytearray(offset_flags.IS_COMPLETED)
    table[offset_flags.PENDING] = 1
    patch.setattr(tracker_module, "IS_COMPLETED", bytes(table))


def barrier_is_ignored(patch: pytest.MonkeyPatch) -> None:
    def barrier(_self: ClassicMembership, _now: float) -> None:
        return

    patch.setattr(ClassicMembership, "barrier", barrier)


def waits_for_the_slowest_of_a_round(patch: pytest.MonkeyPatch) -> None:
    def plan(_self: ClassicMembership, _now: float) -> None:
        return

    patch.setattr(ClassicMembership, "_plan_staged_rejoin", plan)


def joins_for_each_release(patch: pytest.MonkeyPatch) -> None:
    def plan(self: ClassicMembership, now: float) -> None:
        if self._may_join_draining and self._partitions.released:
            self._outbox.set_timer("staged-release", now, self._staged_rejoin_due)

    patch.setattr(ClassicMembership, "_plan_staged_rejoin", plan)


def keeps_the_highest_partitions(patch: pytest.MonkeyPatch) -> None:
    """While something is listed that has to go, other partitions are chosen in each round."""
    turns = [0]

    def fill(everything: Sequence[TopicPartition], owned: Plan, _racks: object) -> Plan:
        turns[0] += 1
        share = -(-len(everything) // max(len(owned), 1))
        kept = {
            member: sorted(mine, reverse=turns[0] % 2 == 0)[:share]
            for member, mine in owned.items()
        }
        free = [tp for tp in everything if all(tp not in mine for mine in kept.values())]
        for tp in free:
            min(kept.values(), key=len).append(tp)
        return kept

    patch.setattr(cooperative_sticky, "_fill_quotas", fill)


def stages_too_early(patch: pytest.MonkeyPatch) -> None:
    def plan(self: ClassicMembership, now: float) -> None:
        if (
            self._may_join_draining
            and self._partitions.released
            and not self._outbox.has_timer("staged-release")
        ):
            at = self._joined_at + 0.8 * max(1.0, 2 * self._rebalance_took)
            self._outbox.set_timer("staged-release", max(now, at), self._staged_rejoin_due)

    patch.setattr(ClassicMembership, "_plan_staged_rejoin", plan)


def leader_does_not_watch_its_topics(patch: pytest.MonkeyPatch) -> None:
    def has_changed(_self: group_leader.GroupLeader) -> bool:
        return False

    patch.setattr(group_leader.GroupLeader, "has_changed", has_changed)


def offsets_without_records_are_not_passed(patch: pytest.MonkeyPatch) -> None:
    """A position moves with the next record only."""

    def position_passed(_self: Core, _now: float, _instance: PartitionInstance) -> None: ...

    patch.setattr(Core, "position_passed", position_passed)


MUTANTS = [
    Mutant(
        "a lost instance that commits by its epoch",
        lost_instance_commits,
        ("I3",),
        GroupMode.CONSUMER,
        tweak=long_freezes,
    ),
    Mutant(
        "release by epochs before the commit is acknowledged",
        release_before_acknowledged,
        ("I11",),
        GroupMode.CONSUMER,
    ),
    Mutant("release before the commit is acknowledged", release_before_acknowledged, ("I11",)),
    Mutant("a leader that does not withhold", leader_does_not_withhold, ("I3", "I8", "I11")),
    Mutant("a lost instance that commits", lost_instance_commits, ("I3",), tweak=long_freezes),
    Mutant("no stale-error rule", no_stale_error_rule, ("undue loss",)),
    Mutant(
        "a rejection from before the sync is taken for a rejection of this member",
        rejections_of_before_the_sync_count,
        ("undue loss",),
        disturbance=Disturbance.FAULTS,
        tweak=moves_amid_rebalances,
    ),
    Mutant(
        "no follow-up after a release while a JoinGroup was parked",
        no_follow_up_after_a_release_while_parked,
        ("I16",),
        tweak=parked_behind_an_eager_member,
    ),
    Mutant("no commit of a reset position", no_commit_of_a_reset_position, ("I17",)),
    Mutant("commits past unfinished work", commits_past_unfinished_work, ("I5",)),
    Mutant("joins before the barrier", joins_before_the_barrier, ("I10",), GroupMode.EAGER),
    Mutant("delivers while revoking", delivers_while_revoking, ("I1",)),
    Mutant(
        "delay_revoke is always granted",
        delay_is_always_granted,
        ("I2",),
        tweak=slow_tasks_and_a_crowd(ConsumerStyle.ACK, revoke_timeout=2.0),
    ),
    Mutant(
        "losses are not reported",
        losses_are_not_reported,
        ("I7",),
        tweak=long_freezes,
    ),
    Mutant("listeners are called twice", listeners_are_called_twice, ("I12",)),
    Mutant("commits do not wait for each other", commits_do_not_wait_for_each_other, ("I13",)),
    Mutant(
        "kept partitions start again at their commit",
        kept_partitions_start_again_at_their_commit,
        ("I6",),
    ),
    Mutant("commits rewind", commits_rewind, ("I4",)),
    Mutant(
        "positions do not pass offsets without records",
        offsets_without_records_are_not_passed,
        ("I14",),
    ),
    Mutant(
        "maps are read one record too far",
        maps_are_read_one_too_far,
        ("I6", "I14", "I18"),
        disturbance=Disturbance.FAULTS,
        tweak=crashes_amid_slow_tasks,
    ),
    Mutant(
        "maps are not read",
        maps_are_not_read,
        ("I19",),
        disturbance=Disturbance.FAULTS,
        tweak=crashes_amid_slow_tasks,
    ),
    Mutant(
        "maps count what was never started",
        maps_count_what_was_never_started,
        ("I18",),
        tweak=slow_tasks_and_a_crowd(ConsumerStyle.TASKS),
    ),
    Mutant(
        "waits for the slowest of a round",
        waits_for_the_slowest_of_a_round,
        ("I16",),
        tweak=many_partitions_and_unequal_drains,
    ),
    Mutant(
        "joins for each release",
        joins_for_each_release,
        ("I16",),
        tweak=many_partitions_and_unequal_drains,
    ),
    Mutant(
        "stages a little too early",
        stages_too_early,
        ("I16",),
        tweak=many_partitions_and_unequal_drains,
    ),
    Mutant(
        "a leader that does not watch its topics",
        leader_does_not_watch_its_topics,
        ("I14",),
        tweak=partitions_are_added_late,
    ),
    Mutant(
        "keeps other partitions in each round",
        keeps_the_highest_partitions,
        ("I16",),
        tweak=many_partitions_and_unequal_drains,
    ),
    Mutant(
        "the barrier is ignored",
        barrier_is_ignored,
        ("undue removal",),
        GroupMode.EAGER,
    ),
]
