"""A JoinGroup or SyncGroup whose response went to a dead connection is sent again.

An older copy of the request, read late by the coordinator, takes the place of the one that waits;
what is parked then never gets a response. Heartbeats tell, because they travel beside it.
"""

from __future__ import annotations

import pytest
from unit.core.scripted_brokers import tp
from unit.core.scripted_group import ScriptedGroup, orders

from asyncrevoke.client.core.io.effects import FailureKind
from asyncrevoke.client.core.membership.classic.state_table import ClassicState
from asyncrevoke.client.protocol.messages import ErrorCode, JoinGroupRequest, SyncGroupRequest


def rejoining() -> ScriptedGroup:
    """A member whose second JoinGroup is parked."""
    group = ScriptedGroup()
    group.become_member(0, 1)
    group.rebalance()
    assert group.phase() is ClassicState.AWAIT_JOIN
    return group


def syncing() -> ScriptedGroup:
    """A member whose second SyncGroup is parked."""
    group = rejoining()
    group.respond_to_join()
    assert group.phase() is ClassicState.AWAIT_SYNC
    return group


@pytest.mark.parametrize("error", [ErrorCode.illegal_generation, ErrorCode.unknown_member_id])
def test_a_pending_join_that_the_group_has_passed_is_asked_for_again(error: ErrorCode) -> None:
    group = rejoining()
    first = group.joining()
    group.respond_to_beat(error)
    assert group.count(JoinGroupRequest) == 3, "its response may be on its way"
    group.pulse = ErrorCode.illegal_generation
    group.advance(1.5)
    assert group.count(JoinGroupRequest) == 4
    again = group.joining()
    assert (again.member_id, again.protocols) == (first.member_id, first.protocols)
    assert group.assigned == orders(0, 1)


def test_a_join_that_gets_a_response_in_time_is_not_sent_again() -> None:
    group = rejoining()
    group.respond_to_beat(ErrorCode.illegal_generation)
    group.rejoin(0, 1)
    group.pulse = ErrorCode.none
    joins = group.count(JoinGroupRequest)
    group.advance(5.0)
    assert group.count(JoinGroupRequest) == joins


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.rebalance_in_progress,
        ErrorCode.illegal_generation,
        ErrorCode.unknown_member_id,
    ],
)
def test_a_parked_sync_that_the_group_has_passed_leads_back_to_the_join(error: ErrorCode) -> None:
    group = syncing()
    group.respond_to_beat(error)
    group.pulse = error
    group.advance(5.5)
    assert group.phase() is ClassicState.AWAIT_JOIN
    assert group.joining().member_id


def test_a_sync_that_outlasts_healthy_heartbeats_is_asked_for_again() -> None:
    group = syncing()
    group.pulse = ErrorCode.none
    group.advance(20.0)  # a third of the session timeout, and 5 s for the replicas
    assert group.phase() is ClassicState.AWAIT_SYNC, "a leader may take its time"
    group.advance(3.5)
    assert group.phase() is ClassicState.AWAIT_JOIN
    group.respond_to_join(same_generation=True)
    assert group.sends(SyncGroupRequest)


@pytest.mark.parametrize("leads", [True, False])
@pytest.mark.parametrize("session_timeout", [6.0, 10.0, 45.0])
@pytest.mark.parametrize("instance_id", [None, "one"])
def test_a_coordinator_may_take_8_s_for_the_first_sync_and_respond_to_heartbeats(
    instance_id: str | None, session_timeout: float, leads: bool
) -> None:
    group = ScriptedGroup(group_instance_id=instance_id, session_timeout=session_timeout)
    group.start()
    if instance_id is None:
        group.give_id()
    group.respond_to_join(leads=leads)
    sync, _ = group.only(SyncGroupRequest)
    assert sync.timeout > 8.0
    group.pulse = ErrorCode.none
    group.advance(6.9 if session_timeout == 6.0 else 8.0)
    assert group.only(SyncGroupRequest)[0] is sync
    group.respond_to_sync(tp(0))
    assert group.assigned == orders(0)


@pytest.mark.parametrize("pulse", [ErrorCode.none, ErrorCode.rebalance_in_progress])
@pytest.mark.parametrize("seconds", [8.0, 20.0])
def test_a_member_waits_twice_as_long_for_each_further_sync_that_the_coordinator_begins_anew(
    seconds: float, pulse: ErrorCode
) -> None:
    """Brokers before 2.7 respond to heartbeats with REBALANCE_IN_PROGRESS until the sync ends."""
    group = ScriptedGroup(session_timeout=6.0, rebalance_timeout=120.0)
    group.start()
    group.give_id()
    group.respond_to_join(leads=True)
    group.pulse = pulse
    sent: dict[int, float] = {}
    begun = group.now
    while group.phase() is not ClassicState.STABLE:
        assert group.now < begun + 90.0, "the member never joins"
        group.advance(0.1)
        if group.sends(JoinGroupRequest):
            group.respond_to_join(leads=True, same_generation=True)
        sync, _ = group.only(SyncGroupRequest)
        if group.now >= sent.setdefault(sync.request_id, group.now) + seconds:
            group.respond_to_sync(tp(0))
    assert group.assigned == orders(0)


def test_a_first_join_is_sent_again_before_its_session_would_expire() -> None:
    """It has no heartbeats yet that could tell that it was forgotten."""
    group = ScriptedGroup(session_timeout=30.0)
    group.start()
    group.give_id()
    send, _ = group.only(JoinGroupRequest)
    assert send.timeout < 30.0


@pytest.mark.parametrize("instance_id", [None, "one"])
def test_each_first_join_is_sent_again_before_the_session_expires(
    instance_id: str | None,
) -> None:
    """The coordinator may have added the member, and its response may be lost; a repeated JoinGroup
    replaces a static member, whose session begins anew (KIP-345)."""
    group = ScriptedGroup(
        group_instance_id=instance_id, session_timeout=6.0, rebalance_timeout=120.0
    )
    group.start()
    if instance_id is None:
        group.give_id()
    timeouts: list[float] = []
    for _ in range(4):
        send, _ = group.only(JoinGroupRequest)
        timeouts.append(send.timeout)
        group.fail(send, FailureKind.TIMEOUT)
        group.advance(1.0)
    assert timeouts == [3.0, 4.5, 4.5, 4.5]


def test_a_coordinator_may_take_longer_for_each_join_than_half_of_the_session() -> None:
    """With the shorter time for its second JoinGroup the member would send a third one, whose
    response comes when its session has expired."""
    group = ScriptedGroup(session_timeout=10.0)
    group.start()
    send, _ = group.only(JoinGroupRequest)
    assert send.timeout == 5.0
    group.fail(send, FailureKind.TIMEOUT)
    group.give_id()
    assert group.only(JoinGroupRequest)[0].timeout == 7.5
