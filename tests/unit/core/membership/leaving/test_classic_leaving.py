"""The ways out of a classic group from a stable generation: closing, unsubscribing, idling."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.core.membership.leaving.ways_to_leave import BOTH, EITHER_WAY
from unit.core.scripted_brokers import tp
from unit.core.scripted_group import (
    MEMBER,
    ScriptedGroup,
    orders,
    wait_until,
    with_a_task,
    with_work,
)

from asyncrevoke.client.core.io.deadline import Deadline
from asyncrevoke.client.core.io.effects import FailureKind, NotifyKind
from asyncrevoke.client.core.membership.classic.state_table import ClassicState
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable


@BOTH
@EITHER_WAY
def test_who_owes_nothing_leaves_at_once(eager: bool, leave: Callable[..., int]) -> None:
    group = ScriptedGroup(eager=eager)
    group.become_member(0, 1)
    call_id = leave(group)
    assert group.phase() is ClassicState.LEAVING
    assert group.leaving().member_id == MEMBER
    assert group.assigned == frozenset()
    assert call_id not in group.completed
    group.respond_to_leave()
    assert group.completed[call_id].error is None
    assert group.phase() is ClassicState.UNJOINED
    assert group.heard(NotifyKind.REVOKED) == [orders(0, 1)]
    assert group.heard(NotifyKind.LOST) == []


@pytest.mark.parametrize(
    ("response", "fields"),
    [
        (ErrorCode.none, {}),
        (ErrorCode.unknown_member_id, {"error": "unknown_member_id"}),
    ],
)
def test_the_log_line_of_leaving_has_an_error_only_if_there_is_one(
    response: ErrorCode, fields: dict[str, str]
) -> None:
    group = ScriptedGroup()
    group.become_member(0, 1)
    group.close()
    group.respond_to_leave(response)
    (line,) = group.named("left the group")
    assert dict(line.fields) == fields


def test_the_log_line_of_leaving_says_why_there_is_no_readable_response() -> None:
    group = ScriptedGroup()
    group.become_member(0, 1)
    group.close()
    send, _ = group.only(LeaveGroupRequest)
    group.fail(send, FailureKind.MALFORMED)
    (line,) = group.named("left the group")
    assert dict(line.fields) == {"error": "gone"}


@BOTH
@EITHER_WAY
def test_what_was_done_is_committed_before_leaving(eager: bool, leave: Callable[..., int]) -> None:
    group, _ = with_work(eager)
    call_id = leave(group)
    assert group.phase() is ClassicState.REVOKING
    _, request = group.only(OffsetCommitRequest)
    assert (request.generation, request.member_id) == (1, MEMBER)
    assert not group.sends(LeaveGroupRequest)
    assert group.respond_to_commit() == {tp(0): 1}
    group.respond_to_leave()
    assert call_id in group.completed


@BOTH
@EITHER_WAY
def test_a_task_is_waited_for_and_its_record_counts(eager: bool, leave: Callable[..., int]) -> None:
    group, record = with_a_task(eager)
    leave(group)
    group.pulse = ErrorCode.none
    group.advance(10.0)
    assert group.phase() is ClassicState.REVOKING
    assert group.complete(record)
    assert group.respond_to_commit() == {tp(0): 1}
    assert group.phase() is ClassicState.LEAVING


@BOTH
@EITHER_WAY
def test_a_task_that_does_not_exit_is_abandoned_in_time_for_the_final_commit_and_leave(
    eager: bool, leave: Callable[..., int]
) -> None:
    group, record = with_a_task(eager, close_timeout=25.0)
    leave(group)
    group.pulse = ErrorCode.none
    assert wait_until(group, lambda: group.phase() is ClassicState.LEAVING, 25.0) == pytest.approx(
        20.0, abs=0.1
    )
    assert not group.complete(record)
    assert group.count(OffsetCommitRequest) == 0


def reject_commits_until(group: ScriptedGroup, done: Callable[[], object], within: float) -> float:
    """The coordinator rejects each OffsetCommit with a retriable error, and confirms heartbeats."""
    group.pulse = ErrorCode.none
    begun = group.now
    while not done():
        assert group.now < begun + within, f"not within {within} s"
        for send in group.sends(OffsetCommitRequest):
            group.respond_to_commit(ErrorCode.coordinator_load_in_progress, send=send)
        group.advance(0.05)
    return group.now - begun


@BOTH
@EITHER_WAY
def test_partitions_whose_commits_fail_are_lost_before_close_timeout_and_the_group_is_left(
    eager: bool, leave: Callable[..., int]
) -> None:
    group, _ = with_work(eager, close_timeout=8.0)
    call_id = leave(group)
    took = reject_commits_until(group, lambda: group.sends(LeaveGroupRequest), 30.0)
    assert took == pytest.approx(6.0, abs=0.2)
    assert group.heard(NotifyKind.LOST) == [orders(0)]
    group.respond_to_leave()
    assert group.completed[call_id].error is None
    assert group.phase() is ClassicState.UNJOINED


@BOTH
@EITHER_WAY
def test_leaving_ends_at_close_timeout_when_no_broker_responds(
    eager: bool, leave: Callable[..., int]
) -> None:
    group, _ = with_work(eager, close_timeout=8.0)
    call_id = leave(group)
    took = reject_commits_until(group, lambda: call_id in group.completed, 30.0)
    assert took == pytest.approx(8.0, abs=0.1)
    assert group.assigned == frozenset()


@BOTH
def test_a_consumer_that_has_unsubscribed_without_its_commits_may_subscribe_again(
    eager: bool,
) -> None:
    group, _ = with_work(eager, close_timeout=8.0)
    call_id = group.unsubscribe()
    reject_commits_until(group, lambda: call_id in group.completed, 30.0)
    group.subscribe("orders")
    group.give_id()
    group.rejoin(0)
    assert group.assigned == orders(0)
    second = group.unsubscribe()
    group.reply(group.sends(LeaveGroupRequest)[-1], LeaveGroupResponse(error=ErrorCode.none))
    assert second in group.completed


@BOTH
def test_closing_while_unsubscribing_does_not_begin_the_time_again(eager: bool) -> None:
    group, _ = with_work(eager, close_timeout=8.0)
    begun = group.now
    group.unsubscribe()
    reject_commits_until(group, lambda: group.now >= begun + 4.0, 30.0)
    closed = group.close()
    reject_commits_until(group, lambda: closed in group.completed, 30.0)
    assert group.now - begun == pytest.approx(8.0, abs=0.1)


@BOTH
def test_closing_ends_at_the_deadline_that_it_is_given(eager: bool) -> None:
    group, _ = with_work(eager, close_timeout=25.0)
    closed = group.core.close(group.now, deadline=Deadline.after(group.now, 3.0))
    group.run_until_idle()
    took = reject_commits_until(group, lambda: closed in group.completed, 30.0)
    assert took == pytest.approx(3.0, abs=0.1)


@BOTH
def test_closing_again_may_stop_the_waiting(eager: bool) -> None:
    group, _ = with_a_task(eager)
    first = group.close()
    assert group.phase() is ClassicState.REVOKING
    second = group.close(graceful=False)
    group.respond_to_leave()
    assert first in group.completed
    assert second in group.completed


@BOTH
def test_closing_a_second_time_is_completed_at_once(eager: bool) -> None:
    group = ScriptedGroup(eager=eager)
    group.become_member(0)
    group.close()
    group.respond_to_leave()
    assert group.close() in group.completed
    assert group.count(LeaveGroupRequest) == 1


@BOTH
@EITHER_WAY
def test_a_rebalance_meanwhile_is_not_joined(eager: bool, leave: Callable[..., int]) -> None:
    group, _ = with_work(eager)
    leave(group)
    joins = group.count(JoinGroupRequest)
    group.rebalance()
    group.rebalance()
    assert group.phase() is ClassicState.REVOKING
    group.respond_to_commit()
    assert group.phase() is ClassicState.LEAVING
    assert group.count(JoinGroupRequest) == joins


@BOTH
def test_tasks_are_waited_for_no_longer_than_a_rebalance_waits_for_us(eager: bool) -> None:
    group, record = with_a_task(eager, rebalance_timeout=10.0)
    group.close()
    group.respond_to_beat()
    confirmed = group.sent_at(HeartbeatRequest)
    group.rebalance()
    group.pulse = ErrorCode.rebalance_in_progress
    wait_until(group, lambda: group.phase() is ClassicState.LEAVING, 15.0)
    assert group.now < confirmed + 10.0
    assert not group.complete(record)


@BOTH
@EITHER_WAY
@pytest.mark.parametrize(
    ("error", "leaves"),
    [(ErrorCode.unknown_member_id, False), (ErrorCode.illegal_generation, True)],
)
def test_who_is_evicted_while_leaving_has_left(
    eager: bool, leave: Callable[..., int], error: ErrorCode, leaves: bool
) -> None:
    group, _ = with_work(eager)
    call_id = leave(group)
    group.respond_to_beat(error)
    assert group.heard(NotifyKind.LOST) == [orders(0)]  # 1 was released
    # Who has an id still waits at the coordinator as a member that would hold up others.
    assert bool(group.sends(LeaveGroupRequest)) == leaves
    if leaves:
        group.respond_to_leave()
    assert call_id in group.completed
    assert group.count(JoinGroupRequest) == 2


# --- DRAIN --------------------------------------------------------------------------------------


@BOTH
@EITHER_WAY
def test_a_drain_under_way_ends_with_leaving_instead_of_joining(
    eager: bool, leave: Callable[..., int]
) -> None:
    group, record = with_a_task(eager)
    group.rebalance()
    if not eager:
        group.rejoin()
    group.step()
    assert group.phase() is ClassicState.REVOKING
    joins = group.count(JoinGroupRequest)
    leave(group)
    group.complete(record)
    group.respond_to_commit()
    assert group.phase() is ClassicState.LEAVING
    assert group.count(JoinGroupRequest) == joins
