"""Schedules in which the core of a share group once failed, each with the rule that it lacked."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from simulation.cluster.network import RequestFate
from simulation.share.share_cluster import ShareCluster
from simulation.share.share_run import run_share, run_share_world
from simulation.share.share_schedule import (
    HandlerPlan,
    ShareDisturbance,
    ShareIncident,
    ShareIncidentKind,
    ShareMemberPlan,
    ShareSchedule,
)

from asyncrevoke.client.protocol.share_messages import ShareGroupHeartbeatRequest

if TYPE_CHECKING:
    from asyncrevoke.client.protocol.messages import Request

QUICK = HandlerPlan(usual=0.01, longest=1.0, slow=0.0)
ONE_MEMBER = ShareSchedule(
    seed=0,
    disturbance=ShareDisturbance.CALM,
    brokers=1,
    topics=(1,),
    duration=4.0,
    members=(ShareMemberPlan(0.0, 8, 16, QUICK),),
    incidents=(),
    lock=6.0,
    delivery_limit=5,
    locks=2000,
    renews=True,
    from_earliest=True,
    fails_whole=False,
    session_timeout=9.0,
    produce_every=0.2,
)


def test_with_one_slot_all_brokers_have_their_turn() -> None:
    one_slot = (ShareMemberPlan(0.0, 1, 1, QUICK),)
    schedule = dataclasses.replace(ONE_MEMBER, brokers=3, topics=(3,), members=one_slot)
    assert run_share(schedule).failure is None


def test_a_deleted_topic_burns_one_delivery_of_others_at_the_most() -> None:
    deleted = ShareIncident(2.0, ShareIncidentKind.DELETE, 0, 30.0)
    for seed in range(4):
        schedule = dataclasses.replace(
            ONE_MEMBER,
            seed=seed,
            disturbance=ShareDisturbance.FAULTS,
            topics=(1, 2),
            incidents=(deleted,),
            fails_whole=True,
        )
        outcome = run_share(schedule)
        assert outcome.failure is None
        # One when it is deleted; then it is opened without what metadata lacks.
        assert outcome.counts["sessions opened"] <= 3


def test_what_is_accepted_is_acknowledged_before_a_member_leaves() -> None:
    """Also if its session has ended just before: locks are of the member, not of the session."""
    for seed in range(8):
        schedule = dataclasses.replace(
            ONE_MEMBER,
            seed=seed,
            disturbance=ShareDisturbance.FAULTS,
            produce_every=0.05,
            incidents=(
                ShareIncident(3.0, ShareIncidentKind.EVICT, 0, 0.0),
                ShareIncident(3.0, ShareIncidentKind.LEAVE, 0, 0.0),
            ),
        )
        outcome = run_share(schedule)
        assert outcome.failure is None
        assert outcome.counts["lost"] == outcome.counts["unknown"] == 0


def test_records_of_a_deleted_topic_are_given_up_when_their_session_ends() -> None:
    """No session can be opened for their acknowledgements, which their calls may still ask for."""
    slow = HandlerPlan(usual=0.8, longest=6.0, slow=0.5)
    for seed in range(3):
        schedule = dataclasses.replace(
            ONE_MEMBER,
            seed=seed,
            disturbance=ShareDisturbance.FAULTS,
            brokers=2,
            topics=(2,),
            members=(ShareMemberPlan(0.0, 20, 20, slow),),
            produce_every=0.05,
            duration=3.0,
            fails_whole=True,
            incidents=(ShareIncident(2.0, ShareIncidentKind.DELETE, 0, 10.0),),
        )
        assert run_share(schedule).failure is None


def test_an_assignment_whose_response_was_lost_is_asked_for_again() -> None:
    """The coordinator may process a heartbeat of a closed connection after the next heartbeat."""
    schedule = dataclasses.replace(
        ONE_MEMBER,
        disturbance=ShareDisturbance.FAULTS,
        # Its second heartbeat is sent 0.2 s before partitions are assigned, and processed 0.4 s
        # later at the most.
        members=(ShareMemberPlan(0.3, 8, 16, QUICK),),
    )
    for seed in range(20):
        world = ShareCluster(dataclasses.replace(schedule, seed=seed))

        fates = [None, RequestFate.LATE]

        def late(
            _client: int, message: Request, fates: list[RequestFate | None] = fates
        ) -> RequestFate | None:
            heartbeat = isinstance(message, ShareGroupHeartbeatRequest)
            return fates.pop(0) if heartbeat and fates else None

        world.network.fate = late
        assert run_share_world(world).failure is None
