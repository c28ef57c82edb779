"""However many topics match a pattern, a member subscribes to no more than its leader reads."""

from __future__ import annotations

import re

import pytest
from unit.core.scripted_group import ScriptedGroup, subscription_of

from asyncrevoke import ConfigError
from asyncrevoke.client.config.topics import MAX_TOPIC_BYTES, MAX_TOPICS, check_topics
from asyncrevoke.client.core.assignors import ASSIGNORS
from asyncrevoke.client.core.io.outbox import Outbox
from asyncrevoke.client.core.membership import subscription_state
from asyncrevoke.client.core.membership.classic.led_generation import (
    read_subscription,
)
from asyncrevoke.client.core.membership.subscription_state import PatternSubscription
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.subscription import Subscription, encode_subscription
from asyncrevoke.client.runtime.session.subscription_calls import read_from

EXCEEDED = "pattern matches too many topics; not all of them are consumed"


def names(*numbers: int) -> tuple[str, ...]:
    return tuple(f"bills-{number}" for number in numbers)


def reading_bills(*numbers: int) -> ScriptedGroup:
    """A member that joins with the topics ``bills-N`` that match its pattern."""
    group = ScriptedGroup(
        pattern="bills-.*", partitions=dict.fromkeys(names(*numbers), 1), metadata_max_age=10.0
    )
    group.start()
    return group


def add(group: ScriptedGroup, name: str) -> None:
    group.partitions[name] = 1
    group.topic_ids[name] = name.encode().ljust(16)


def test_a_member_joins_with_the_first_topics_that_match(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription_state, "MAX_TOPICS", 3)
    group = reading_bills(5, 2, 4, 3, 1)
    assert subscription_of(group.joining()).topics == names(1, 2, 3)
    (line,) = group.named(EXCEEDED)
    assert line.level == "error"
    assert (line.fields["matching"], line.fields["subscribed"]) == (5, 3)


def test_topics_that_somebody_creates_displace_none_that_is_consumed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subscription_state, "MAX_TOPICS", 3)
    group = reading_bills(2, 3, 4)
    assert not group.named(EXCEEDED)
    add(group, "bills-1")
    group.advance(11.0)
    assert group.core.subscription_state.subscription() == frozenset(names(2, 3, 4))
    assert len(group.named(EXCEEDED)) == 1
    del group.partitions["bills-3"]
    group.advance(11.0)
    assert group.core.subscription_state.subscription() == frozenset(names(1, 2, 4))
    add(group, "bills-0")
    group.advance(11.0)
    assert len(group.named(EXCEEDED)) == 2


@pytest.mark.parametrize(
    ("compiled", "matching"),
    [
        (re.compile("orders"), {"orders"}),
        (re.compile("orders.*", re.IGNORECASE), {"orders", "orders-eu", "ORDERS"}),
        (re.compile("orders -  eu  # only these", re.VERBOSE), {"orders-eu"}),
        (re.compile("(?i)ORDERS"), {"orders", "ORDERS"}),
    ],
)
def test_a_compiled_pattern_keeps_its_flags(compiled: re.Pattern[str], matching: set[str]) -> None:
    topics, checked = read_from((), compiled, "subscribe", "classic")
    assert not topics
    assert isinstance(checked, re.Pattern)
    found = PatternSubscription(Outbox(), checked)
    assert found.matching(["orders", "orders-eu", "ORDERS", "bills"]) == matching


@pytest.mark.parametrize("name", ["x", "x" * 240])
def test_the_leader_reads_what_matches_a_pattern_at_most(name: str) -> None:
    topics = [f"{name}-{number}" for number in range(120_000)]
    chosen = PatternSubscription(Outbox(), ".*").matching([*topics, "", "[/]"])
    assert 6_000 < len(chosen) <= MAX_TOPICS
    owned = tuple(TopicPartition(topic, 0) for topic in chosen)
    blob = encode_subscription(Subscription(topics=tuple(chosen), owned=owned))
    read = read_subscription(blob, 5, ASSIGNORS["cooperative-sticky"])
    assert (read.unreadable, read.ignored) == (None, ())
    assert set(read.subscription.topics) == chosen


@pytest.mark.parametrize(
    "topics",
    [
        [f"bills-{number}" for number in range(MAX_TOPICS + 1)],
        [f"{number:0>249}" for number in range(MAX_TOPIC_BYTES // 251 + 1)],
    ],
    ids=["many", "long"],
)
def test_more_topics_by_name_than_a_leader_reads_are_rejected(topics: list[str]) -> None:
    assert len(check_topics(tuple(topics[:-1]), "subscribe")) == len(topics) - 1
    with pytest.raises(ConfigError, match=r"at most 100,000 topics"):
        check_topics(tuple(topics), "subscribe")
