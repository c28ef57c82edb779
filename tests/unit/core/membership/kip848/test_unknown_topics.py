"""Assigned topics that the brokers' metadata lack, as topics that a server-side pattern matches."""

from __future__ import annotations

import base64

from unit.core.membership.scripted_consumer_group import ScriptedConsumerGroup as Group
from unit.core.scripted_brokers import tp

from asyncrevoke.client.model import BrokerPattern
from asyncrevoke.client.protocol.messages import ErrorCode

MISSING = "assigned partitions are missing in the brokers' metadata; they are not read yet"
BILLS = tp(0, "bills")


def with_hidden_topic() -> Group:
    """Assigned are orders and bills; the brokers describe orders only."""
    group = Group(pattern=BrokerPattern("orders|bills"), partitions={"orders": 1, "bills": 1})
    del group.partitions["bills"]
    group.start()
    group.respond(tp(0), BILLS)
    return group


def live_for(group: Group, seconds: float) -> None:
    """Respond to heartbeats with nothing new."""
    until = group.now + seconds
    while group.now < until:
        group.quiet()


def test_assigned_topics_that_the_metadata_lack_are_named_once_after_ten_seconds() -> None:
    group = with_hidden_topic()
    live_for(group, 9)
    assert not group.named(MISSING)
    live_for(group, 120)
    (line,) = group.named(MISSING)
    topic_id = base64.urlsafe_b64encode(group.topic_ids["bills"]).decode().rstrip("=")
    assert line.fields["topics"] == [topic_id]
    assert line.fields["count"] == 1
    assert group.assigned == {tp(0)}
    # It is read when the brokers describe it.
    group.partitions["bills"] = 1
    live_for(group, 15)
    assert group.assigned == {tp(0), BILLS}
    assert len(group.named(MISSING)) == 1


def test_assigned_topics_that_only_a_request_by_id_gets_are_read_at_once() -> None:
    group = Group(pattern=BrokerPattern("orders|bills"), partitions={"orders": 1, "bills": 1})
    del group.partitions["bills"]
    group.by_id_only["bills"] = 1
    group.start()
    group.respond(tp(0), BILLS)
    assert group.assigned == {tp(0), BILLS}
    assert not group.named(MISSING)


def test_topics_that_this_client_may_not_describe_are_named_at_once_with_the_reason() -> None:
    group = Group(pattern=BrokerPattern("orders|bills"), partitions={"orders": 1, "bills": 1})
    del group.partitions["bills"]
    group.error_by_id = ErrorCode.topic_authorization_failed
    group.start()
    group.respond(tp(0), BILLS)
    (line,) = group.named(MISSING)
    assert line.fields["reason"] == "not authorized to describe them"
    live_for(group, 60)
    assert len(group.named(MISSING)) == 1


def test_topics_that_the_metadata_get_in_time_are_not_named() -> None:
    group = with_hidden_topic()
    live_for(group, 5)
    group.partitions["bills"] = 1
    live_for(group, 60)
    assert group.assigned == {tp(0), BILLS}
    assert not group.named(MISSING)


def test_a_known_topic_with_too_few_partitions_is_named_by_its_name() -> None:
    group = Group("orders", partitions={"orders": 1})
    group.start()
    group.respond(tp(0), tp(1))
    live_for(group, 60)
    (line,) = group.named(MISSING)
    assert line.fields["topics"] == ["orders"]
