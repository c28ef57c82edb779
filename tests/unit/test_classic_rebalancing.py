"""Rebalances of a classic member that holds partitions: what is kept, drained, released, owed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.scripted_group import (
    MEMBER,
    ScriptedGroup,
    orders,
    owned,
    subscription_of,
    tp,
    wait_until,
)

from asyncrevoke.core.effects import Channel, FailureKind, NotifyKind
from asyncrevoke.core.membership.phase import Phase
from asyncrevoke.protocol.messages import (
    ErrorCode,
    HeartbeatRequest,
    JoinGroupRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)

if TYPE_CHECKING:
    from typing import Unpack

    from asyncrevoke.config import ConsumerOptions
    from asyncrevoke.model import Record

BOTH = pytest.mark.parametrize("eager", [True, False], ids=["eager", "cooperative"])


def working(
    *numbers: int, eager: bool = False, **options: Unpack[ConsumerOptions]
) -> tuple[ScriptedGroup, Record]:
    """A member with these partitions whose user works on a record of the last one."""
    options.setdefault("commit_mode", "ack")
    group = ScriptedGroup(eager=eager, **options)
    group.become_member(*numbers)
    (record,) = group.receive(numbers[-1])
    return group, record


# --- STABLE: the group rebalances ---------------------------------------------------------------


def test_an_eager_member_gives_everything_up_before_it_joins() -> None:
    group = ScriptedGroup(eager=True)
    group.become_member(0, 1)
    group.rebalance()
    assert group.phase() is Phase.DRAIN
    assert group.count(JoinGroupRequest) == 2  # those of the first join
    assert group.step().to_be_revoked == orders(0, 1)
    group.step()
    assert group.phase() is Phase.AWAIT_JOIN
    assert owned(group.joining()) == frozenset()
    assert group.assigned == frozenset()
    assert group.heard(NotifyKind.REVOKED) == [orders(0, 1)]


def test_an_eager_member_keeps_its_membership_alive_while_it_drains() -> None:
    group, record = working(0, 1, eager=True)
    group.rebalance()
    before = group.count(HeartbeatRequest)
    group.pulse = ErrorCode.rebalance_in_progress
    for _ in range(10):
        group.advance(1.0)
        group.step()
    assert group.count(HeartbeatRequest) >= before + 10
    assert group.phase() is Phase.DRAIN
    assert group.assigned == orders(1)  # the other one had nothing in flight
    group.complete(record)


def test_an_eager_member_commits_with_the_old_generation_before_it_joins() -> None:
    group, record = working(0, eager=True)
    group.rebalance()
    group.step()
    assert group.complete(record)
    group.step()
    assert group.phase() is Phase.DRAIN
    send, request = group.only(OffsetCommitRequest)
    assert (send.channel, request.generation) == (Channel.COMMIT, 1)
    assert group.answer_commit() == {tp(0): 1}
    assert group.phase() is Phase.AWAIT_JOIN
    assert not group.sends(OffsetCommitRequest)


def test_a_cooperative_member_joins_at_once_and_lists_what_it_holds() -> None:
    group, _ = working(0, 1)
    group.rebalance()
    request = group.joining()
    assert owned(request) == orders(0, 1)
    assert subscription_of(request).generation == 1
    assert request.member_id == MEMBER
    assert group.step().to_be_revoked == frozenset()


def test_a_cooperative_member_goes_on_reading_and_committing_while_it_joins() -> None:
    group = ScriptedGroup()
    group.become_member(0)
    group.rebalance()
    group.receive(0)
    group.step()
    group.advance(2.0)
    _, request = group.only(OffsetCommitRequest)
    assert request.generation == 1
    group.answer_commit()
    assert group.receive(0)


@BOTH
def test_a_commit_too_may_say_that_the_group_rebalances(eager: bool) -> None:
    group = ScriptedGroup(eager=eager)
    group.become_member(0)
    group.receive(0)
    group.step()
    group.advance(1.0)
    group.answer_commit(ErrorCode.rebalance_in_progress)
    assert group.phase() is (Phase.DRAIN if eager else Phase.AWAIT_JOIN)


# --- STABLE: reasons of our own -----------------------------------------------------------------


def test_an_eager_member_with_a_reason_of_its_own_gives_everything_up_first() -> None:
    group = ScriptedGroup(partitions={"orders": 2, "bills": 2}, eager=True)
    group.become_member(0, 1)
    group.subscribe("orders", "bills")
    assert group.phase() is Phase.DRAIN
    assert group.step().to_be_revoked == orders(0, 1)
    group.step()
    assert subscription_of(group.joining()).topics == ("bills", "orders")


def test_a_cooperative_member_gives_up_only_the_topics_that_it_dropped() -> None:
    group = ScriptedGroup("orders", "bills", partitions={"orders": 2, "bills": 2})
    group.start()
    group.give_id()
    group.answer_join()
    group.answer_sync(tp(0), tp(0, "bills"))
    group.subscribe("orders")
    assert group.phase() is Phase.DRAIN
    assert group.step().to_be_revoked == {tp(0, "bills")}
    group.step()
    request = group.joining()
    assert subscription_of(request).topics == ("orders",)
    assert owned(request) == orders(0)
    assert group.assigned == orders(0)


def test_a_cooperative_member_that_adds_a_topic_joins_at_once() -> None:
    group = ScriptedGroup(partitions={"orders": 2, "bills": 2})
    group.become_member(0)
    group.subscribe("orders", "bills")
    assert owned(group.joining()) == orders(0)


@BOTH
def test_a_subscription_that_stays_the_same_changes_nothing(eager: bool) -> None:
    group = ScriptedGroup(eager=eager)
    group.become_member(0)
    group.subscribe("orders")
    assert group.phase() is Phase.STABLE


# --- the follow-up ------------------------------------------------------------------------------


def test_what_the_assignment_takes_drains_and_a_follow_up_join_tells_that_it_is_released() -> None:
    group, record = working(0, 1)
    group.rebalance()
    group.rejoin(0)
    assert group.phase() is Phase.DRAIN
    assert group.step().to_be_revoked == orders(1)
    assert group.step().to_be_revoked == orders(1)
    assert not group.sends(JoinGroupRequest)
    group.complete(record)
    group.step()
    group.answer_commit()
    assert group.phase() is Phase.AWAIT_JOIN
    request = group.joining()
    assert owned(request) == orders(0)
    assert subscription_of(request).generation == 2


def test_kept_partitions_flow_while_another_drains() -> None:
    group, _ = working(0, 1)
    group.rebalance()
    group.rejoin(0)
    group.step()
    group.produce(0)
    group.produce(1)
    result = group.step()
    assert {record.topic_partition for record in result.records} == orders(0)


def test_the_follow_up_leaves_within_a_second_of_the_release() -> None:
    group, record = working(0, 1)
    group.rebalance()
    group.rejoin(0)
    group.step()
    group.complete(record)
    group.poll()
    group.answer_commit()
    assert wait_until(group, lambda: group.sends(JoinGroupRequest), 1.0) < 1.0


def test_a_partition_whose_position_is_not_known_yet_is_released_unseen() -> None:
    group = ScriptedGroup()
    group.silent.add(OffsetFetchRequest)
    group.become_member(0, 1)
    group.rebalance()
    group.rejoin(0)
    assert owned(group.joining()) == orders(0)
    result = group.step()
    assert (result.to_be_revoked, result.lost) == (frozenset(), frozenset())
    assert group.heard(NotifyKind.REVOKED) == []


def test_a_position_that_arrives_after_the_release_is_ignored() -> None:
    group = ScriptedGroup()
    group.silent.add(OffsetFetchRequest)
    group.become_member(0)
    late, _ = group.only(OffsetFetchRequest)
    group.rebalance()
    group.rejoin()
    group.silent.clear()
    assert group.assigned == frozenset()
    group._answer_by_itself(late)
    group.settle()
    assert group.heard(NotifyKind.ASSIGNED) == []


# --- everything released while the join was parked ----------------------------------------------


def draining_with_a_parked_join() -> tuple[ScriptedGroup, Record]:
    """0 is kept, 1 is to go and drains, and a JoinGroup that lists both is parked."""
    group, record = working(0, 1)
    group.rebalance()
    group.rejoin(0)
    assert group.step().to_be_revoked == orders(1)
    group.rebalance()
    assert owned(group.joining()) == orders(0, 1)
    return group, record


def release(group: ScriptedGroup, record: Record) -> None:
    group.complete(record)
    group.step()
    group.answer_commit()
    assert record.topic_partition not in group.assigned


def test_a_rebalance_while_draining_joins_at_once_and_still_lists_what_is_delayed() -> None:
    group, record = draining_with_a_parked_join()
    assert group.phase() is Phase.AWAIT_JOIN
    assert group.step().to_be_revoked == orders(1)
    assert group.core.delay_revoke([tp(1)])
    assert group.complete(record)


def test_a_follow_up_is_owed_although_all_was_released_while_the_join_was_parked() -> None:
    group, record = draining_with_a_parked_join()
    release(group, record)
    group.rejoin(0)
    # Nothing is left to drain: at once, or nobody would ever get the partition.
    assert owned(group.joining()) == orders(0)


def test_a_partition_released_while_the_join_was_parked_and_assigned_back_is_a_new_one() -> None:
    group, record = draining_with_a_parked_join()
    first = group.instance(1)
    release(group, record)
    group.rejoin(0, 1)
    assert group.phase() is Phase.STABLE
    assert group.instance(1) not in (None, first)
    assert group.core.position(tp(1)) == 1
    assert not group.complete(record)
    (again,) = group.receive(1)
    assert again.offset == 1


def test_what_still_drains_when_the_join_is_answered_goes_on_draining() -> None:
    group, record = draining_with_a_parked_join()
    group.rejoin(0)
    assert group.phase() is Phase.DRAIN
    assert group.step().to_be_revoked == orders(1)
    release(group, record)
    assert owned(group.joining()) == orders(0)


def test_what_still_drains_keeps_its_deadline_over_a_rebalance() -> None:
    group, _ = working(0, 1, revoke_timeout=10.0)
    group.rebalance()
    group.rejoin(0)
    begun = group.now
    group.step()
    group.advance(5.0)
    group.rebalance()
    group.rejoin(0)
    group.pulse = ErrorCode.none
    wait_until(group, lambda: group.step().lost, 10.0)
    assert 8.5 <= group.now - begun < 10.0


# --- withdrawn revokes --------------------------------------------------------------------------


def test_a_partition_given_back_while_it_drains_resumes_where_it_was() -> None:
    group, record = draining_with_a_parked_join()
    first = group.instance(1)
    group.rejoin(0, 1)
    assert group.phase() is Phase.STABLE
    assert group.instance(1) == first
    result = group.step()
    assert (result.to_be_revoked, result.lost) == (frozenset(), frozenset())
    assert [r.offset for r in group.receive(1)] == [1]
    assert group.complete(record)
    assert group.core.delay_revoke([tp(1)])  # announced and since withdrawn: nothing happens


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
    group.answer_commit()
    assert group.instance(1) == first
    assert group.receive(1)


def test_a_revoke_that_the_user_may_have_acted_on_is_finished_and_begins_anew() -> None:
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
    assert group.phase() is Phase.STABLE
    assert group.heard(NotifyKind.REVOKED) == [orders(1)]


def test_a_delay_by_hand_is_withdrawn_with_its_revoke() -> None:
    group = ScriptedGroup(commit_mode="manual")
    group.become_member(0, 1)
    first = group.instance(1)
    group.rebalance()
    group.rejoin(0)
    assert group.step().to_be_revoked == orders(1)
    assert group.core.delay_revoke([tp(1)])
    group.rebalance()
    group.rejoin(0, 1)
    assert group.instance(1) == first
    assert group.receive(1)


def test_an_overdue_partition_that_the_group_gave_back_is_lost_and_begins_anew() -> None:
    group = ScriptedGroup(commit_mode="manual", revoke_timeout=10.0)
    group.become_member(0, 1)
    first = group.instance(1)
    group.rebalance()
    group.rejoin(0)
    assert group.step().to_be_revoked == orders(1)
    group.rebalance()
    group.rejoin(0, 1)  # announced, not delayed: it finishes its release at the next step
    group.pulse = ErrorCode.none
    group.advance(20.0)  # which the user does not begin in time
    assert group.instance(1) not in (None, first)  # the group counts on us to read it
    assert group.step().lost == orders(1)
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
    group.answer_join()
    group.answer_sync(tp(0), tp(0, "bills"))
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
    group.answer_join()
    group.answer_sync(tp(0), tp(0, "bills"))
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
    group.answer_join()
    group.answer_sync(tp(0), tp(0, "bills"))
    (record,) = group.receive(0, topic="bills")
    group.subscribe("orders")
    assert group.step().to_be_revoked == {tp(0, "bills")}
    group.rebalance()
    request = group.joining()
    assert subscription_of(request).topics == ("orders",)
    assert owned(request) == {tp(0), tp(0, "bills")}  # leaders withhold by what is listed
    group.answer_join()
    group.answer_sync(tp(0), tp(0, "bills"))
    assert group.step().to_be_revoked == {tp(0, "bills")}
    release(group, record)
    assert owned(group.joining()) == orders(0)
    assert group.count(JoinGroupRequest) == 4  # with the two of the start: one after the drain


# --- DRAIN: what else may happen ----------------------------------------------------------------


def test_an_eager_member_that_drains_for_itself_stays_in_step_with_the_group() -> None:
    group, _ = working(
        0, eager=True, rebalance_timeout=20.0, revoke_timeout=20.0, metadata_max_age=5.0
    )
    group.answer_beat()
    confirmed = group.now
    group.core._membership.rejoin(group.now, "a reason of ours")
    group.advance(3.0)
    group.rebalance()
    assert group.phase() is Phase.DRAIN
    group.pulse = ErrorCode.rebalance_in_progress
    wait_until(group, lambda: group.step().lost, 20.0)
    assert 18.0 < group.now - confirmed < 20.0


def test_a_member_that_wants_no_topic_any_more_leaves_instead_of_joining_with_none() -> None:
    group, record = working(0)
    group.core._classic.subscribe(group.now, frozenset())  # type: ignore[union-attr]
    group.settle()
    assert group.step().to_be_revoked == orders(0)
    group.rebalance()
    assert group.phase() is Phase.DRAIN
    assert not group.sends(JoinGroupRequest)
    release(group, record)
    assert group.leaving().member_id == MEMBER
    group.answer_leave()
    assert group.phase() is Phase.UNJOINED


@BOTH
@pytest.mark.parametrize(
    "phase",
    [
        Phase.UNJOINED,
        Phase.AWAIT_ID,
        Phase.AWAIT_JOIN,
        Phase.AWAIT_SYNC,
        Phase.STABLE,
        Phase.DRAIN,
        Phase.LEAVING,
    ],
    ids=lambda phase: phase.name,
)
def test_a_new_subscription_is_joined_with_in_every_phase(eager: bool, phase: Phase) -> None:
    group = ScriptedGroup(partitions={"orders": 4, "bills": 2}, eager=eager, commit_mode="ack")
    record = None
    match phase:
        case Phase.UNJOINED:
            group = ScriptedGroup(partitions={"bills": 2}, pattern="none.*", eager=eager)
            group.start()
        case Phase.AWAIT_ID:
            group.start()
        case Phase.AWAIT_JOIN | Phase.AWAIT_SYNC:
            group.become_member(0)
            group.rebalance()
            group.step()
            group.step()
            if phase is Phase.AWAIT_SYNC:
                group.answer_join()
        case Phase.STABLE:
            group.become_member(0)
        case Phase.DRAIN:
            group.become_member(0, 1)
            (record,) = group.receive(1)
            group.rebalance()
            if not eager:
                group.rejoin(0)
        case _:
            group.become_member(0)
            group.core._classic.subscribe(group.now, frozenset())  # type: ignore[union-attr]
            group.step()
            group.step()
    assert group.phase() is phase
    group.subscribe("bills")
    assert group.phase() in (phase, Phase.AWAIT_ID, Phase.DRAIN)
    for _ in range(10):
        group.step()
        if record is not None:
            group.complete(record)
        if group.sends(OffsetCommitRequest):
            group.answer_commit()
        if group.phase() is Phase.LEAVING:
            group.answer_leave()
        if group.phase() is Phase.AWAIT_SYNC:
            group.answer_sync(tp(0))
        if group.phase() is Phase.AWAIT_ID:
            group.give_id()
        if group.phase() is Phase.AWAIT_JOIN:
            if subscription_of(group.joining()).topics == ("bills",):
                break
            group.answer_join()
    request = group.joining()
    assert subscription_of(request).topics == ("bills",)
    assert owned(request) == frozenset()
    group.answer_join()
    group.answer_sync(tp(0, "bills"))
    assert group.phase() is Phase.STABLE
    assert group.assigned == {tp(0, "bills")}


@BOTH
def test_after_a_fatal_error_a_new_subscription_joins_nothing(eager: bool) -> None:
    group = ScriptedGroup(partitions={"orders": 4, "bills": 2}, eager=eager)
    group.start()
    group.answer_join(ErrorCode.group_authorization_failed)
    group.subscribe("bills")
    assert group.phase() is Phase.FATAL
    assert not group.sends(JoinGroupRequest)


# --- deadlines ----------------------------------------------------------------------------------


def test_an_eager_member_loses_what_has_not_drained_when_the_group_stops_waiting() -> None:
    group, record = working(0, 1, eager=True, rebalance_timeout=20.0)
    group.answer_beat()
    confirmed = group.sent_at(HeartbeatRequest)
    group.advance(0.5)
    group.rebalance()
    group.pulse = ErrorCode.rebalance_in_progress
    result = group.step()
    while not result.lost:
        assert result.to_be_revoked
        group.advance(0.05)
        result = group.step()
    # The group may have begun to wait right after our last confirmed heartbeat was sent.
    assert group.now < confirmed + 20.0
    assert group.now == pytest.approx(confirmed + 19.0, abs=0.6)
    assert result.lost == orders(1)
    assert owned(group.joining()) == frozenset()
    assert not group.complete(record)


def test_a_cooperative_member_loses_only_what_has_not_drained_at_its_own_deadline() -> None:
    group, record = working(0, 1, revoke_timeout=10.0)
    group.rebalance()
    group.rejoin(0)
    begun = group.now
    group.step()
    group.pulse = ErrorCode.none
    wait_until(group, lambda: group.phase() is not Phase.DRAIN, 10.0)
    assert 8.5 <= group.now - begun < 10.0
    assert owned(group.joining()) == orders(0)
    assert group.step().lost == orders(1)
    assert group.assigned == orders(0)
    assert not group.complete(record)
    assert not group.core.delay_revoke([tp(1)])


def test_without_a_timeout_of_its_own_a_cooperative_member_takes_the_rebalance_timeout() -> None:
    group, _ = working(0, 1, rebalance_timeout=30.0)
    group.rebalance()
    group.rejoin(0)
    begun = group.now
    group.pulse = ErrorCode.none
    group.step()
    wait_until(group, lambda: group.phase() is not Phase.DRAIN, 30.0)
    assert 28.0 <= group.now - begun < 30.0


@BOTH
def test_what_was_done_before_the_deadline_is_committed_at_it(eager: bool) -> None:
    group = ScriptedGroup(eager=eager, commit_mode="ack", revoke_timeout=10.0, commit_interval=60.0)
    group.become_member(0)
    group.produce(0, 3)
    first, _, _ = group.step().records
    group.rebalance()
    if not eager:
        group.rejoin()
    group.step()
    group.complete(first)
    group.pulse = ErrorCode.none
    wait_until(group, lambda: group.sends(OffsetCommitRequest), 10.0)
    assert group.committing() == {tp(0): 1}
    assert group.phase() is Phase.DRAIN
    group.answer_commit()
    assert group.phase() is Phase.AWAIT_JOIN
    assert group.step().lost == orders(0)


def test_a_last_commit_without_an_answer_does_not_hold_the_join_beyond_the_deadline() -> None:
    group = ScriptedGroup(commit_mode="ack", revoke_timeout=10.0, commit_interval=60.0)
    group.become_member(0)
    group.produce(0, 2)
    first, _ = group.step().records
    group.rebalance()
    group.rejoin()
    begun = group.now
    group.step()
    group.complete(first)
    group.pulse = ErrorCode.none
    wait_until(group, lambda: group.phase() is Phase.AWAIT_JOIN, 10.0)
    assert group.now - begun < 10.0
    late, _ = group.only(OffsetCommitRequest)
    group.answer_commit(send=late)
    assert group.step().lost == orders(0)


# --- topics that go and come --------------------------------------------------------------------


@BOTH
def test_partitions_of_a_deleted_topic_are_lost_and_the_rest_stays(eager: bool) -> None:
    group = ScriptedGroup(
        "orders", "bills", partitions={"orders": 2, "bills": 2}, eager=eager, metadata_max_age=5.0
    )
    group.start()
    group.give_id()
    group.answer_join()
    group.answer_sync(tp(0), tp(0, "bills"))
    group.pulse = ErrorCode.none
    del group.partitions["bills"]
    group.advance(20.0)
    result = group.step()
    assert result.lost == {tp(0, "bills")}
    group.step()
    assert owned(group.joining()) == (frozenset() if eager else orders(0))
    assert group.assigned == (frozenset() if eager else orders(0))


@BOTH
def test_a_topic_deleted_and_created_again_is_another_one(eager: bool) -> None:
    group = ScriptedGroup(eager=eager, metadata_max_age=5.0)
    group.become_member(0)
    first = group.instance(0)
    group.pulse = ErrorCode.none
    group.topic_ids["orders"] = b"another-orders--"
    group.advance(6.0)
    assert group.step().lost == orders(0)
    group.step()
    group.rejoin(0)
    assert group.instance(0) not in (None, first)
    group.advance(20.0)
    assert group.phase() is Phase.STABLE
    assert group.step().lost == frozenset()


def test_a_delayed_partition_of_a_deleted_topic_does_not_hold_the_follow_up() -> None:
    group, record = working(0, 1, metadata_max_age=5.0)
    group.rebalance()
    group.rejoin(0)
    group.step()
    group.partitions["orders"] = 1
    group.pulse = ErrorCode.none
    group.advance(20.0)
    assert group.step().lost == orders(1)
    assert not group.complete(record)
    assert owned(group.joining()) == orders(0)


def test_a_topic_assigned_before_we_hear_that_it_was_created_again_is_kept() -> None:
    group = ScriptedGroup(
        "orders", "bills", partitions={"orders": 1, "bills": 1}, metadata_max_age=5.0
    )
    group.start()
    group.give_id()
    group.answer_join()
    group.answer_sync(tp(0), tp(0, "bills"))
    group.pulse = ErrorCode.none
    del group.partitions["bills"]
    group.advance(20.0)
    assert group.step().lost == {tp(0, "bills")}
    group.rejoin(0)
    group.partitions["bills"] = 1
    group.topic_ids["bills"] = b"another-bills---"
    group.silent.add(MetadataRequest)
    group.rebalance()
    group.answer_join()
    group.answer_sync(tp(0), tp(0, "bills"))  # the leader has heard of it before us
    assert group.assigned == {tp(0), tp(0, "bills")}
    kept = group.instance(0, "bills")
    group.advance(5.0)
    send, request = group.only(MetadataRequest)
    group.silent.clear()
    group.reply(send, group._metadata(request.topics))
    assert group.step().lost == frozenset()
    assert group.instance(0, "bills") == kept
    assert group.phase() is Phase.STABLE


# --- heartbeats ---------------------------------------------------------------------------------


def interval(group: ScriptedGroup) -> float:
    """Seconds between the next two heartbeats."""
    group.answer_beat()
    begun = group.now
    group.beat()
    return round(group.now - begun, 6)


def test_heartbeats_are_more_frequent_for_a_while_after_a_sync() -> None:
    group = ScriptedGroup()
    group.become_member(0)
    assert interval(group) == 0.3
    group.answer_beat()
    group.pulse = ErrorCode.none
    group.advance(5.0)
    group.pulse = None
    assert interval(group) == 1.0


def test_heartbeats_stay_frequent_while_nothing_is_assigned() -> None:
    group = ScriptedGroup()
    group.become_member()
    group.pulse = ErrorCode.none
    group.advance(30.0)
    group.pulse = None
    assert interval(group) == 0.3


def test_heartbeats_stay_frequent_while_a_follow_up_is_owed() -> None:
    group, _ = working(0, 1)
    group.rebalance()
    group.rejoin(0)
    group.step()
    group.pulse = ErrorCode.none
    group.advance(30.0)
    group.pulse = None
    assert interval(group) == 0.3


def test_heartbeats_are_never_more_than_one_at_a_time_and_never_rarer_than_asked_for() -> None:
    group = ScriptedGroup(heartbeat_interval=0.1, session_timeout=6.0)
    group.become_member(0)
    assert interval(group) == 0.1
    group.advance(10.0)
    assert len(group.sends(HeartbeatRequest)) == 1


@BOTH
def test_a_heartbeat_without_an_answer_looks_for_the_coordinator_and_beats_again(
    eager: bool,
) -> None:
    group = ScriptedGroup(eager=eager)
    group.become_member(0)
    group.coordinator = 2
    group.fail(group.beat(), FailureKind.TIMEOUT)
    assert group.beat().node.node_id == 2
    assert group.phase() is Phase.STABLE


@BOTH
@pytest.mark.parametrize("error", [ErrorCode.not_coordinator, ErrorCode.coordinator_not_available])
def test_heartbeats_follow_the_coordinator(eager: bool, error: ErrorCode) -> None:
    group = ScriptedGroup(eager=eager)
    group.become_member(0)
    group.coordinator = 2
    group.answer_beat(error)
    send = group.beat()
    assert send.node.node_id == 2
    assert group.phase() is Phase.STABLE
