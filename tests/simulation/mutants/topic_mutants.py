"""Mutants that show where topics are created again, groups are converted, or members are frozen."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
from msgspec import structs
from simulation.members.consumer_style import ConsumerStyle, WorkTime
from simulation.mutants.core_mutants import release_before_acknowledged
from simulation.mutants.mutant import Mutant
from simulation.mutants.mutant_schedules import (
    crashes_amid_slow_tasks,
    partitions_are_added_late,
)
from simulation.schedules.schedule import (
    Disturbance,
    GroupMode,
    Incident,
    IncidentKind,
    MemberPlan,
    Protocol,
    Schedule,
)

from asyncrevoke.client.core.membership.classic.heartbeat import ClassicHeartbeat
from asyncrevoke.client.core.membership.classic.member import ClassicMembership
from asyncrevoke.client.core.membership.kip848.member import ConsumerGroupMembership
from asyncrevoke.client.core.membership.subscription_state import AddedPartitions
from asyncrevoke.client.core.metadata.cluster import ClusterMetadata
from asyncrevoke.client.core.metadata.topic import KnownTopic
from asyncrevoke.client.core.partition.revocation import Revocation
from asyncrevoke.client.core.position.seek import Seeking

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.client.core.partition.instance import PartitionInstance
    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.client.protocol.messages import ConsumerGroupHeartbeatRequest


def topics_again_and_again(schedule: Schedule) -> Schedule:
    """Topics are deleted under members at work, and created again at once."""
    members = tuple(
        MemberPlan(0.1 * n, ConsumerStyle.TASKS, WorkTime(0.05, 1.5, 0.2)) for n in range(2)
    )
    again = tuple(Incident(3.0 + 2 * n, IncidentKind.RECREATE, n, 0.0) for n in range(3))
    return dataclasses.replace(
        schedule, members=members, incidents=again, topics=(3,), duration=10.0, produce_every=0.1
    )


def partitions_are_added_late_to_a_group_from_now_on(schedule: Schedule) -> Schedule:
    """The same as its namesake, in a group that begins at the end of its topics."""
    return dataclasses.replace(partitions_are_added_late(schedule), reset="latest")


def added_partitions_begin_at_their_end(patch: pytest.MonkeyPatch) -> None:
    def contains(_self: AddedPartitions, _partition: TopicPartition) -> bool:
        return False

    patch.setattr(AddedPartitions, "__contains__", contains)


def long_freezes_of_members_at_rest(schedule: Schedule) -> Schedule:
    """Nothing happens but that members are frozen for longer than their session."""
    members = tuple(
        MemberPlan(0.1, ConsumerStyle.TASKS, WorkTime(0.03, 0.3, 0.1)) for _ in range(2)
    )
    freezes = (
        Incident(6.0, IncidentKind.FREEZE, 0, 7.5),
        Incident(6.0, IncidentKind.FREEZE, 1, 7.5),
    )
    return dataclasses.replace(
        schedule,
        members=members,
        incidents=freezes,
        session_timeout=6.0,
        rebalance_timeout=12.0,
        duration=15.0,
        static=False,
        loss=0.0,
    )


def frozen_while_another_joins(schedule: Schedule) -> Schedule:
    """A member that is at work on everything is frozen, and then another one joins."""
    return dataclasses.replace(
        schedule,
        members=(MemberPlan(0.1, ConsumerStyle.TASKS, WorkTime(0.2, 1.5, 0.3)),),
        incidents=(Incident(5.0, IncidentKind.FREEZE, 0, 4.5), Incident(5.2, IncidentKind.JOIN, 0)),
        topics=(6,),
        session_timeout=10.0,
        rebalance_timeout=12.0,
        duration=13.0,
        produce_every=0.1,
        static=False,
        loss=0.0,
    )


def switches_amid_slow_tasks(schedule: Schedule) -> Schedule:
    """Members come and switch their protocol while work of some seconds is under way."""
    plans = (Protocol.CONSUMER, Protocol.CLASSIC, Protocol.CLASSIC)
    members = tuple(
        MemberPlan(0.1 * n, ConsumerStyle.TASKS, WorkTime(0.3, 2.5, 0.5), protocol)
        for n, protocol in enumerate(plans)
    )
    crowd = tuple(Incident(3.0 + 0.9 * n, IncidentKind.JOIN, n) for n in range(4))
    switches = (Incident(5.0, IncidentKind.SWITCH, 1), Incident(8.0, IncidentKind.SWITCH, 0))
    return dataclasses.replace(
        schedule, members=members, incidents=crowd + switches, topics=(6,), duration=12.0
    )


def crashes_amid_slow_tasks_and_retention(schedule: Schedule) -> Schedule:
    """What had not been committed is not there any more when the next one takes over."""
    amid = crashes_amid_slow_tasks(schedule)
    deleted = tuple(Incident(4.2 + 0.1 * n, IncidentKind.RETENTION, n, 0.1) for n in range(8))
    return dataclasses.replace(amid, incidents=(*amid.incidents, *deleted), session_timeout=6.0)


def cancelled_steps_amid_slow_tasks(schedule: Schedule) -> Schedule:
    """Waiting steps are cancelled while partitions drain that others wait for."""
    members = tuple(
        MemberPlan(0.1 + 2 * n, ConsumerStyle.TASKS, WorkTime(0.03, 2.5, 0.2)) for n in range(3)
    )
    cancelled = tuple(Incident(2.2 + 0.3 * n, IncidentKind.CANCEL, n, 0.28) for n in range(20))
    return dataclasses.replace(
        schedule, members=members, incidents=cancelled, topics=(6,), duration=9.0
    )


def drops_the_map_where_the_log_begins_later(patch: pytest.MonkeyPatch) -> None:
    def left_of_map(_self: Seeking, _instance: PartitionInstance, _offset: int) -> None:
        return None

    patch.setattr(Seeking, "_left_of_map", left_of_map)


def does_not_look_when_a_step_goes_on(patch: pytest.MonkeyPatch) -> None:
    def resume_poll(self: Revocation, _now: float) -> None:
        self._polling = True

    patch.setattr(Revocation, "resume_poll", resume_poll)


def commits_by_names(patch: pytest.MonkeyPatch) -> None:
    def topic_ids(_self: ClusterMetadata, _partitions: Iterable[TopicPartition]) -> None:
        return None

    patch.setattr(ClusterMetadata, "topic_ids", topic_ids)


def takes_a_new_topic_for_the_former_one(patch: pytest.MonkeyPatch) -> None:
    def is_replaced_by(self: KnownTopic, metadata: object) -> bool:
        self.topic_id = metadata.topic_id  # type: ignore[attr-defined]
        return False

    patch.setattr(KnownTopic, "is_replaced_by", is_replaced_by)


def nothing_may_be_sent_for_a_frozen_member(patch: pytest.MonkeyPatch) -> None:
    def updates(self: ClassicHeartbeat) -> None:
        self._outbox.stop_background_heartbeat()

    patch.setattr(ClassicHeartbeat, "_update_background_heartbeat", updates)


def the_thread_says_that_nothing_is_owned(patch: pytest.MonkeyPatch) -> None:
    repeatable = ConsumerGroupMembership.background_heartbeat

    def talkative(self: ConsumerGroupMembership) -> ConsumerGroupHeartbeatRequest | None:
        request = repeatable(self)
        return None if request is None else structs.replace(request, owned=())

    patch.setattr(ConsumerGroupMembership, "background_heartbeat", talkative)


def joins_without_what_drains(patch: pytest.MonkeyPatch) -> None:
    start = ClassicMembership.start_join

    def forgetful(self: ClassicMembership, now: float, reason: str) -> None:
        live = self._assignment.partitions
        draining = {i.partition for i in self._assignment.live() if i.revoking}
        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(self._assignment, "partitions", lambda: live() - draining)
            start(self, now, reason)

    patch.setattr(ClassicMembership, "start_join", forgetful)


MUTANTS = [
    Mutant(
        "added partitions begin at their end",
        added_partitions_begin_at_their_end,
        ("skipped",),
        tweak=partitions_are_added_late_to_a_group_from_now_on,
    ),
    Mutant(
        "a map that is dropped where the log begins later",
        drops_the_map_where_the_log_begins_later,
        ("I19",),
        disturbance=Disturbance.FAULTS,
        tweak=crashes_amid_slow_tasks_and_retention,
    ),
    Mutant(
        "a step that goes on without a look at what has drained",
        does_not_look_when_a_step_goes_on,
        ("undue loss",),
        GroupMode.EAGER,
        tweak=cancelled_steps_amid_slow_tasks,
    ),
    Mutant("commits by names", commits_by_names, ("I20",), tweak=topics_again_and_again),
    Mutant(
        "commits by names, by epochs",
        commits_by_names,
        ("I20",),
        GroupMode.CONSUMER,
        tweak=topics_again_and_again,
    ),
    Mutant(
        "a new topic that is taken for the former one",
        takes_a_new_topic_for_the_former_one,
        ("I20", "I14", "I6"),
        tweak=topics_again_and_again,
    ),
    Mutant(
        "a frozen member for which nothing may be sent",
        nothing_may_be_sent_for_a_frozen_member,
        ("background heartbeat",),
        disturbance=Disturbance.FAULTS,
        tweak=long_freezes_of_members_at_rest,
    ),
    Mutant(
        "a thread that says that nothing is owned",
        the_thread_says_that_nothing_is_owned,
        ("I3", "I8", "I11"),
        GroupMode.CONSUMER,
        Disturbance.FAULTS,
        tweak=frozen_while_another_joins,
    ),
    Mutant(
        "a join without what drains, in a group that is converted",
        joins_without_what_drains,
        ("I10",),
        GroupMode.CONVERTED,
        tweak=switches_amid_slow_tasks,
    ),
    Mutant(
        "release before the commit is acknowledged, in a group that is converted",
        release_before_acknowledged,
        ("I11",),
        GroupMode.CONVERTED,
        tweak=switches_amid_slow_tasks,
    ),
]
