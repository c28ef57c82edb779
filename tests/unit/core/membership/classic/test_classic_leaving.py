"""The ways out of a classic group, from every phase: closing, unsubscribing, idling."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.core.scripted_brokers import tp
from unit.core.scripted_group import (
    MEMBER,
    ScriptedGroup,
    foreign,
    orders,
    wait_until,
    with_a_task,
    with_work,
)

from asyncrevoke.core.io.deadline import Deadline
from asyncrevoke.core.io.effects import NotifyKind
from asyncrevoke.core.membership.classic.state_table import ClassicState
from asyncrevoke.protocol.messages import (
    ErrorCode,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MetadataRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable


BOTH = pytest.mark.parametrize("eager", [True, False], ids=["eager", "cooperative"])
EITHER_WAY = pytest.mark.parametrize(
    "leave", [ScriptedGroup.close, ScriptedGroup.unsubscribe], ids=["close", "unsubscribe"]
)


# --- STABLE -------------------------------------------------------------------------------------


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
    group.answer_leave()
    assert group.completed[call_id].error is None
    assert group.phase() is ClassicState.UNJOINED
    assert group.heard(NotifyKind.REVOKED) == [orders(0, 1)]
    assert group.heard(NotifyKind.LOST) == []


@BOTH
@EITHER_WAY
def test_what_was_done_is_committed_before_leaving(eager: bool, leave: Callable[..., int]) -> None:
    group, _ = with_work(eager)
    call_id = leave(group)
    assert group.phase() is ClassicState.REVOKING
    _, request = group.only(OffsetCommitRequest)
    assert (request.generation, request.member_id) == (1, MEMBER)
    assert not group.sends(LeaveGroupRequest)
    assert group.answer_commit() == {tp(0): 1}
    group.answer_leave()
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
    assert group.answer_commit() == {tp(0): 1}
    assert group.phase() is ClassicState.LEAVING


@BOTH
@EITHER_WAY
def test_a_task_that_does_not_end_is_left_behind_in_time_to_leave_properly(
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


def refuse_commits_until(group: ScriptedGroup, done: Callable[[], object], within: float) -> float:
    """The coordinator answers each OffsetCommit with a retriable error, and heartbeats well."""
    group.pulse = ErrorCode.none
    begun = group.now
    while not done():
        assert group.now < begun + within, f"not within {within} s"
        for send in group.sends(OffsetCommitRequest):
            group.answer_commit(ErrorCode.coordinator_load_in_progress, send=send)
        group.advance(0.05)
    return group.now - begun


@BOTH
@EITHER_WAY
def test_partitions_whose_commits_fail_are_lost_before_close_timeout_and_the_group_is_left(
    eager: bool, leave: Callable[..., int]
) -> None:
    group, _ = with_work(eager, close_timeout=8.0)
    call_id = leave(group)
    took = refuse_commits_until(group, lambda: group.sends(LeaveGroupRequest), 30.0)
    assert took == pytest.approx(6.0, abs=0.2)
    assert group.heard(NotifyKind.LOST) == [orders(0)]
    group.answer_leave()
    assert group.completed[call_id].error is None
    assert group.phase() is ClassicState.UNJOINED


@BOTH
@EITHER_WAY
def test_leaving_ends_at_close_timeout_when_no_broker_answers(
    eager: bool, leave: Callable[..., int]
) -> None:
    group, _ = with_work(eager, close_timeout=8.0)
    call_id = leave(group)
    took = refuse_commits_until(group, lambda: call_id in group.completed, 30.0)
    assert took == pytest.approx(8.0, abs=0.1)
    assert group.assigned == frozenset()


@BOTH
def test_a_consumer_that_has_unsubscribed_without_its_commits_may_subscribe_again(
    eager: bool,
) -> None:
    group, _ = with_work(eager, close_timeout=8.0)
    call_id = group.unsubscribe()
    refuse_commits_until(group, lambda: call_id in group.completed, 30.0)
    group.subscribe("orders")
    group.give_id()
    group.rejoin(0)
    assert group.assigned == orders(0)
    second = group.unsubscribe()
    group.reply(group.sends(LeaveGroupRequest)[-1], LeaveGroupResponse(error=ErrorCode.none))
    assert second in group.completed


@BOTH
def test_closing_while_unsubscribing_does_not_begin_the_time_anew(eager: bool) -> None:
    group, _ = with_work(eager, close_timeout=8.0)
    begun = group.now
    group.unsubscribe()
    refuse_commits_until(group, lambda: group.now >= begun + 4.0, 30.0)
    closed = group.close()
    refuse_commits_until(group, lambda: closed in group.completed, 30.0)
    assert group.now - begun == pytest.approx(8.0, abs=0.1)


@BOTH
def test_closing_ends_at_the_deadline_that_it_is_given(eager: bool) -> None:
    group, _ = with_work(eager, close_timeout=25.0)
    closed = group.core.close(group.now, deadline=Deadline.after(group.now, 3.0))
    group.settle()
    took = refuse_commits_until(group, lambda: closed in group.completed, 30.0)
    assert took == pytest.approx(3.0, abs=0.1)


@BOTH
def test_closing_again_may_stop_the_waiting(eager: bool) -> None:
    group, _ = with_a_task(eager)
    first = group.close()
    assert group.phase() is ClassicState.REVOKING
    second = group.close(graceful=False)
    group.answer_leave()
    assert first in group.completed
    assert second in group.completed


@BOTH
def test_closing_a_second_time_is_answered_at_once(eager: bool) -> None:
    group = ScriptedGroup(eager=eager)
    group.become_member(0)
    group.close()
    group.answer_leave()
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
    group.answer_commit()
    assert group.phase() is ClassicState.LEAVING
    assert group.count(JoinGroupRequest) == joins


@BOTH
def test_tasks_are_waited_for_no_longer_than_a_rebalance_waits_for_us(eager: bool) -> None:
    group, record = with_a_task(eager, rebalance_timeout=10.0)
    group.close()
    group.answer_beat()
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
    group.answer_beat(error)
    assert group.heard(NotifyKind.LOST) == [orders(0)]  # 1 was released
    # Who has an id still waits at the coordinator as a member that would hold up others.
    assert bool(group.sends(LeaveGroupRequest)) == leaves
    if leaves:
        group.answer_leave()
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
    group.answer_commit()
    assert group.phase() is ClassicState.LEAVING
    assert group.count(JoinGroupRequest) == joins


# --- AWAIT_JOIN ---------------------------------------------------------------------------------


@EITHER_WAY
def test_with_a_parked_join_we_commit_with_the_old_generation_and_leave(
    leave: Callable[..., int],
) -> None:
    group, _ = with_work(eager=False)
    group.rebalance()
    parked, _ = group.only(JoinGroupRequest)
    call_id = leave(group)
    assert group.only(OffsetCommitRequest)[1].generation == 1
    group.answer_commit()
    assert group.leaving().member_id == MEMBER
    answer = JoinGroupResponse(
        error=ErrorCode.none, generation=2, leader="another", member_id=MEMBER
    )
    group.reply(parked, answer)
    assert group.phase() is ClassicState.LEAVING
    group.answer_leave()
    assert call_id in group.completed
    assert not group.sends(SyncGroupRequest)


def test_who_joins_again_after_a_parked_join_was_given_up_does_not_wait_behind_it() -> None:
    group = ScriptedGroup(group_instance_id="static", assignors=("cooperative-sticky",))
    group.become_member(0)
    group.rebalance()
    parked, _ = group.only(JoinGroupRequest)
    group.unsubscribe()
    assert group.phase() is ClassicState.UNJOINED, "static members do not tell that they go"
    group.core.subscribe(group.now, ["orders"])
    group.settle()
    (joining,) = group.sends(JoinGroupRequest)
    assert joining.request_id != parked.request_id, "its connection was dropped"


@EITHER_WAY
def test_an_eager_member_with_a_parked_join_leaves_at_once(leave: Callable[..., int]) -> None:
    group = ScriptedGroup(eager=True)
    group.become_member(0)
    group.rebalance()
    group.step()
    group.step()
    assert group.phase() is ClassicState.AWAIT_JOIN
    leave(group)
    assert group.leaving().member_id == MEMBER


@EITHER_WAY
@pytest.mark.parametrize("leads", [True, False])
def test_a_join_that_is_answered_while_we_drain_is_synced_first(
    leave: Callable[..., int], leads: bool
) -> None:
    group, record = with_a_task(eager=False)
    group.rebalance()
    call_id = leave(group)
    group.answer_join(leads=leads, others=(foreign("m-2"),) if leads else ())
    if leads:
        assert group.planned()["m-2"]
    group.complete(record)
    assert group.phase() is ClassicState.AWAIT_SYNC  # others wait for what the leader assigns
    assert not group.sends(LeaveGroupRequest)
    group.answer_sync(tp(0), tp(1))
    assert group.phase() is ClassicState.REVOKING
    assert group.assigned == orders(0)  # 1 was never ours
    assert group.only(OffsetCommitRequest)[1].generation == 2
    group.answer_commit()
    group.answer_leave()
    assert call_id in group.completed
    assert group.heard(NotifyKind.ASSIGNED) == [orders(0)]


@EITHER_WAY
def test_a_parked_join_that_evicts_us_while_we_drain_ends_it(leave: Callable[..., int]) -> None:
    group, _ = with_work(eager=False)
    group.rebalance()
    call_id = leave(group)
    group.answer_join(ErrorCode.unknown_member_id)
    assert call_id in group.completed
    assert group.phase() is ClassicState.UNJOINED
    assert group.heard(NotifyKind.LOST) == [orders(0)]


# --- AWAIT_SYNC ---------------------------------------------------------------------------------


@BOTH
@EITHER_WAY
@pytest.mark.parametrize("leads", [True, False])
def test_an_answered_join_is_synced_before_leaving_and_added_partitions_are_never_seen(
    eager: bool, leave: Callable[..., int], leads: bool
) -> None:
    group = ScriptedGroup(eager=eager)
    group.start()
    group.give_id()
    group.answer_join(leads=leads)
    call_id = leave(group)
    assert group.phase() is ClassicState.AWAIT_SYNC
    group.answer_sync(tp(0), tp(1))
    assert group.assigned == frozenset()
    group.answer_leave()
    assert call_id in group.completed
    assert group.heard(NotifyKind.ASSIGNED) == []


@EITHER_WAY
def test_a_leader_that_waits_for_metadata_still_assigns_before_it_leaves(
    leave: Callable[..., int],
) -> None:
    group = ScriptedGroup(partitions={"orders": 2, "bills": 2})
    group.start()
    group.give_id()
    group.silent.add(MetadataRequest)
    group.answer_join(leads=True, others=(foreign("m-2", "bills"),))
    leave(group)
    send, request = group.only(MetadataRequest)
    group.reply(send, group._metadata(request.topics))
    assert group.planned()["m-2"] == {tp(0, "bills"), tp(1, "bills")}
    group.answer_sync(tp(0))
    assert group.phase() is ClassicState.LEAVING


@EITHER_WAY
@pytest.mark.parametrize("error", [ErrorCode.not_coordinator, None])
def test_a_sync_without_an_answer_is_made_up_for_before_the_final_commit(
    leave: Callable[..., int], error: ErrorCode | None
) -> None:
    # The next coordinator would refuse commits of a generation that it does not know.
    group, _ = with_work(eager=False)
    group.rebalance()
    group.answer_join()
    call_id = leave(group)
    if error is None:
        group.fail(group.only(SyncGroupRequest)[0])
    else:
        group.answer_sync(error=error)
    wait_until(group, lambda: group.sends(JoinGroupRequest), 2.0)
    group.rejoin(0)
    assert group.only(OffsetCommitRequest)[1].generation == 3
    assert group.answer_commit() == {tp(0): 1}
    group.answer_leave()
    assert call_id in group.completed
    assert group.heard(NotifyKind.LOST) == []


@EITHER_WAY
def test_a_sync_that_another_rebalance_ends_leaves_after_the_final_commit(
    leave: Callable[..., int],
) -> None:
    group, _ = with_work(eager=False)
    group.rebalance()
    group.answer_join()
    call_id = leave(group)
    assert group.phase() is ClassicState.AWAIT_SYNC
    group.answer_sync(error=ErrorCode.rebalance_in_progress)
    joins = group.count(JoinGroupRequest)
    wait_until(group, lambda: group.sends(OffsetCommitRequest), 2.0)
    assert group.only(OffsetCommitRequest)[1].generation == 2
    assert group.answer_commit() == {tp(0): 1}
    group.answer_leave()
    assert call_id in group.completed
    assert group.count(JoinGroupRequest) == joins
    assert group.heard(NotifyKind.LOST) == []


@BOTH
@EITHER_WAY
@pytest.mark.parametrize(
    ("error", "leaves"),
    [(ErrorCode.unknown_member_id, False), (ErrorCode.illegal_generation, True)],
)
def test_a_sync_that_evicts_us_ends_leaving(
    eager: bool, leave: Callable[..., int], error: ErrorCode, leaves: bool
) -> None:
    group = ScriptedGroup(eager=eager)
    group.start()
    group.give_id()
    group.answer_join()
    call_id = leave(group)
    group.answer_sync(error=error)
    if leaves:
        group.answer_leave()
    assert call_id in group.completed
    assert group.phase() is ClassicState.UNJOINED


# --- AWAIT_ID -----------------------------------------------------------------------------------


@BOTH
@EITHER_WAY
def test_we_leave_with_the_id_that_arrives(eager: bool, leave: Callable[..., int]) -> None:
    group = ScriptedGroup(eager=eager)
    group.start()
    call_id = leave(group)
    assert call_id not in group.completed
    group.give_id()
    # Otherwise the coordinator would wait for a member that never comes.
    assert group.leaving().member_id == MEMBER
    group.answer_leave()
    assert call_id in group.completed
    assert group.count(JoinGroupRequest) == 1


@BOTH
@EITHER_WAY
def test_without_an_id_there_is_nothing_to_leave(eager: bool, leave: Callable[..., int]) -> None:
    group = ScriptedGroup(eager=eager)
    group.start()
    call_id = leave(group)
    group.fail(group.only(JoinGroupRequest)[0])
    assert call_id in group.completed
    group.advance(10.0)
    assert group.count(JoinGroupRequest) == 1
    assert group.count(LeaveGroupRequest) == 0


@BOTH
@EITHER_WAY
def test_who_never_found_the_coordinator_has_left_at_once(
    eager: bool, leave: Callable[..., int]
) -> None:
    group = ScriptedGroup(eager=eager)
    group.silent.add(FindCoordinatorRequest)
    group.start()
    assert group.phase() is ClassicState.AWAIT_ID
    assert leave(group) in group.completed


@EITHER_WAY
def test_who_is_refused_for_good_while_leaving_has_left(leave: Callable[..., int]) -> None:
    group = ScriptedGroup()
    group.start()
    call_id = leave(group)
    group.answer_join(ErrorCode.group_authorization_failed)
    assert group.phase() is ClassicState.FATAL
    assert call_id in group.completed
