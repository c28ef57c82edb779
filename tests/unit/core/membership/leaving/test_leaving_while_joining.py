"""Leaving a classic group while a JoinGroup is on its way: nobody stays behind as a member."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.core.scripted_brokers import tp
from unit.core.scripted_group import MEMBER, ScriptedGroup, wait_until

from asyncrevoke.client.core.io.effects import FailureKind
from asyncrevoke.client.core.membership.classic.state_table import ClassicState
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.client.core.io.effects import Send

EITHER_WAY = pytest.mark.parametrize(
    "leave", [ScriptedGroup.close, ScriptedGroup.unsubscribe], ids=["close", "unsubscribe"]
)
# No leader: the coordinator assigns, and adds a member for every JoinGroup with a member id.
ADDED = JoinGroupResponse(
    error=ErrorCode.none, generation=2, protocol_name="cooperative-sticky", member_id=MEMBER
)


def joining_again(close_timeout: float = 25.0) -> tuple[ScriptedGroup, Send]:
    """A member with nothing to commit, whose JoinGroup is open."""
    group = ScriptedGroup(close_timeout=close_timeout)
    group.become_member(0)
    group.rebalance()
    return group, group.only(JoinGroupRequest)[0]


@EITHER_WAY
def test_a_join_that_adds_a_member_after_it_has_left_is_followed_by_another_leave(
    leave: Callable[..., int],
) -> None:
    group, join = joining_again()
    call_id = leave(group)
    group.respond_to_leave()
    assert group.phase() is ClassicState.LEAVING
    assert call_id not in group.completed
    group.reply(join, ADDED)
    assert group.leaving().member_id == MEMBER
    group.respond_to_leave()
    assert group.completed[call_id].error is None
    assert group.phase() is ClassicState.UNJOINED
    assert group.count(LeaveGroupRequest) == 2


@EITHER_WAY
def test_a_join_whose_response_precedes_the_leave_s_may_have_been_processed_after_it(
    leave: Callable[..., int],
) -> None:
    group, join = joining_again()
    call_id = leave(group)
    group.reply(join, ADDED)
    assert group.count(LeaveGroupRequest) == 1, "one at a time"
    group.respond_to_leave()
    assert call_id not in group.completed
    group.respond_to_leave(ErrorCode.unknown_member_id)
    assert call_id in group.completed


@EITHER_WAY
@pytest.mark.parametrize(
    "response",
    [
        JoinGroupResponse(error=ErrorCode.unknown_member_id),
        JoinGroupResponse(error=ErrorCode.rebalance_in_progress),
        JoinGroupResponse(error=ErrorCode.none, generation=2, leader="another", member_id=MEMBER),
    ],
    ids=["the group does not know the member", "the group is converted", "a member leads"],
)
def test_a_join_that_adds_no_member_after_the_leave_needs_no_other_leave(
    leave: Callable[..., int], response: JoinGroupResponse
) -> None:
    group, join = joining_again()
    call_id = leave(group)
    group.respond_to_leave()
    group.reply(join, response)
    assert call_id in group.completed
    assert group.count(LeaveGroupRequest) == 1


@EITHER_WAY
def test_a_join_whose_connection_breaks_is_not_waited_for(leave: Callable[..., int]) -> None:
    group, join = joining_again()
    call_id = leave(group)
    group.respond_to_leave()
    group.fail(join, FailureKind.DISCONNECTED)
    assert call_id in group.completed
    assert group.count(JoinGroupRequest) == 3


@EITHER_WAY
@pytest.mark.parametrize(("close_timeout", "took"), [(25.0, 5.0), (3.0, 3.0)])
def test_a_join_without_a_response_is_waited_for_five_seconds_or_close_timeout(
    leave: Callable[..., int], close_timeout: float, took: float
) -> None:
    group, _ = joining_again(close_timeout=close_timeout)
    call_id = leave(group)
    begun = group.now
    group.respond_to_leave()
    wait_until(group, lambda: call_id in group.completed, 30.0)
    assert group.now - begun == pytest.approx(took, abs=0.1)
    assert not group.named(
        "left without notifying the coordinator; partitions move at session timeout"
    )


def test_a_member_that_subscribes_again_after_such_a_leave_joins_on_a_fresh_connection() -> None:
    group, join = joining_again(close_timeout=3.0)
    call_id = group.unsubscribe()
    group.respond_to_leave()
    wait_until(group, lambda: call_id in group.completed, 30.0)
    group.subscribe("orders")
    (joining,) = group.sends(JoinGroupRequest)
    assert joining.request_id != join.request_id, "its connection was dropped"
    group.give_id()
    group.rejoin(0)
    assert group.assigned == {tp(0)}


def test_a_leave_after_one_without_a_response_is_sent_on_a_fresh_connection() -> None:
    group = ScriptedGroup(close_timeout=3.0)
    group.become_member(0)
    call_id = group.unsubscribe()
    outstanding, _ = group.only(LeaveGroupRequest)
    wait_until(group, lambda: call_id in group.completed, 30.0)
    group.subscribe("orders")
    group.give_id()
    group.rejoin(0)
    second = group.unsubscribe()
    (send,) = group.sends(LeaveGroupRequest)
    assert send.request_id != outstanding.request_id, "its connection was dropped"
    group.respond_to_leave()
    assert second in group.completed


def test_an_idle_member_that_has_asked_for_an_id_leaves_with_it() -> None:
    group = ScriptedGroup(max_poll_interval=30.0, session_timeout=90.0, heartbeat_interval=3.0)
    group.start()
    group.step()
    group.advance(31.0)
    assert group.phase() is ClassicState.LEAVING
    assert group.count(LeaveGroupRequest) == 0
    group.give_id()
    assert group.leaving().member_id == MEMBER
    group.respond_to_leave()
    assert group.phase() is ClassicState.UNJOINED
    assert group.count(JoinGroupRequest) == 1
