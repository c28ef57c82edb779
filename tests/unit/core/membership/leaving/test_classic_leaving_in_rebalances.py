"""The ways out of a classic group while a JoinGroup or SyncGroup is under way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.core.membership.leaving.ways_to_leave import BOTH, EITHER_WAY
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

from asyncrevoke.client.core.io.effects import NotifyKind
from asyncrevoke.client.core.membership.classic.state_table import ClassicState
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    FindCoordinatorRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    MetadataRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable


@EITHER_WAY
def test_with_a_pending_join_we_commit_with_the_old_generation_and_leave(
    leave: Callable[..., int],
) -> None:
    group, _ = with_work(eager=False)
    group.rebalance()
    parked, _ = group.only(JoinGroupRequest)
    call_id = leave(group)
    assert group.only(OffsetCommitRequest)[1].generation == 1
    group.respond_to_commit()
    assert group.leaving().member_id == MEMBER
    response = JoinGroupResponse(
        error=ErrorCode.none, generation=2, leader="another", member_id=MEMBER
    )
    group.reply(parked, response)
    assert group.phase() is ClassicState.LEAVING
    group.respond_to_leave()
    assert call_id in group.completed
    assert not group.sends(SyncGroupRequest)


def test_a_rejoin_after_an_abandoned_join_does_not_wait_for_it() -> None:
    group = ScriptedGroup(group_instance_id="static", assignors=("cooperative-sticky",))
    group.become_member(0)
    group.rebalance()
    parked, _ = group.only(JoinGroupRequest)
    group.unsubscribe()
    assert group.phase() is ClassicState.UNJOINED, "static members do not tell that they go"
    group.core.subscription_state.subscribe(group.now, ["orders"])
    group.run_until_idle()
    (joining,) = group.sends(JoinGroupRequest)
    assert joining.request_id != parked.request_id, "its connection was dropped"


@EITHER_WAY
def test_an_eager_member_with_a_pending_join_leaves_at_once(leave: Callable[..., int]) -> None:
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
def test_a_join_that_gets_a_response_while_we_drain_is_synced_first(
    leave: Callable[..., int], leads: bool
) -> None:
    group, record = with_a_task(eager=False)
    group.rebalance()
    call_id = leave(group)
    group.respond_to_join(leads=leads, others=(foreign("m-2"),) if leads else ())
    if leads:
        assert group.planned()["m-2"]
    group.complete(record)
    assert group.phase() is ClassicState.AWAIT_SYNC  # others wait for what the leader assigns
    assert not group.sends(LeaveGroupRequest)
    group.respond_to_sync(tp(0), tp(1))
    assert group.phase() is ClassicState.REVOKING
    assert group.assigned == orders(0)  # 1 was never ours
    assert group.only(OffsetCommitRequest)[1].generation == 2
    group.respond_to_commit()
    group.respond_to_leave()
    assert call_id in group.completed
    assert group.heard(NotifyKind.ASSIGNED) == [orders(0)]


@EITHER_WAY
def test_a_pending_join_that_evicts_us_while_we_drain_ends_it(leave: Callable[..., int]) -> None:
    group, _ = with_work(eager=False)
    group.rebalance()
    call_id = leave(group)
    group.respond_to_join(ErrorCode.unknown_member_id)
    assert call_id in group.completed
    assert group.phase() is ClassicState.UNJOINED
    assert group.heard(NotifyKind.LOST) == [orders(0)]


# --- AWAIT_SYNC ---------------------------------------------------------------------------------


@BOTH
@EITHER_WAY
@pytest.mark.parametrize("leads", [True, False])
def test_a_join_with_a_response_is_synced_before_leaving_and_added_partitions_are_never_seen(
    eager: bool, leave: Callable[..., int], leads: bool
) -> None:
    group = ScriptedGroup(eager=eager)
    group.start()
    group.give_id()
    group.respond_to_join(leads=leads)
    call_id = leave(group)
    assert group.phase() is ClassicState.AWAIT_SYNC
    group.respond_to_sync(tp(0), tp(1))
    assert group.assigned == frozenset()
    group.respond_to_leave()
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
    group.respond_to_join(leads=True, others=(foreign("m-2", "bills"),))
    leave(group)
    send, request = group.only(MetadataRequest)
    group.reply(send, group._metadata(request.topics))
    assert group.planned()["m-2"] == {tp(0, "bills"), tp(1, "bills")}
    group.respond_to_sync(tp(0))
    assert group.phase() is ClassicState.LEAVING


@EITHER_WAY
@pytest.mark.parametrize("error", [ErrorCode.not_coordinator, None])
def test_a_sync_without_a_response_is_repeated_before_the_final_commit(
    leave: Callable[..., int], error: ErrorCode | None
) -> None:
    # The next coordinator would reject commits of a generation that it does not know.
    group, _ = with_work(eager=False)
    group.rebalance()
    group.respond_to_join()
    call_id = leave(group)
    if error is None:
        group.fail(group.only(SyncGroupRequest)[0])
    else:
        group.respond_to_sync(error=error)
    wait_until(group, lambda: group.sends(JoinGroupRequest), 2.0)
    group.rejoin(0)
    assert group.only(OffsetCommitRequest)[1].generation == 3
    assert group.respond_to_commit() == {tp(0): 1}
    group.respond_to_leave()
    assert call_id in group.completed
    assert group.heard(NotifyKind.LOST) == []


@EITHER_WAY
def test_a_sync_that_another_rebalance_ends_leaves_after_the_final_commit(
    leave: Callable[..., int],
) -> None:
    group, _ = with_work(eager=False)
    group.rebalance()
    group.respond_to_join()
    call_id = leave(group)
    assert group.phase() is ClassicState.AWAIT_SYNC
    group.respond_to_sync(error=ErrorCode.rebalance_in_progress)
    joins = group.count(JoinGroupRequest)
    wait_until(group, lambda: group.sends(OffsetCommitRequest), 2.0)
    assert group.only(OffsetCommitRequest)[1].generation == 2
    assert group.respond_to_commit() == {tp(0): 1}
    group.respond_to_leave()
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
    group.respond_to_join()
    call_id = leave(group)
    group.respond_to_sync(error=error)
    if leaves:
        group.respond_to_leave()
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
    group.respond_to_leave()
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
def test_who_is_rejected_for_good_while_leaving_has_left(leave: Callable[..., int]) -> None:
    group = ScriptedGroup()
    group.start()
    call_id = leave(group)
    group.respond_to_join(ErrorCode.group_authorization_failed)
    assert group.phase() is ClassicState.FATAL
    assert call_id in group.completed
