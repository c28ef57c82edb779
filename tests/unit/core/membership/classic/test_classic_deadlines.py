"""What ends a partition of a classic member before its release: deadlines, and topics that go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.core.scripted_brokers import tp
from unit.core.scripted_group import (
    ScriptedGroup,
    orders,
    owned,
    wait_until,
    working,
)

from asyncrevoke.client.core.membership.classic.state_table import ClassicState
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    HeartbeatRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)

if TYPE_CHECKING:
    from asyncrevoke.client.core.io.effects import Emit

BOTH = pytest.mark.parametrize("eager", [True, False], ids=["eager", "cooperative"])


# --- deadlines ----------------------------------------------------------------------------------


def test_an_eager_member_loses_what_has_not_drained_when_the_group_stops_waiting() -> None:
    group, record = working(0, 1, eager=True, rebalance_timeout=20.0)
    group.respond_to_beat()
    confirmed = group.sent_at(HeartbeatRequest)
    late = group.beat()
    group.advance(6.0)
    group.respond_to_beat(ErrorCode.rebalance_in_progress, send=late)
    result = group.step()
    while not result.lost:
        assert result.to_be_revoked
        group.advance(0.05)
        result = group.step()
    # The group may have begun to wait right after our last confirmed heartbeat was sent.
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
    wait_until(group, lambda: group.phase() is not ClassicState.REVOKING, 10.0)
    assert 8.5 <= group.now - begun < 10.0
    assert owned(group.joining()) == orders(0)
    assert group.step().lost == orders(1)
    assert group.assigned == orders(0)
    assert not group.complete(record)
    assert not group.core.revocation.delay([tp(1)])


def test_without_a_timeout_of_its_own_a_cooperative_member_takes_the_rebalance_timeout() -> None:
    group, _ = working(0, 1, rebalance_timeout=30.0)
    group.rebalance()
    group.rejoin(0)
    begun = group.now
    group.pulse = ErrorCode.none
    group.step()
    wait_until(group, lambda: group.phase() is not ClassicState.REVOKING, 30.0)
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
    assert group.phase() is ClassicState.REVOKING
    group.respond_to_commit()
    assert group.phase() is ClassicState.AWAIT_JOIN
    assert group.step().lost == orders(0)


def test_a_last_commit_without_a_response_does_not_hold_the_join_beyond_the_deadline() -> None:
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
    wait_until(group, lambda: group.phase() is ClassicState.AWAIT_JOIN, 10.0)
    assert group.now - begun < 10.0
    late, _ = group.only(OffsetCommitRequest)
    group.respond_to_commit(send=late)
    assert group.step().lost == orders(0)


# --- topics that go and come --------------------------------------------------------------------


@BOTH
def test_partitions_of_a_deleted_topic_are_lost_and_the_rest_stays(eager: bool) -> None:
    group = ScriptedGroup(
        "orders", "bills", partitions={"orders": 2, "bills": 2}, eager=eager, metadata_max_age=5.0
    )
    group.start()
    group.give_id()
    group.respond_to_join()
    group.respond_to_sync(tp(0), tp(0, "bills"))
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
    assert group.phase() is ClassicState.STABLE
    assert group.step().lost == frozenset()


def outside_the_log(group: ScriptedGroup) -> list[Emit]:
    return [e for e in group.named("position is reset") if "outside" in str(e.fields["reason"])]


def create_again(group: ScriptedGroup) -> None:
    """The topic of which a record was read is another one now, and the next fetch tells."""
    group.topic_ids["orders"] = b"another-orders--"
    del group.logs[tp(0)]
    group.advance(1.0)


def test_a_position_outside_the_log_of_another_topic_of_that_name_is_lost_not_reset() -> None:
    group = ScriptedGroup()
    group.become_member(0)
    group.receive(0)
    create_again(group)
    assert group.step().lost == orders(0)
    assert not outside_the_log(group)


def test_a_commit_names_the_topic_that_was_read_and_not_another_one_of_that_name() -> None:
    group = ScriptedGroup(commit_mode="ack", commit_interval=0.1)
    group.become_member(0)
    former = group.topic_ids["orders"]
    (record,) = group.receive(0)
    group.topic_ids["orders"] = b"another-orders--"
    group.complete(record)
    # Before a fetch tells of it.
    group.advance(0.15)
    send, request = group.only(OffsetCommitRequest)
    assert request.topic_ids == {"orders": former}
    # No topic has this id any more: what is known of it is asked for, and it is lost.
    group.respond_to_commit(ErrorCode.unknown_topic_id, send=send)
    assert group.step().lost == orders(0)
    group.step()
    group.rejoin(0)
    group.advance(5.0)
    assert group.count(OffsetCommitRequest) == 1
    asked = [s.message for s in group.sent if isinstance(s.message, OffsetFetchRequest)]
    assert [request.topic_ids for request in asked] == [
        {"orders": former},
        {"orders": b"another-orders--"},
    ]


def test_without_an_id_of_the_topic_a_commit_goes_by_its_name() -> None:
    group = ScriptedGroup(commit_mode="ack", commit_interval=0.5)
    group.topic_ids["orders"] = bytes(16)
    group.become_member(0)
    (record,) = group.receive(0)
    group.complete(record)
    group.advance(0.6)
    assert group.only(OffsetCommitRequest)[1].topic_ids is None


def test_older_metadata_does_not_report_whose_log_a_position_is_outside_of() -> None:
    group = ScriptedGroup()
    group.become_member(0)
    group.receive(0)
    group.advance(1.0)
    group.silent.add(MetadataRequest)
    group.core.subscription_state.subscribe(group.now, ("orders", "bills"))
    send, request = group.only(MetadataRequest)
    response = group._metadata(request.topics)
    create_again(group)
    assert group.step().lost == frozenset()
    group.silent.clear()
    group.reply(send, response)
    group.advance(1.0)
    assert group.step().lost == orders(0)
    assert not outside_the_log(group)


def test_a_position_outside_the_log_is_reset_when_it_is_the_same_topic() -> None:
    group = ScriptedGroup(auto_offset_reset="earliest")
    group.become_member(0)
    group.receive(0)
    del group.logs[tp(0)]
    group.advance(1.0)
    assert group.step().lost == frozenset()
    group.produce(0, 2)
    assert [record.offset for record in group.receive(0)][:2] == [0, 1]
    assert [event.level for event in outside_the_log(group)] == ["warning"]


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
    group.respond_to_join()
    group.respond_to_sync(tp(0), tp(0, "bills"))
    group.pulse = ErrorCode.none
    del group.partitions["bills"]
    group.advance(20.0)
    assert group.step().lost == {tp(0, "bills")}
    group.rejoin(0)
    group.partitions["bills"] = 1
    group.topic_ids["bills"] = b"another-bills---"
    group.silent.add(MetadataRequest)
    group.rebalance()
    group.respond_to_join()
    group.respond_to_sync(tp(0), tp(0, "bills"))  # the leader has heard of it before us
    assert group.assigned == {tp(0), tp(0, "bills")}
    kept = group.instance(0, "bills")
    group.advance(5.0)
    send, request = group.only(MetadataRequest)
    group.silent.clear()
    group.reply(send, group._metadata(request.topics))
    assert group.step().lost == frozenset()
    assert group.instance(0, "bills") == kept
    assert group.phase() is ClassicState.STABLE
