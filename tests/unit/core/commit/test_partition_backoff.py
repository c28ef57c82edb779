"""Partitions whose commits were not accepted wait, each for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from unit.core.ignored_reactions import IgnoredPartitions
from unit.core.scripted_brokers import tp

from asyncrevoke.client.core.commit.rejected_commits import PartitionBackoff
from asyncrevoke.client.core.io.effects import SetTimer, TimerFired
from asyncrevoke.client.core.io.outbox import Outbox
from asyncrevoke.client.core.partition.assignment import Assignment

if TYPE_CHECKING:
    from asyncrevoke.client.core.commit.committer import Committer

TIMER = "commit-unknown-topic"


class Waiting:
    def __init__(self) -> None:
        self.outbox = Outbox()
        self.heard: list[float] = []
        self.topics = PartitionBackoff(
            self.outbox, cast("Committer", self), timer=TIMER, first=0.05, longest=2.0
        )
        self.a, self.b = Assignment(self.outbox, IgnoredPartitions()).add([tp(0), tp(1)])
        self.outbox.take()

    def flush(self, now: float) -> None:
        self.heard.append(now)

    def due(self) -> float:
        """When the timer that was set last fires at the earliest."""
        return [effect.at for effect in self.outbox.take() if isinstance(effect, SetTimer)][-1]

    def fire(self, now: float) -> None:
        self.outbox.route(now, TimerFired(TIMER))


def test_each_wait_is_twice_as_long_up_to_two_seconds() -> None:
    waiting = Waiting()
    now, waits = 0.0, list[float]()
    for _ in range(8):
        waiting.topics.add(now, waiting.a)
        assert waiting.topics.has_to_wait(now, waiting.a)
        due = waiting.due()
        waits.append(round(due - now, 3))
        now = due
        waiting.fire(now)
        assert not waiting.topics.has_to_wait(now, waiting.a)
    assert waits == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    assert len(waiting.heard) == 8


def test_a_partition_that_waits_longer_is_logged_after_its_own_interval() -> None:
    waiting = Waiting()
    for _ in range(4):
        waiting.topics.add(0.0, waiting.a)
    waiting.topics.add(0.0, waiting.b)
    first = waiting.due()
    waiting.fire(first)
    assert waiting.topics.has_to_wait(first, waiting.a)
    assert not waiting.topics.has_to_wait(first, waiting.b)
    second = waiting.due()
    waiting.fire(second)
    assert not waiting.topics.has_to_wait(second, waiting.a)
    assert waiting.heard == [first, second] == [0.05, 0.4]


def test_what_is_known_again_begins_again() -> None:
    waiting = Waiting()
    for _ in range(4):
        waiting.topics.add(0.0, waiting.a)
    waiting.topics.forget(waiting.a)
    assert not waiting.topics.has_to_wait(0.0, waiting.a)
    waiting.topics.add(1.0, waiting.a)
    assert waiting.due() == 1.05
