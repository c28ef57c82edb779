"""What the benchmark of churns takes for the time in which a moved partition stands still."""

from __future__ import annotations

from asyncrevoke.cli.demo.member.handler_log import Ended, Started
from asyncrevoke.client.model import TopicPartition
from benchmarks.workload.take_overs import beyond_rounds, take_overs

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def call(
    member: str, partition: int, offset: int, begin: float, end: float
) -> list[Started | Ended]:
    return [
        kind(member=member, topic="orders", partition=partition, offset=offset, key="k", at=at)
        for kind, at in ((Started, begin), (Ended, end))
    ]


def test_a_take_over_lasts_from_the_last_end_of_the_old_member_to_the_first_call_of_the_new() -> (
    None
):
    handled = call("A", 0, 0, 1.0, 4.0) + call("A", 0, 1, 2.0, 2.1) + call("B", 0, 2, 4.5, 9.0)
    (move,) = take_overs(handled)
    assert move == (P0, "A", 4.0, 4.5)
    assert move.seconds == 0.5


def test_a_partition_that_stays_is_not_taken_over() -> None:
    assert take_overs(call("A", 0, 0, 1.0, 4.0) + call("A", 0, 1, 9.0, 9.1)) == []


def test_a_partition_that_comes_back_has_moved_twice() -> None:
    handled = call("A", 0, 0, 1.0, 2.0) + call("B", 0, 1, 3.0, 4.0) + call("A", 0, 2, 6.0, 7.0)
    assert [(move.old, move.seconds) for move in take_overs(handled)] == [("A", 1.0), ("B", 2.0)]


def test_a_round_has_drained_when_the_last_of_its_partitions_has() -> None:
    handled = call("A", 0, 0, 1.0, 2.0) + call("A", 1, 0, 1.0, 5.0)
    handled += call("B", 0, 1, 5.25, 5.5) + call("B", 1, 1, 5.5, 5.75)
    assert beyond_rounds(take_overs(handled)) == [0.25, 0.5]


def test_later_rounds_of_a_member_are_other_rounds() -> None:
    handled = call("A", 0, 0, 1.0, 2.0) + call("B", 0, 1, 2.5, 2.75)
    handled += call("A", 1, 0, 1.0, 9.0) + call("B", 1, 1, 9.5, 9.75)
    assert beyond_rounds(take_overs(handled)) == [0.5, 0.5]
