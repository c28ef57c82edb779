"""Classic members that have nothing to leave, that get no response, or whose loop idles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.core.scripted_brokers import tp
from unit.core.scripted_group import (
    MEMBER,
    ScriptedGroup,
    orders,
    owned,
    subscription_of,
    wait_until,
    with_work,
)

from asyncrevoke.client.core.io.effects import FailureKind, NotifyKind
from asyncrevoke.client.core.membership.classic.state_table import ClassicState
from asyncrevoke.client.errors import (
    ConsumerClosedError,
    GroupAuthorizationError,
    PartitionLostError,
)
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    OffsetCommitRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from asyncrevoke.client.config import ConsumerOptions

BOTH = pytest.mark.parametrize("eager", [True, False], ids=["eager", "cooperative"])
EITHER_WAY = pytest.mark.parametrize(
    "leave", [ScriptedGroup.close, ScriptedGroup.unsubscribe], ids=["close", "unsubscribe"]
)


# --- UNJOINED, LEAVING, FATAL -------------------------------------------------------------------


@EITHER_WAY
def test_who_has_not_joined_has_left_at_once(leave: Callable[..., int]) -> None:
    group = ScriptedGroup(pattern="none-.*")
    group.start()
    assert leave(group) in group.completed


def test_who_has_not_started_has_closed_at_once() -> None:
    group = ScriptedGroup()
    assert group.close() in group.completed
    assert group.sent == []


@BOTH
@EITHER_WAY
def test_an_idle_member_that_is_leaving_already_leaves_once(
    eager: bool, leave: Callable[..., int]
) -> None:
    group = idle(eager)
    call_id = leave(group)
    assert call_id not in group.completed
    group.respond_to_leave()
    assert call_id in group.completed
    group.advance(10.0)
    assert group.count(LeaveGroupRequest) == 1
    assert group.count(JoinGroupRequest) == 2


@BOTH
@EITHER_WAY
def test_after_a_fatal_error_there_is_nothing_to_leave(
    eager: bool, leave: Callable[..., int]
) -> None:
    group = ScriptedGroup(eager=eager)
    group.become_member(0)
    group.respond_to_beat(ErrorCode.group_authorization_failed)
    assert leave(group) in group.completed
    assert group.count(LeaveGroupRequest) == 0
    assert group.phase() is ClassicState.FATAL


@EITHER_WAY
@pytest.mark.parametrize("owing", [True, False])
def test_a_fatal_error_while_leaving_ends_it(leave: Callable[..., int], owing: bool) -> None:
    group, _ = with_work(eager=False)
    if not owing:
        group.core.commit(group.now)
        group.run_until_idle()
        group.respond_to_commit()
        beat = group.beat()
        call_id = leave(group)
        assert group.phase() is ClassicState.LEAVING
        group.core.membership.fail(group.now, GroupAuthorizationError("no"))
        group.run_until_idle()
        assert beat.request_id in group.open
    else:
        call_id = leave(group)
        group.respond_to_beat(ErrorCode.group_authorization_failed)
    assert group.phase() is ClassicState.FATAL
    assert call_id in group.completed
    group.advance(60.0)
    assert not group.named(
        "left without notifying the coordinator; partitions move at session timeout"
    )


@BOTH
@pytest.mark.parametrize(
    "error",
    [ErrorCode.unknown_member_id, ErrorCode.not_coordinator, ErrorCode.unknown_server_error],
)
def test_any_response_to_leave_group_ends_it(eager: bool, error: ErrorCode) -> None:
    group = ScriptedGroup(eager=eager)
    group.become_member(0)
    call_id = group.close()
    group.respond_to_leave(error)
    assert call_id in group.completed
    assert group.count(LeaveGroupRequest) == 1


@BOTH
@EITHER_WAY
@pytest.mark.parametrize("kind", [FailureKind.DISCONNECTED, FailureKind.TIMEOUT])
def test_leaving_without_a_response_has_left(
    eager: bool, leave: Callable[..., int], kind: FailureKind
) -> None:
    group = ScriptedGroup(eager=eager)
    group.become_member(0)
    call_id = leave(group)
    send, _ = group.only(LeaveGroupRequest)
    assert send.timeout <= group.config.request_timeout
    group.fail(send, kind)
    assert call_id in group.completed


@BOTH
@EITHER_WAY
def test_a_coordinator_that_cannot_be_found_does_not_keep_us_from_leaving(
    eager: bool, leave: Callable[..., int]
) -> None:
    group = ScriptedGroup(eager=eager)
    group.become_member(0)
    group.silent.add(FindCoordinatorRequest)
    group.fail(group.beat(), FailureKind.DISCONNECTED)
    call_id = leave(group)
    assert group.phase() is ClassicState.LEAVING
    assert wait_until(group, lambda: call_id in group.completed, 6.0) < 6.0
    assert group.phase() is ClassicState.UNJOINED
    group.silent.clear()
    for search in group.sends(FindCoordinatorRequest):
        group._respond_automatically(search)
    group.advance(10.0)
    assert group.count(LeaveGroupRequest) == 0


# --- bounded ------------------------------------------------------------------------------------


def _to_await_id(group: ScriptedGroup) -> None:
    group.start()


def _to_await_join(group: ScriptedGroup) -> None:
    _to_stable(group)
    group.rebalance()


def _to_await_sync(group: ScriptedGroup) -> None:
    _to_await_join(group)
    group.respond_to_join()


def _to_stable(group: ScriptedGroup) -> None:
    group.become_member(0)
    (record,) = group.receive(0)
    group.complete(record)


def _to_drain(group: ScriptedGroup) -> None:
    _to_await_sync(group)
    group.respond_to_sync()


def _to_leaving(group: ScriptedGroup) -> None:
    group.become_member(0)
    group.step()
    group.advance(31.0)
    assert group.phase() is ClassicState.LEAVING


@pytest.mark.parametrize(
    "reach",
    [_to_await_id, _to_await_join, _to_await_sync, _to_stable, _to_drain, _to_leaving],
    ids=lambda reach: reach.__name__[4:],
)
@pytest.mark.parametrize("graceful", [True, False])
def test_closing_takes_no_longer_than_its_timeout_without_responses(
    reach: Callable[[ScriptedGroup], None], graceful: bool
) -> None:
    group = ScriptedGroup(
        commit_mode="ack", commit_interval=60.0, close_timeout=10.0, max_poll_interval=30.0
    )
    reach(group)
    waiting = group.core.commit(group.now)
    call_id = group.close(graceful=graceful)
    group.advance(10.0)
    assert call_id in group.completed
    assert group.core.leaving.closed
    assert group.assigned == frozenset()
    completed = group.completed[waiting]
    assert isinstance(completed.error, (ConsumerClosedError, PartitionLostError, type(None)))
    sent = len(group.sent)
    group.advance(100.0)
    assert not [
        send
        for send in group.sent[sent:]
        if isinstance(send.message, (JoinGroupRequest, HeartbeatRequest, OffsetCommitRequest))
    ]


# --- static members -----------------------------------------------------------------------------


@BOTH
@EITHER_WAY
def test_a_static_member_commits_and_goes_without_leaving(
    eager: bool, leave: Callable[..., int]
) -> None:
    group = ScriptedGroup(
        eager=eager, commit_mode="ack", commit_interval=60.0, group_instance_id="one"
    )
    group.start()
    group.respond_to_join()
    group.respond_to_sync(tp(0))
    (record,) = group.receive(0)
    group.complete(record)
    call_id = leave(group)
    assert group.respond_to_commit() == {tp(0): 1}
    assert call_id in group.completed
    assert group.count(LeaveGroupRequest) == 0
    beats = group.count(HeartbeatRequest)
    group.advance(10.0)
    assert group.count(HeartbeatRequest) == beats


@BOTH
def test_a_static_member_leaves_when_closed_with_leave(eager: bool) -> None:
    group = ScriptedGroup(eager=eager, group_instance_id="one")
    group.start()
    group.respond_to_join()
    group.respond_to_sync(tp(0))
    group.core.leave_at_close(True)
    call_id = group.close()
    request = group.leaving()
    assert (request.member_id, request.group_instance_id) == (MEMBER, "one")
    group.respond_to_leave()
    assert call_id in group.completed


@BOTH
def test_a_dynamic_member_closed_without_leaving_commits_and_stops_heartbeats(eager: bool) -> None:
    group, _ = with_work(eager)
    group.core.leave_at_close(False)
    call_id = group.close()
    assert group.respond_to_commit() == {tp(0): 1}
    assert call_id in group.completed
    assert group.count(LeaveGroupRequest) == 0


# --- unsubscribing ------------------------------------------------------------------------------


@BOTH
def test_after_unsubscribing_a_new_subscription_joins_as_a_new_member(eager: bool) -> None:
    group = ScriptedGroup(partitions={"orders": 2, "bills": 2}, eager=eager)
    group.become_member(0)
    group.unsubscribe()
    group.respond_to_leave()
    assert group.core.subscription_state.subscription() == frozenset()
    group.advance(10.0)
    assert group.count(JoinGroupRequest) == 2
    group.subscribe("bills")
    request = group.joining()
    assert request.member_id == ""
    assert subscription_of(request).topics == ("bills",)
    assert (owned(request), subscription_of(request).generation) == (frozenset(), -1)
    group.give_id()
    group.respond_to_join()
    group.respond_to_sync(tp(0, "bills"))
    assert group.receive(0, topic="bills")


# --- idling (max_poll_interval) -----------------------------------------------------------------


def idle(eager: bool, **options: Unpack[ConsumerOptions]) -> ScriptedGroup:
    """A member whose loop has taken a batch and not come back in time."""
    options.setdefault("max_poll_interval", 30.0)
    group = ScriptedGroup(eager=eager, **options)
    group.start()
    if group.config.group_instance_id is None:
        group.give_id()
    group.rejoin(0, 1)
    group.receive(0)
    group.pulse = ErrorCode.none
    group.advance(31.0)
    assert group.assigned == frozenset()
    return group


@BOTH
def test_a_loop_that_does_not_come_back_hands_everything_over(eager: bool) -> None:
    group = idle(eager)
    assert group.leaving().member_id == MEMBER
    assert group.heard(NotifyKind.LOST) == [orders(0, 1)]
    assert group.count(OffsetCommitRequest) == 0  # the batch may be half done
    (line,) = group.named("max_poll_interval exceeded; leaving group")
    assert line.level == "warning"


@BOTH
def test_a_loop_that_polls_again_gets_its_lost_partitions_and_rejoins(eager: bool) -> None:
    group = idle(eager)
    group.respond_to_leave()
    group.advance(100.0)
    assert group.count(JoinGroupRequest) == 2
    result = group.step()
    assert (result.lost, list(result.records)) == (orders(0, 1), [])
    assert group.joining().member_id == ""
    group.give_id()
    group.rejoin(0)
    (again,) = group.step().records
    assert again.offset == 0


@BOTH
def test_a_loop_that_comes_back_while_we_leave_joins_after_it(eager: bool) -> None:
    group = idle(eager)
    assert group.step().lost == orders(0, 1)
    assert group.count(JoinGroupRequest) == 2
    group.respond_to_leave()
    assert group.joining().member_id == ""


@BOTH
def test_an_idle_static_member_only_falls_silent(eager: bool) -> None:
    group = idle(eager, group_instance_id="one")
    assert group.count(LeaveGroupRequest) == 0
    beats = group.count(HeartbeatRequest)
    group.advance(60.0)
    assert group.count(HeartbeatRequest) == beats
    assert group.step().lost == orders(0, 1)
    assert group.joining().group_instance_id == "one"


@BOTH
def test_an_idle_member_is_not_called_back_by_what_happens_around_it(eager: bool) -> None:
    group = idle(eager, metadata_max_age=5.0)
    group.respond_to_leave()
    group.partitions["orders"] = 8
    group.advance(20.0)
    group.subscribe("orders", "bills")
    assert group.count(JoinGroupRequest) == 2
    group.step()
    assert subscription_of(group.joining()).topics == ("bills", "orders")


@pytest.mark.parametrize("has_response", [True, False])
def test_an_idle_member_forgets_the_join_that_it_waits_for(has_response: bool) -> None:
    group = ScriptedGroup(max_poll_interval=30.0)
    group.become_member(0)
    group.step()
    group.rebalance()
    parked, _ = group.only(JoinGroupRequest)
    if has_response:
        group.respond_to_join()
    group.pulse = ErrorCode.none
    group.advance(31.0)
    assert group.phase() is ClassicState.LEAVING
    if not has_response:
        response = JoinGroupResponse(
            error=ErrorCode.none, generation=2, leader="another", member_id=MEMBER
        )
        group.reply(parked, response)
    group.respond_to_leave()
    for join in group.sends(JoinGroupRequest):
        group.reply(join, JoinGroupResponse(error=ErrorCode.unknown_member_id))
    assert group.phase() is ClassicState.UNJOINED


@BOTH
def test_waiting_inside_the_library_is_not_idling(eager: bool) -> None:
    group = ScriptedGroup(eager=eager, max_poll_interval=30.0)
    group.become_member(0)
    group.step()
    assert group.poll() is None
    group.pulse = ErrorCode.none
    group.advance(100.0)
    assert group.phase() is ClassicState.STABLE
