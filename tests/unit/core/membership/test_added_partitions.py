"""Partitions that were created since a subscription began are read from their start."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from unit.core.membership.scripted_consumer_group import ScriptedConsumerGroup
from unit.core.scripted_brokers import tp
from unit.core.scripted_group import ScriptedGroup

from asyncrevoke.client.model import BrokerPattern
from asyncrevoke.client.protocol.messages import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ErrorCode,
    ListOffsetsRequest,
)

if TYPE_CHECKING:
    from unit.core.scripted_brokers import ScriptedBrokers

    from asyncrevoke.client.config import OffsetReset
    from asyncrevoke.client.model import TopicPartition

AGE = 10.0
RESETS = pytest.mark.parametrize("reset", ["latest", timedelta(minutes=5)])


def nothing_is_committed(world: ScriptedBrokers, topic: str, count: int) -> None:
    world.committed.update({tp(number, topic): -1 for number in range(count)})


def grow(world: ScriptedBrokers, topic: str, count: int, *, records: int = 5) -> None:
    """The topic has so many partitions now, each with records, before any member knows."""
    world.partitions[topic] = count
    world.topic_ids.setdefault(topic, topic.encode().ljust(16)[:16])
    nothing_is_committed(world, topic, count)
    for number in range(count):
        if tp(number, topic) not in world.logs:
            world.produce(number, records, topic)


def asked_for(world: ScriptedBrokers, partition: TopicPartition) -> list[int]:
    """The timestamps that were asked for the offsets of a partition, the end excepted that is
    looked up before a time is."""
    return [
        query.timestamp
        for send in world.sent
        if isinstance(send.message, ListOffsetsRequest)
        for query in send.message.queries
        if query.partition == partition
    ]


def member(reset: OffsetReset, partitions: int = 2) -> ScriptedGroup:
    group = ScriptedGroup(
        partitions={"orders": partitions}, auto_offset_reset=reset, metadata_max_age=AGE
    )
    nothing_is_committed(group, "orders", partitions)
    for number in range(partitions):
        group.produce(number, 7)
    group.become_member(*range(partitions))
    return group


def see_metadata(group: ScriptedGroup) -> None:
    """Metadata is refreshed while the group is stable."""
    group.pulse = ErrorCode.none
    group.advance(2 * AGE)
    group.pulse = None


@RESETS
def test_an_added_partition_begins_at_its_start(reset: OffsetReset) -> None:
    group = member(reset)
    assert EARLIEST_TIMESTAMP not in asked_for(group, tp(0))
    grow(group, "orders", 3)
    see_metadata(group)
    group.rebalance()
    group.rejoin(0, 1, 2)
    assert asked_for(group, tp(2)) == [EARLIEST_TIMESTAMP]
    assert group.core.position(tp(2)) == 0
    (*_, event) = [each for each in group.events if each.event == "position is reset"]
    assert event.fields["reason"] == "the partition was created after the subscription began"
    assert event.fields["offsets"] == {"orders-2": 0}


def test_an_added_partition_that_is_assigned_before_metadata_has_it_begins_at_its_start() -> None:
    group = member("latest")
    grow(group, "orders", 3)
    group.rebalance()
    group.rejoin(0, 1, 2)
    group.advance(2 * AGE)
    assert group.core.position(tp(2)) == 0


def test_a_partition_that_the_topic_had_before_begins_by_the_policy() -> None:
    group = ScriptedGroup(partitions={"orders": 3}, auto_offset_reset="latest")
    nothing_is_committed(group, "orders", 3)
    for number in range(3):
        group.produce(number, 7)
    group.become_member(0)
    group.rebalance()
    group.rejoin(0, 2)
    assert asked_for(group, tp(2)) == [LATEST_TIMESTAMP]
    assert group.core.position(tp(2)) == 7


def test_an_added_partition_begins_at_its_committed_offset_if_it_has_one() -> None:
    group = member("latest")
    grow(group, "orders", 3)
    group.committed[tp(2)] = 4
    see_metadata(group)
    group.rebalance()
    group.rejoin(0, 1, 2)
    assert group.core.position(tp(2)) == 4


def test_an_added_partition_begins_at_its_start_with_kip_848() -> None:
    group = ScriptedConsumerGroup(
        partitions={"orders": 1}, auto_offset_reset="latest", metadata_max_age=AGE
    )
    nothing_is_committed(group, "orders", 1)
    group.start()
    group.respond(tp(0))
    grow(group, "orders", 2)
    group.respond(tp(0), tp(1), epoch=2)
    group.advance(2 * AGE)
    assert group.core.position(tp(1)) == 0


@pytest.mark.parametrize("pattern", [None, "or.*"])
def test_without_a_group_an_added_partition_begins_at_its_start(pattern: str | None) -> None:
    group = ScriptedGroup(
        pattern=pattern,
        partitions={"orders": 1},
        group_id=None,
        auto_offset_reset="latest",
        metadata_max_age=AGE,
    )
    group.produce(0, 7)
    group.start()
    assert group.core.position(tp(0)) == 7
    grow(group, "orders", 2)
    group.advance(2 * AGE)
    assert group.core.position(tp(1)) == 0


def test_a_topic_that_is_created_after_it_was_subscribed_to_begins_at_its_start() -> None:
    group = ScriptedGroup(
        partitions={}, group_id=None, auto_offset_reset="latest", metadata_max_age=AGE
    )
    group.start()
    grow(group, "orders", 1)
    group.advance(2 * AGE)
    assert group.core.position(tp(0)) == 0


def test_a_topic_that_matches_a_pattern_later_begins_at_its_start() -> None:
    group = ScriptedGroup(
        pattern="orders.*",
        partitions={"orders": 1, "bills": 1},
        group_id=None,
        auto_offset_reset="latest",
        metadata_max_age=AGE,
    )
    group.produce(0, 7)
    group.start()
    assert group.core.position(tp(0)) == 7
    grow(group, "orders-new", 2)
    group.advance(2 * AGE)
    assert [group.core.position(tp(number, "orders-new")) for number in (0, 1)] == [0, 0]


def test_a_topic_that_is_created_anew_begins_at_its_start() -> None:
    group = ScriptedGroup(
        partitions={"orders": 1}, group_id=None, auto_offset_reset="latest", metadata_max_age=AGE
    )
    group.produce(0, 7)
    group.start()
    del group.logs[tp(0)]
    group.topic_ids["orders"] = b"another".ljust(16)
    group.produce(0, 5)
    group.advance(2 * AGE)
    assert group.core.position(tp(0)) == 0


@pytest.mark.parametrize("pattern", [False, True])
def test_a_subscription_that_begins_later_has_what_the_topic_has_then(pattern: bool) -> None:
    group = ScriptedGroup(
        partitions={"orders": 1, "bills": 1},
        group_id=None,
        auto_offset_reset="latest",
        metadata_max_age=AGE,
    )
    group.start()
    grow(group, "bills", 2)
    if pattern:
        group.core.subscription_state.subscribe(group.now, pattern="bills|orders")
    else:
        group.core.subscription_state.subscribe(group.now, ["bills"])
    group.advance(2 * AGE)
    assert [group.core.position(tp(number, "bills")) for number in (0, 1)] == [5, 5]


def test_a_topic_that_stays_subscribed_to_keeps_its_beginning() -> None:
    group = ScriptedGroup(
        partitions={"orders": 1, "bills": 1},
        group_id=None,
        auto_offset_reset="latest",
        metadata_max_age=AGE,
    )
    group.start()
    group.core.subscription_state.subscribe(group.now, ["orders", "bills"])
    group.advance(1.0)
    grow(group, "orders", 2)
    group.advance(2 * AGE)
    assert group.core.position(tp(1)) == 0


def test_partitions_that_the_user_assigns_begin_by_the_policy() -> None:
    group = ScriptedGroup(
        partitions={"orders": 1}, group_id=None, auto_offset_reset="latest", metadata_max_age=AGE
    )
    group.start()
    grow(group, "orders", 2)
    group.core.subscription_state.assign(group.now, [tp(1)])
    group.advance(2 * AGE)
    assert group.core.position(tp(1)) == 5


def test_topics_of_a_broker_pattern_begin_by_the_policy() -> None:
    group = ScriptedConsumerGroup(
        pattern=BrokerPattern("or.*"),
        partitions={"orders": 1},
        auto_offset_reset="latest",
        metadata_max_age=AGE,
    )
    nothing_is_committed(group, "orders", 1)
    group.start()
    group.respond(tp(0))
    grow(group, "orders", 2)
    group.respond(tp(0), tp(1), epoch=2)
    group.advance(2 * AGE)
    assert group.core.position(tp(1)) == 5
