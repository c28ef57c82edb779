"""KIP-70: a subscription changes at once, the assignment with the rebalance that follows."""

from __future__ import annotations

import pytest
from unit.core.scripted_brokers import tp
from unit.core.scripted_group import ScriptedGroup, orders, owned, subscription_of

from asyncrevoke.client.core.io.effects import NotifyKind
from asyncrevoke.client.core.membership.classic.state_table import ClassicState
from asyncrevoke.client.errors import FatalError
from asyncrevoke.client.model import Record, TopicPartition
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
)

BOTH = pytest.mark.parametrize("eager", [True, False], ids=["eager", "cooperative"])
PATTERNS = pytest.mark.parametrize("pattern", [False, True], ids=["topics", "pattern"])

BILLS = tp(0, "bills")


def reading_bills(eager: bool, *, pattern: bool = False) -> tuple[ScriptedGroup, Record]:
    """A member of orders-0 and bills-0 whose user works on a record of bills."""
    topics = () if pattern else ("orders", "bills")
    group = ScriptedGroup(
        *topics,
        pattern="orders|bills" if pattern else None,
        partitions={"orders": 2, "bills": 2},
        eager=eager,
        commit_mode="ack",
        commit_interval=60.0,
    )
    group.start()
    group.give_id()
    group.respond_to_join()
    group.respond_to_sync(tp(0), BILLS)
    (record,) = group.receive(0, topic="bills")
    return group, record


def choose(group: ScriptedGroup, *topics: str, pattern: bool) -> None:
    if pattern:
        group.core.subscription_state.subscribe(group.now, pattern="|".join(topics))
        group.run_until_idle()
    else:
        group.subscribe(*topics)


def at_work(eager: bool) -> tuple[ScriptedGroup, Record, int]:
    """A member that unsubscribes while its user works on a record of orders-0, in a task."""
    group = ScriptedGroup(partitions={"orders": 2, "bills": 2}, eager=eager, commit_interval=60.0)
    group.core.returned_records.track(one_by_one=True, next_poll_completes=True)
    group.become_member(0)
    (record,) = group.receive(0)
    assert group.core.returned_records.submit(record)
    group.step()
    return group, record, group.unsubscribe()


def finish(group: ScriptedGroup, record: Record) -> None:
    """The work ends, is committed, and the group is left."""
    group.complete(record)
    assert group.respond_to_commit() == {tp(0): 1}
    group.respond_to_leave()


# --- subscribe ----------------------------------------------------------------------------------


@BOTH
@PATTERNS
def test_a_new_subscription_keeps_the_assignment_until_it_is_revoked_in_two_steps(
    eager: bool, pattern: bool
) -> None:
    group, record = reading_bills(eager, pattern=pattern)
    choose(group, "orders", pattern=pattern)
    assert group.core.subscription_state.subscription() == {"orders"}
    assert group.assigned == {tp(0), BILLS}
    assert group.step().to_be_revoked == ({tp(0), BILLS} if eager else {BILLS})
    group.step()
    assert BILLS in group.assigned
    assert not group.sends(JoinGroupRequest)
    # What was begun counts, and is committed before the partition goes.
    assert group.complete(record)
    group.step()
    assert group.respond_to_commit()[BILLS] == 1
    request = group.joining()
    assert subscription_of(request).topics == ("orders",)
    assert owned(request) == (frozenset() if eager else {tp(0)})
    assert group.heard(NotifyKind.LOST) == []


@BOTH
@PATTERNS
def test_an_added_topic_takes_nothing_away_from_a_cooperative_member(
    eager: bool, pattern: bool
) -> None:
    group = ScriptedGroup(eager=eager, partitions={"orders": 2, "bills": 2})
    group.become_member(0)
    choose(group, "orders", "bills", pattern=pattern)
    assert group.assigned == orders(0)
    assert group.step().to_be_revoked == (orders(0) if eager else frozenset())
    group.step()
    request = group.joining()
    assert set(subscription_of(request).topics) == {"orders", "bills"}
    assert owned(request) == (frozenset() if eager else orders(0))


@BOTH
def test_a_topic_that_no_longer_matches_is_revoked_in_two_steps(eager: bool) -> None:
    group, record = reading_bills(eager, pattern=True)
    choose(group, "orders.*", pattern=True)
    assert group.assigned == {tp(0), BILLS}
    assert BILLS in group.step().to_be_revoked
    group.complete(record)
    group.step()
    group.respond_to_commit()
    assert BILLS not in owned(group.joining())


# --- unsubscribe --------------------------------------------------------------------------------


@BOTH
def test_unsubscribing_drains_then_commits_then_clears(eager: bool) -> None:
    group, record, call_id = at_work(eager)
    assert group.assigned == orders(0)
    assert group.core.subscription_state.subscription() == {"orders"}
    assert not group.sends(OffsetCommitRequest)
    group.complete(record)
    assert group.assigned == orders(0)
    assert group.respond_to_commit() == {tp(0): 1}
    assert group.assigned == frozenset()
    assert call_id not in group.completed
    group.respond_to_leave()
    assert call_id in group.completed
    assert group.core.subscription_state.subscription() == frozenset()
    assert group.heard(NotifyKind.REVOKED) == [orders(0)]


@BOTH
def test_unsubscribing_from_a_pattern_forgets_the_pattern(eager: bool) -> None:
    group, record = reading_bills(eager, pattern=True)
    call_id = group.unsubscribe()
    group.respond_to_leave()
    assert call_id in group.completed
    group.partitions["orders-new"] = 1
    group.topic_ids["orders-new"] = b"new".ljust(16)
    group.advance(400.0)
    assert group.core.subscription_state.subscription() == frozenset()
    assert group.phase() is ClassicState.UNJOINED
    assert not group.complete(record)


# --- something new while unsubscribing ----------------------------------------------------------


@BOTH
@pytest.mark.parametrize("topic", ["bills", "orders"])
@PATTERNS
def test_what_is_subscribed_to_while_unsubscribing_is_joined_with_afterwards(
    eager: bool, topic: str, pattern: bool
) -> None:
    group, record, call_id = at_work(eager)
    choose(group, topic, pattern=pattern)
    assert group.core.subscription_state.subscription() == {topic}
    assert group.assigned == orders(0)  # KIP-70: until it is given up
    finish(group, record)
    assert call_id in group.completed
    assert group.core.subscription_state.subscription() == {topic}
    request = group.joining()
    assert request.member_id == ""
    assert (subscription_of(request).topics, owned(request)) == ((topic,), frozenset())
    group.give_id()
    group.respond_to_join()
    group.respond_to_sync(tp(1, topic))
    assert group.phase() is ClassicState.STABLE
    assert group.assigned == {tp(1, topic)}
    assert group.receive(1, topic=topic)


@BOTH
def test_the_last_subscription_while_unsubscribing_wins(eager: bool) -> None:
    group, record, _ = at_work(eager)
    group.subscribe("orders", "bills")
    group.subscribe("bills")
    finish(group, record)
    assert subscription_of(group.joining()).topics == ("bills",)


@BOTH
def test_unsubscribing_again_takes_the_new_subscription_back(eager: bool) -> None:
    group, record, first = at_work(eager)
    group.subscribe("bills")
    second = group.unsubscribe()
    finish(group, record)
    assert {first, second} <= group.completed.keys()
    assert group.core.subscription_state.subscription() == frozenset()
    group.advance(60.0)
    assert not group.sends(JoinGroupRequest)


@BOTH
def test_partitions_assigned_by_hand_while_unsubscribing_are_read_afterwards(eager: bool) -> None:
    group, record, call_id = at_work(eager)
    group.core.subscription_state.assign(group.now, [TopicPartition("bills", 1)])
    group.run_until_idle()
    assert group.assigned == orders(0)
    finish(group, record)
    assert call_id in group.completed
    assert group.assigned == {tp(1, "bills")}
    assert group.count(LeaveGroupRequest) == 1
    group.produce(1, topic="bills")
    group.advance(1.0)
    assert [r.topic_partition for r in group.step().records] == [tp(1, "bills")]


@BOTH
def test_closing_while_unsubscribing_joins_nothing_any_more(eager: bool) -> None:
    group, record, unsubscribed = at_work(eager)
    group.subscribe("bills")
    closed = group.close()
    finish(group, record)
    assert {unsubscribed, closed} <= group.completed.keys()
    group.advance(60.0)
    assert not group.sends(JoinGroupRequest)


@BOTH
def test_a_group_that_rejects_us_while_unsubscribing_is_not_joined_again(eager: bool) -> None:
    group, _record, call_id = at_work(eager)
    group.subscribe("bills")
    group.respond_to_beat(ErrorCode.group_authorization_failed)
    assert call_id in group.completed
    with pytest.raises(FatalError):
        for _ in range(3):
            group.poll()
    assert not group.sends(JoinGroupRequest)
