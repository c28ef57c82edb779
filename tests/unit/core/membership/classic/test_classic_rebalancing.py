"""Rebalances of a classic member that holds partitions: what is kept, drained, released, owed."""

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

from asyncrevoke.client.core.io.effects import Channel, NotifyKind
from asyncrevoke.client.core.membership.classic.state_table import ClassicState
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    HeartbeatRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)

BOTH = pytest.mark.parametrize("eager", [True, False], ids=["eager", "cooperative"])


# --- STABLE: the group rebalances ---------------------------------------------------------------


def test_an_eager_member_gives_everything_up_before_it_joins() -> None:
    group = ScriptedGroup(eager=True)
    group.become_member(0, 1)
    group.rebalance()
    assert group.phase() is ClassicState.REVOKING
    assert group.count(JoinGroupRequest) == 2  # those of the first join
    assert group.step().to_be_revoked == orders(0, 1)
    group.step()
    assert group.phase() is ClassicState.AWAIT_JOIN
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
    assert group.phase() is ClassicState.REVOKING
    assert group.assigned == orders(1)  # the other one had nothing in flight
    group.complete(record)


def test_an_eager_member_commits_with_the_old_generation_before_it_joins() -> None:
    group, record = working(0, eager=True)
    group.rebalance()
    group.step()
    assert group.complete(record)
    group.step()
    assert group.phase() is ClassicState.REVOKING
    send, request = group.only(OffsetCommitRequest)
    assert (send.channel, request.generation) == (Channel.COMMIT, 1)
    assert group.respond_to_commit() == {tp(0): 1}
    assert group.phase() is ClassicState.AWAIT_JOIN
    assert not group.sends(OffsetCommitRequest)


def test_a_cooperative_member_joins_at_once_and_lists_what_it_holds() -> None:
    group, _ = working(0, 1)
    group.rebalance()
    request = group.joining()
    assert owned(request) == orders(0, 1)
    assert subscription_of(request).generation == 1
    assert request.member_id == MEMBER
    assert group.step().to_be_revoked == frozenset()


def test_a_cooperative_member_reads_and_commits_while_it_joins() -> None:
    group = ScriptedGroup()
    group.become_member(0)
    group.rebalance()
    group.receive(0)
    group.step()
    group.advance(2.0)
    _, request = group.only(OffsetCommitRequest)
    assert request.generation == 1
    group.respond_to_commit()
    assert group.receive(0)


@BOTH
def test_a_commit_too_may_say_that_the_group_rebalances(eager: bool) -> None:
    group = ScriptedGroup(eager=eager)
    group.become_member(0)
    group.receive(0)
    group.step()
    group.advance(1.0)
    group.respond_to_commit(ErrorCode.rebalance_in_progress)
    assert group.phase() is (ClassicState.REVOKING if eager else ClassicState.AWAIT_JOIN)


# --- STABLE: reasons of our own -----------------------------------------------------------------


def test_an_eager_member_with_a_reason_of_its_own_gives_everything_up_first() -> None:
    group = ScriptedGroup(partitions={"orders": 2, "bills": 2}, eager=True)
    group.become_member(0, 1)
    group.subscribe("orders", "bills")
    assert group.phase() is ClassicState.REVOKING
    assert group.step().to_be_revoked == orders(0, 1)
    group.step()
    assert subscription_of(group.joining()).topics == ("bills", "orders")


def test_a_cooperative_member_revokes_only_the_topics_that_it_unsubscribed_from() -> None:
    group = ScriptedGroup("orders", "bills", partitions={"orders": 2, "bills": 2})
    group.start()
    group.give_id()
    group.respond_to_join()
    group.respond_to_sync(tp(0), tp(0, "bills"))
    group.subscribe("orders")
    assert group.phase() is ClassicState.REVOKING
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
    assert group.phase() is ClassicState.STABLE


# --- the follow-up ------------------------------------------------------------------------------


def test_what_the_assignment_takes_drains_and_a_follow_up_join_reports_that_it_is_released() -> (
    None
):
    group, record = working(0, 1)
    group.rebalance()
    group.rejoin(0)
    assert group.phase() is ClassicState.REVOKING
    assert group.step().to_be_revoked == orders(1)
    assert group.step().to_be_revoked == orders(1)
    assert not group.sends(JoinGroupRequest)
    group.complete(record)
    group.step()
    group.respond_to_commit()
    assert group.phase() is ClassicState.AWAIT_JOIN
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
    group.respond_to_commit()
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
    group._respond_automatically(late)
    group.run_until_idle()
    assert group.heard(NotifyKind.ASSIGNED) == []


# --- everything released while the join was parked ----------------------------------------------


def test_a_rebalance_while_draining_joins_at_once_and_still_lists_what_is_delayed() -> None:
    group, record = draining_with_a_parked_join()
    assert group.phase() is ClassicState.AWAIT_JOIN
    assert group.step().to_be_revoked == orders(1)
    assert group.core.revocation.delay([tp(1)])
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
    assert group.phase() is ClassicState.STABLE
    assert group.instance(1) not in (None, first)
    assert group.core.position(tp(1)) == 1
    assert not group.complete(record)
    (again,) = group.receive(1)
    assert again.offset == 1


def test_partitions_that_drain_when_the_join_response_arrives_keep_draining() -> None:
    group, record = draining_with_a_parked_join()
    group.rejoin(0)
    assert group.phase() is ClassicState.REVOKING
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


def test_in_a_converted_group_each_heartbeat_leads_to_a_join_that_lists_what_drains() -> None:
    """A coordinator that assigns asks for it as long as something has to be given up, in the same
    generation; whoever does not join in time is put out."""
    group, record = working(0, 1)
    generation = group.core.group_metadata().generation
    group.rebalance()
    for _ in range(3):
        assert owned(group.joining()) == orders(0, 1)
        group.generation = generation - 1  # the next response has the same one again
        group.rejoin(0)
        assert group.core.group_metadata().generation == generation
        assert group.step().to_be_revoked == orders(1)
        assert group.assigned == orders(0, 1)
        group.rebalance()
    group.generation = generation - 1
    group.rejoin(0)
    release(group, record)
    assert owned(group.joining()) == orders(0)
