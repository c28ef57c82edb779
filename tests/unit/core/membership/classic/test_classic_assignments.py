"""New assignments of a classic member: given back, added, dropped, and subscribed anew."""

from __future__ import annotations

import pytest
from unit.core.scripted_brokers import tp
from unit.core.scripted_group import (
    MEMBER,
    ScriptedGroup,
    draining_with_a_parked_join,
    orders,
    owned,
    release,
    subscription_of,
    wait_until,
    working,
)

from asyncrevoke.client.core.io.effects import NotifyKind
from asyncrevoke.client.core.membership.classic.state_table import ClassicState
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    JoinGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)

BOTH = pytest.mark.parametrize("eager", [True, False], ids=["eager", "cooperative"])


# --- withdrawn revokes --------------------------------------------------------------------------


def test_a_partition_given_back_while_it_drains_resumes_where_it_was() -> None:
    group, record = draining_with_a_parked_join()
    first = group.instance(1)
    group.rejoin(0, 1)
    assert group.phase() is ClassicState.STABLE
    assert group.instance(1) == first
    result = group.step()
    assert (result.to_be_revoked, result.lost) == (frozenset(), frozenset())
    assert [r.offset for r in group.receive(1)] == [1]
    assert group.complete(record)
    assert group.core.revocation.delay([tp(1)])  # announced and since withdrawn: nothing happens


def test_a_revoke_that_was_never_announced_is_withdrawn_without_a_word() -> None:
    group, _ = working(0, 1)
    first = group.instance(1)
    group.rebalance()
    group.rejoin(0)
    group.rebalance()
    group.rejoin(0, 1)
    assert group.instance(1) == first
    assert group.step().to_be_revoked == frozenset()
    assert group.heard(NotifyKind.REVOKED) == []


def test_a_final_commit_in_flight_does_not_end_a_partition_that_is_given_back() -> None:
    group, record = draining_with_a_parked_join()
    first = group.instance(1)
    group.complete(record)
    group.step()
    assert group.committing() == {tp(1): 1}
    group.rejoin(0, 1)
    group.respond_to_commit()
    assert group.instance(1) == first
    assert group.receive(1)


def test_a_revoke_that_the_user_may_have_acted_on_is_finished_and_begins_again() -> None:
    group = ScriptedGroup(commit_mode="manual")
    group.become_member(0, 1)
    group.receive(1)
    first = group.instance(1)
    group.rebalance()
    group.rejoin(0)
    assert group.step().to_be_revoked == orders(1)
    group.rebalance()
    group.rejoin(0, 1)
    assert group.instance(1) == first
    group.step()
    assert group.instance(1) not in (None, first)
    assert group.core.position(tp(1)) == 0  # nothing was committed
    assert group.phase() is ClassicState.STABLE
    assert group.heard(NotifyKind.REVOKED) == [orders(1)]


def test_a_delay_by_hand_is_withdrawn_with_its_revoke() -> None:
    group = ScriptedGroup(commit_mode="manual")
    group.become_member(0, 1)
    first = group.instance(1)
    group.rebalance()
    group.rejoin(0)
    assert group.step().to_be_revoked == orders(1)
    assert group.core.revocation.delay([tp(1)])
    group.rebalance()
    group.rejoin(0, 1)
    assert group.instance(1) == first
    assert group.receive(1)


def test_a_partition_that_the_group_gave_back_is_released_in_its_own_time_and_begins_again() -> (
    None
):
    group = ScriptedGroup(commit_mode="manual", revoke_timeout=10.0)
    group.become_member(0, 1)
    first = group.instance(1)
    group.rebalance()
    group.rejoin(0)
    assert group.step().to_be_revoked == orders(1)
    group.rebalance()
    group.rejoin(0, 1)  # announced, not delayed: it finishes its release at the next step
    group.pulse = ErrorCode.none
    group.advance(20.0)  # which the user begins late, and nobody waits for
    assert group.instance(1) == first
    assert not group.step().lost
    assert group.instance(1) not in (None, first)  # the group counts on us to read it
    assert group.receive(1)


# --- new assignments ----------------------------------------------------------------------------


def test_positions_and_buffers_of_kept_partitions_survive_a_rebalance() -> None:
    group = ScriptedGroup()
    group.become_member(0)
    first = group.instance(0)
    group.produce(0, 3)
    group.rebalance()
    group.rejoin(0, 1)
    assert group.instance(0) == first
    assert [record.offset for record in group.step().records] == [0, 1, 2]
    assert group.count(OffsetFetchRequest) == 2  # one for each that was new


def test_after_an_eager_rebalance_everything_is_new() -> None:
    group = ScriptedGroup(eager=True)
    group.become_member(0)
    first = group.instance(0)
    group.rebalance()
    group.step()
    group.step()
    group.rejoin(0)
    assert group.instance(0) not in (None, first)
    assert group.heard(NotifyKind.ASSIGNED) == [orders(0)] * 2


@BOTH
def test_a_topic_that_we_did_not_subscribe_to_is_not_read_and_we_join_again(eager: bool) -> None:
    group = ScriptedGroup(partitions={"orders": 2, "bills": 2}, eager=eager)
    group.start()
    group.give_id()
    group.respond_to_join()
    group.respond_to_sync(tp(0), tp(0, "bills"))
    group.step()
    group.step()
    request = group.joining()
    assert "did not subscribe to: bills" in request.reason
    assert tp(0, "bills") not in owned(request)


@BOTH
def test_partitions_of_a_topic_dropped_while_joining_are_released_unseen(eager: bool) -> None:
    group = ScriptedGroup("orders", "bills", partitions={"orders": 2, "bills": 2}, eager=eager)
    group.start()
    group.give_id()
    group.subscribe("orders")
    group.respond_to_join()
    group.respond_to_sync(tp(0), tp(0, "bills"))
    assert tp(0, "bills") not in group.assigned
    group.step()
    group.step()
    request = group.joining()
    assert subscription_of(request).topics == ("orders",)
    assert tp(0, "bills") not in owned(request)
    assert all(tp(0, "bills") not in some for some in group.heard(NotifyKind.ASSIGNED))


def test_a_delayed_partition_of_a_dropped_topic_stays_delayed_although_it_is_assigned_back() -> (
    None
):
    group = ScriptedGroup(
        "orders", "bills", partitions={"orders": 2, "bills": 2}, commit_mode="ack"
    )
    group.start()
    group.give_id()
    group.respond_to_join()
    group.respond_to_sync(tp(0), tp(0, "bills"))
    (record,) = group.receive(0, topic="bills")
    group.subscribe("orders")
    assert group.step().to_be_revoked == {tp(0, "bills")}
    group.rebalance()
    request = group.joining()
    assert subscription_of(request).topics == ("orders",)
    assert owned(request) == {tp(0), tp(0, "bills")}  # leaders withhold by what is listed
    group.respond_to_join()
    group.respond_to_sync(tp(0), tp(0, "bills"))
    assert group.step().to_be_revoked == {tp(0, "bills")}
    release(group, record)
    assert owned(group.joining()) == orders(0)
    assert group.count(JoinGroupRequest) == 4  # with the two of the start: one after the drain


# --- DRAIN: what else may happen ----------------------------------------------------------------


def test_an_eager_member_that_drains_for_itself_stays_in_step_with_the_group() -> None:
    group, _ = working(
        0, eager=True, rebalance_timeout=20.0, revoke_timeout=20.0, metadata_max_age=5.0
    )
    group.respond_to_beat()
    confirmed = group.now
    group.core.membership.rejoin(group.now, "a reason of ours")
    group.advance(3.0)
    group.rebalance()
    assert group.phase() is ClassicState.REVOKING
    group.pulse = ErrorCode.rebalance_in_progress
    wait_until(group, lambda: group.step().lost, 20.0)
    assert 18.0 < group.now - confirmed < 20.0


def test_a_member_that_wants_no_topic_any_more_leaves_instead_of_joining_with_none() -> None:
    group, record = working(0)
    group.core.classic.subscribe(group.now, frozenset())  # type: ignore[union-attr]
    group.run_until_idle()
    assert group.step().to_be_revoked == orders(0)
    group.rebalance()
    assert group.phase() is ClassicState.REVOKING
    assert not group.sends(JoinGroupRequest)
    release(group, record)
    assert group.leaving().member_id == MEMBER
    group.respond_to_leave()
    assert group.phase() is ClassicState.UNJOINED


@BOTH
@pytest.mark.parametrize(
    "phase",
    [
        ClassicState.UNJOINED,
        ClassicState.AWAIT_ID,
        ClassicState.AWAIT_JOIN,
        ClassicState.AWAIT_SYNC,
        ClassicState.STABLE,
        ClassicState.REVOKING,
        ClassicState.LEAVING,
    ],
    ids=lambda phase: phase.name,
)
def test_a_new_subscription_is_joined_with_in_every_phase(eager: bool, phase: ClassicState) -> None:
    group = ScriptedGroup(partitions={"orders": 4, "bills": 2}, eager=eager, commit_mode="ack")
    record = None
    match phase:
        case ClassicState.UNJOINED:
            group = ScriptedGroup(partitions={"bills": 2}, pattern="none.*", eager=eager)
            group.start()
        case ClassicState.AWAIT_ID:
            group.start()
        case ClassicState.AWAIT_JOIN | ClassicState.AWAIT_SYNC:
            group.become_member(0)
            group.rebalance()
            group.step()
            group.step()
            if phase is ClassicState.AWAIT_SYNC:
                group.respond_to_join()
        case ClassicState.STABLE:
            group.become_member(0)
        case ClassicState.REVOKING:
            group.become_member(0, 1)
            (record,) = group.receive(1)
            group.rebalance()
            if not eager:
                group.rejoin(0)
        case _:
            group.become_member(0)
            group.core.classic.subscribe(group.now, frozenset())  # type: ignore[union-attr]
            group.step()
            group.step()
    assert group.phase() is phase
    group.subscribe("bills")
    assert group.phase() in (phase, ClassicState.AWAIT_ID, ClassicState.REVOKING)
    for _ in range(10):
        group.step()
        if record is not None:
            group.complete(record)
        if group.sends(OffsetCommitRequest):
            group.respond_to_commit()
        if group.phase() is ClassicState.LEAVING:
            group.respond_to_leave()
        if group.phase() is ClassicState.AWAIT_SYNC:
            group.respond_to_sync(tp(0))
        if group.phase() is ClassicState.AWAIT_ID:
            group.give_id()
        if group.phase() is ClassicState.AWAIT_JOIN:
            if subscription_of(group.joining()).topics == ("bills",):
                break
            group.respond_to_join()
    request = group.joining()
    assert subscription_of(request).topics == ("bills",)
    assert owned(request) == frozenset()
    group.respond_to_join()
    group.respond_to_sync(tp(0, "bills"))
    assert group.phase() is ClassicState.STABLE
    assert group.assigned == {tp(0, "bills")}


@BOTH
def test_after_a_fatal_error_a_new_subscription_joins_nothing(eager: bool) -> None:
    group = ScriptedGroup(partitions={"orders": 4, "bills": 2}, eager=eager)
    group.start()
    group.respond_to_join(ErrorCode.group_authorization_failed)
    group.subscribe("bills")
    assert group.phase() is ClassicState.FATAL
    assert not group.sends(JoinGroupRequest)
