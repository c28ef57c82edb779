"""A pattern that the broker resolves makes no member read Kafka's internal topics."""

from __future__ import annotations

from unit.core.membership.scripted_consumer_group import ScriptedConsumerGroup as Group
from unit.core.scripted_brokers import tp

from asyncrevoke.client.core.membership.kip848.state_table import MemberState
from asyncrevoke.client.model import BrokerPattern, TopicPartition

INTERNAL = TopicPartition("__consumer_offsets", 0)
NOT_CONSUMED = "internal topics match the pattern; they are not consumed"


def assigned_partitions(group: Group) -> set[TopicPartition]:
    return {*group.core.assignment.partitions()}


def test_internal_topics_that_match_a_broker_pattern_are_acknowledged_and_not_read() -> None:
    group = Group(pattern=BrokerPattern(".*"), partitions={"orders": 1, INTERNAL.topic: 1})
    group.start()
    group.respond(tp(0), INTERNAL)
    # Otherwise the coordinator waits for this member.
    assert group.quiet().owned == group.ids(tp(0), INTERNAL)
    assert group.state() is MemberState.STABLE
    assert assigned_partitions(group) == {tp(0)}
    assert group.core.subscription_state.subscription() == {"orders"}
    group.respond(tp(0), INTERNAL, epoch=2)
    (line,) = group.named(NOT_CONSUMED)
    assert line.fields["topics"] == [INTERNAL.topic]
    group.respond(tp(0), epoch=3)
    assert group.quiet(epoch=3).owned == group.ids(tp(0))


def test_an_internal_topic_is_read_by_its_name() -> None:
    group = Group(INTERNAL.topic, partitions={"orders": 1, INTERNAL.topic: 1})
    group.start()
    group.respond(INTERNAL)
    assert group.assigned == {INTERNAL}
    assert not group.named(NOT_CONSUMED)


def test_an_internal_topic_read_by_its_name_is_released_when_only_a_broker_pattern_matches_it() -> (
    None
):
    group = Group(INTERNAL.topic, partitions={"orders": 1, INTERNAL.topic: 1})
    group.start()
    group.respond(INTERNAL)
    group.quiet()
    group.core.subscription_state.subscribe(group.now, pattern=BrokerPattern(".*"))
    group.run_until_idle()
    group.step()
    group.step()
    group.respond(INTERNAL, tp(0), epoch=2)
    assert assigned_partitions(group) == {tp(0)}
