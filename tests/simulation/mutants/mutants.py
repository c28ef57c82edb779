"""Cores with one bug each, to prove that the oracles see it.

A mutant patches one decision of the core; ``caught_by`` are the invariants of which one has to
object. ``mode`` and ``disturbance`` are where the bug can show.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from msgspec import structs
from simulation.members.application import ConsumerStyle, WorkTime
from simulation.schedules.schedule import (
    Disturbance,
    GroupMode,
    Incident,
    IncidentKind,
    MemberPlan,
    Schedule,
    draw,
)

from asyncrevoke.core.assignors import cooperative_sticky
from asyncrevoke.core.commit import completion_maps
from asyncrevoke.core.commit.committer import Committer
from asyncrevoke.core.commit.completion_maps import CompletionMaps
from asyncrevoke.core.commit.error_table import COMMIT_ERRORS, CommitErrorAction
from asyncrevoke.core.fetch.cursor import PartitionCursor
from asyncrevoke.core.io.effects import NotifyKind
from asyncrevoke.core.membership.classic.leader import group_leader, led_generation
from asyncrevoke.core.membership.classic.member import ClassicMembership
from asyncrevoke.core.membership.classic.staged_rejoin import StagedRejoin
from asyncrevoke.core.membership.classic.state_table import ClassicState
from asyncrevoke.core.membership.kip848.heartbeat import ConsumerGroupHeartbeat
from asyncrevoke.core.membership.kip848.member import ConsumerGroupMembership
from asyncrevoke.core.membership.kip848.state_table import MemberState
from asyncrevoke.core.membership.kip848.target_assignment import TargetAssignment
from asyncrevoke.core.partition import assignment as assignment_module
from asyncrevoke.core.partition import completion_map
from asyncrevoke.core.partition import offset_tracker as tracker_module
from asyncrevoke.core.partition.assignment import Assignment
from asyncrevoke.core.partition.instance import (
    PERMISSIONS,
    InstanceState,
    InstanceTransition,
    PartitionInstance,
    Permissions,
)
from asyncrevoke.core.partition.offset_tracker import OffsetTracker
from asyncrevoke.core.partition.revocation import Revocation
from asyncrevoke.core.position.seek import Seeking
from asyncrevoke.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pytest

    from asyncrevoke.core.membership.classic.assignment_user_data import AssignmentUserData
    from asyncrevoke.core.partition.completion_map import CompletionMap
    from asyncrevoke.model import GroupMetadata, TopicPartition
    from asyncrevoke.protocol.messages import ConsumerGroupHeartbeatRequest, TopicIdPartitions


Plan: TypeAlias = "dict[str, list[TopicPartition]]"


@dataclass(frozen=True)
class Mutant:
    name: str
    patch: Callable[[pytest.MonkeyPatch], None]
    caught_by: tuple[str, ...]
    mode: GroupMode = GroupMode.COOPERATIVE
    disturbance: Disturbance = Disturbance.NONE
    tweak: Callable[[Schedule], Schedule] = lambda schedule: schedule

    def schedule(self, seed: int) -> Schedule:
        """The schedule of a seed, bent towards where the bug can show."""
        return self.tweak(draw(seed, self.mode, self.disturbance))


def long_freezes(schedule: Schedule) -> Schedule:
    """Two members are frozen for longer than their session, and thus lose what they have."""
    freezes = (
        Incident(3.0, IncidentKind.FREEZE, schedule.seed, 8.0),
        Incident(4.0, IncidentKind.FREEZE, schedule.seed + 1, 8.0),
    )
    return dataclasses.replace(
        schedule, incidents=schedule.incidents + freezes, session_timeout=6.0, duration=14.0
    )


def slow_tasks_and_a_crowd(
    shape: ConsumerStyle, revoke_timeout: float | None = None
) -> Callable[[Schedule], Schedule]:
    """Members come one upon the other while work of some seconds is under way."""

    def tweak(schedule: Schedule) -> Schedule:
        members = tuple(
            MemberPlan(0.1 * number, shape, WorkTime(0.3, 2.5, 0.5)) for number in range(2)
        )
        crowd = tuple(
            Incident(3.0 + 0.7 * number, IncidentKind.JOIN, number) for number in range(5)
        )
        return dataclasses.replace(
            schedule,
            members=members,
            incidents=crowd,
            topics=(6,),
            duration=10.0,
            revoke_timeout=revoke_timeout,
        )

    return tweak


def crashes_amid_slow_tasks(schedule: Schedule) -> Schedule:
    """Members die while some of their work takes seconds, and more has been done beyond it."""
    members = tuple(
        MemberPlan(0.1 * n, ConsumerStyle.TASKS, WorkTime(0.05, 4.0, 0.1)) for n in range(3)
    )
    crashes = tuple(Incident(3.0 + n, IncidentKind.CRASH, schedule.seed + n) for n in range(2))
    return dataclasses.replace(
        schedule, members=members, incidents=crashes, topics=(4,), duration=9.0, produce_every=0.15
    )


def parked_behind_an_eager_member(schedule: Schedule) -> Schedule:
    """An eager member drains for long at each rebalance, while JoinGroups of the others wait."""
    members = tuple(
        MemberPlan(0.1 * n, ConsumerStyle.TASKS, WorkTime(0.5, 2.5, 0.3)) for n in range(3)
    )
    return dataclasses.replace(
        schedule,
        mode=GroupMode.MIXED,
        later_assignors=("cooperative-sticky", "range"),
        members=members,
        incidents=(
            Incident(1.0, IncidentKind.REPLACE, 0),
            *(Incident(5.0 + 0.8 * n, IncidentKind.JOIN, n) for n in range(4)),
        ),
        topics=(8,),
        duration=11.0,
        produce_every=0.1,
    )


def many_lost_answers(schedule: Schedule) -> Schedule:
    """Members come and go while a quarter of all requests breaks its connection."""
    crowd = tuple(Incident(1.0 + 1.5 * n, IncidentKind.JOIN, n) for n in range(3))
    return dataclasses.replace(schedule, loss=0.25, incidents=crowd, topics=(6,))


def slow_commits(schedule: Schedule) -> Schedule:
    """Every second packet takes its time, so that a commit may arrive after a later heartbeat."""
    crowd = tuple(Incident(1.0 + 0.7 * n, IncidentKind.JOIN, n) for n in range(5))
    return dataclasses.replace(schedule, slow=0.5, incidents=crowd, topics=(6,), produce_every=0.05)


def moves_amid_rebalances(schedule: Schedule) -> Schedule:
    """Members join one by one, and most times the coordinator moves before they are assigned."""
    joins = tuple(Incident(1.5 * n, IncidentKind.JOIN, n) for n in range(1, 6))
    moves = tuple(
        Incident(1.5 * n - 0.1, IncidentKind.MOVE_AMID, n, 0.003 * n) for n in range(1, 6)
    )
    return dataclasses.replace(
        schedule, brokers=3, incidents=joins + moves, topics=(8,), duration=9.0, slow=0.3
    )


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


def no_stale_verdict_rule(patch: pytest.MonkeyPatch) -> None:
    def is_current(_self: ClassicMembership, _sent: GroupMetadata, _sent_at: float) -> bool:
        return True

    patch.setattr(ClassicMembership, "is_current_membership", is_current)


def refusals_of_before_the_sync_are_verdicts(patch: pytest.MonkeyPatch) -> None:
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


def listeners_hear_of_losses_last(patch: pytest.MonkeyPatch) -> None:
    order = (NotifyKind.ASSIGNED, NotifyKind.REVOKED, NotifyKind.LOST)
    patch.setattr(assignment_module, "_NOTICE_ORDER", order)


def listeners_are_told_twice(patch: pytest.MonkeyPatch) -> None:
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

    patch.setattr(completion_maps, "decode", shifted)


def maps_are_not_read(patch: pytest.MonkeyPatch) -> None:
    def read(
        _self: CompletionMaps, _instance: PartitionInstance, _offset: int, _metadata: str
    ) -> CompletionMap | None:
        return None

    patch.setattr(CompletionMaps, "read", read)


def maps_count_what_was_never_started(patch: pytest.MonkeyPatch) -> None:
    table = bytearray(tracker_module._IS_COMPLETED)
    table[tracker_module._PENDING] = 1
    patch.setattr(tracker_module, "_IS_COMPLETED", bytes(table))


def barrier_is_ignored(patch: pytest.MonkeyPatch) -> None:
    def barrier(_self: ClassicMembership, _now: float) -> None:
        return

    patch.setattr(ClassicMembership, "barrier", barrier)


def many_partitions_and_unequal_drains(schedule: Schedule) -> Schedule:
    """Two members take the partitions of one, of which some are at slow work."""
    members = tuple(
        MemberPlan(at, ConsumerStyle.TASKS, WorkTime(0.02, 5.0, 0.15)) for at in (0.1, 4.0, 4.2)
    )
    return dataclasses.replace(
        schedule, topics=(14,), members=members, duration=12.0, static=False, produce_every=0.15
    )


def waits_for_the_slowest_of_a_round(patch: pytest.MonkeyPatch) -> None:
    def released(_self: StagedRejoin, _now: float) -> None:
        return

    patch.setattr(StagedRejoin, "released", released)


def joins_for_each_release(patch: pytest.MonkeyPatch) -> None:
    def released(self: StagedRejoin, now: float) -> None:
        self._outbox.set_timer("staged-release", now, self._member.staged_rejoin_due)

    patch.setattr(StagedRejoin, "released", released)


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


def acknowledges_before_the_barrier(patch: pytest.MonkeyPatch) -> None:
    owned = TargetAssignment.owned

    def without_what_drains(
        self: TargetAssignment, partitions: frozenset[TopicPartition]
    ) -> tuple[TopicIdPartitions, ...]:
        return owned(self, partitions & self.resolve().kept)

    def at_barrier(_self: Revocation) -> bool:
        return True

    patch.setattr(TargetAssignment, "owned", without_what_drains)
    patch.setattr(Revocation, "at_barrier", property(at_barrier))


def says_what_it_owns_while_it_drains(patch: pytest.MonkeyPatch) -> None:
    compose = ConsumerGroupMembership.compose_heartbeat

    def talkative(self: ConsumerGroupMembership, full: bool) -> ConsumerGroupHeartbeatRequest:
        request = compose(self, full)
        if self.state is MemberState.RECONCILING:
            owned = self._target.owned(self._assignment.partitions())
            return structs.replace(request, owned=owned)
        return request

    patch.setattr(ConsumerGroupMembership, "compose_heartbeat", talkative)


def never_acknowledges(patch: pytest.MonkeyPatch) -> None:
    def barrier(_self: ConsumerGroupMembership, _now: float) -> None:
        return

    patch.setattr(ConsumerGroupMembership, "barrier", barrier)


def forgets_that_an_answer_was_lost(patch: pytest.MonkeyPatch) -> None:
    def unanswered(self: ConsumerGroupHeartbeat, now: float, why: str) -> None:
        self._coordinator.unanswered(now, why, self._asked)
        self._coordinator.call_when_known("heartbeat", self._beat, now)

    patch.setattr(ConsumerGroupHeartbeat, "unanswered", unanswered)


def stale_epochs_are_verdicts(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(COMMIT_ERRORS, ErrorCode.stale_member_epoch, CommitErrorAction.MEMBERSHIP)

    def is_current(_self: ConsumerGroupMembership, _sent: GroupMetadata, _sent_at: float) -> bool:
        return True

    patch.setattr(ConsumerGroupMembership, "is_current_membership", is_current)


def stages_too_early(patch: pytest.MonkeyPatch) -> None:
    def released(self: StagedRejoin, now: float) -> None:
        if not self._outbox.has_timer("staged-release"):
            at = self._joined_at + 0.8 * max(1.0, 2 * self._took)
            self._outbox.set_timer("staged-release", max(now, at), self._member.staged_rejoin_due)

    patch.setattr(StagedRejoin, "released", released)


def leader_does_not_watch_its_topics(patch: pytest.MonkeyPatch) -> None:
    def has_changed(_self: group_leader.GroupLeader) -> bool:
        return False

    patch.setattr(group_leader.GroupLeader, "has_changed", has_changed)


def partitions_are_added_late(schedule: Schedule) -> Schedule:
    """When all have joined, topics grow, and nobody joins or leaves any more."""
    members = tuple(dataclasses.replace(member, at=0.1) for member in schedule.members)
    grown = tuple(Incident(5.0 + n, IncidentKind.PARTITIONS, n) for n in range(2))
    return dataclasses.replace(schedule, members=members, incidents=grown, duration=9.0)


BY_EPOCHS = GroupMode.CONSUMER

MUTANTS = [
    Mutant(
        "an acknowledgement before the barrier",
        acknowledges_before_the_barrier,
        ("I10",),
        BY_EPOCHS,
    ),
    Mutant(
        "a member that says what it owns while it drains",
        says_what_it_owns_while_it_drains,
        ("I10",),
        BY_EPOCHS,
    ),
    Mutant(
        "a release that is never acknowledged",
        never_acknowledges,
        ("I16", "undue removal"),
        BY_EPOCHS,
    ),
    Mutant(
        "a heartbeat without an answer that is not followed by a full one",
        forgets_that_an_answer_was_lost,
        ("undue loss", "undue removal", "I14"),
        BY_EPOCHS,
        Disturbance.LOSS,
        many_lost_answers,
    ),
    Mutant(
        "a stale epoch that is taken for a verdict",
        stale_epochs_are_verdicts,
        ("undue loss",),
        BY_EPOCHS,
        tweak=slow_commits,
    ),
    Mutant(
        "a lost instance that commits by its epoch",
        lost_instance_commits,
        ("I3",),
        BY_EPOCHS,
        tweak=long_freezes,
    ),
    Mutant(
        "release by epochs before the commit is acknowledged",
        release_before_acknowledged,
        ("I11",),
        BY_EPOCHS,
    ),
    Mutant("release before the commit is acknowledged", release_before_acknowledged, ("I11",)),
    Mutant("a leader that does not withhold", leader_does_not_withhold, ("I3", "I8", "I11")),
    Mutant("a lost instance that commits", lost_instance_commits, ("I3",), tweak=long_freezes),
    Mutant("no stale-verdict rule", no_stale_verdict_rule, ("undue loss",)),
    Mutant(
        "a refusal of before the sync that is taken for a verdict",
        refusals_of_before_the_sync_are_verdicts,
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
    Mutant("listeners are told twice", listeners_are_told_twice, ("I12",)),
    Mutant("commits do not wait for each other", commits_do_not_wait_for_each_other, ("I13",)),
    Mutant(
        "kept partitions start again at their commit",
        kept_partitions_start_again_at_their_commit,
        ("I6",),
    ),
    Mutant("commits rewind", commits_rewind, ("I4",)),
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
