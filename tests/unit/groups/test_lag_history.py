"""The lag of groups by topic, and how fast it changes."""

from __future__ import annotations

from asyncrevoke.cli.groups.lag_history import LagHistory, TopicLag
from asyncrevoke.client.groups.facts import (
    GroupFacts,
    PartitionFacts,
    RebalanceFacts,
    ShareGroupFacts,
    SharePartitionFacts,
)

QUIET = RebalanceFacts(in_progress=False, known=True, held_up_by=(), says="")


def group(*partitions: PartitionFacts) -> GroupFacts:
    return GroupFacts(
        group="billing",
        type="classic",
        state="Stable",
        assignor="",
        coordinator="",
        epoch=None,
        rebalance=QUIET,
        members=(),
        partitions=partitions,
    )


def partition(topic: str, number: int, committed: int | None, end: int | None) -> PartitionFacts:
    lag = None if committed is None or end is None else end - committed
    return PartitionFacts(topic=topic, partition=number, committed=committed, end=end, lag=lag)


def test_lag_is_summed_by_topic_with_the_partition_that_has_most_of_it() -> None:
    facts = group(
        partition("b", 0, 5, 5),
        partition("a", 0, 10, 11),
        partition("a", 1, 10, 30),
        partition("a", 2, None, 9),
    )
    assert LagHistory().look(facts, 1.0) == [
        TopicLag(group="billing", topic="a", partitions=3, lag=21, unknown=1, worst=1),
        TopicLag(group="billing", topic="b", partitions=1, lag=0, unknown=0, worst=None),
    ]


def test_rates_are_those_since_the_look_before() -> None:
    history = LagHistory()
    history.look(group(partition("a", 0, 10, 20), partition("a", 1, None, 5)), 100.0)
    second = group(partition("a", 0, 14, 40), partition("a", 1, 2, 6), partition("a", 2, 0, 900))
    (lag,) = history.look(second, 104.0)
    # Partition 1 had no committed offset, and partition 2 is new.
    assert (lag.arriving, lag.committing) == (5.2, 1.0)
    (lag,) = history.look(group(partition("a", 0, 4, 40)), 106.0)
    assert (lag.arriving, lag.committing) == (0.0, -5.0)


def test_a_lag_that_is_not_known_of_any_partition_is_none() -> None:
    (lag,) = LagHistory().look(group(partition("a", 0, None, 5)), 1.0)
    assert (lag.lag, lag.unknown, lag.worst) == (None, 1, None)


def test_a_share_group_has_a_lag_and_no_rates() -> None:
    shared = ShareGroupFacts(
        group="mails",
        type="share",
        state="Stable",
        assignor="simple",
        coordinator="",
        epoch=1,
        members=(),
        partitions=(SharePartitionFacts(topic="a", partition=0, start=1, lag=7),),
    )
    history = LagHistory()
    for now in (1.0, 2.0):
        (lag,) = history.look(shared, now)
        assert (lag.lag, lag.arriving, lag.committing) == (7, None, None)
