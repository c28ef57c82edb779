"""How long moved partitions stand still beyond the work that was left on them.

From what handlers wrote down alone: a partition has *drained* when the last handler call of its old
member has ended, and is *taken over* when the new member first calls a handler of it. With KIP-848
the broker gives away what has to go from a member only when all of it has drained: partitions that
one member's calls end for within the same few seconds are a *round*.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.cli.demo.group_result import handler_calls
from asyncrevoke.client.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.cli.demo.group_result import ObservedCall
    from asyncrevoke.cli.demo.member.handler_log import Abandoned, Ended, Started

_OF_ONE_ROUND = 2.0  # seconds between two take-overs, at most


class TakeOver(NamedTuple):
    """A partition has gone from one member to another; times are seconds."""

    partition: TopicPartition
    old: str
    drained: float
    began: float

    @property
    def seconds(self) -> float:
        """From the partition's own drain to the first call of its new member."""
        return self.began - self.drained


def take_overs(handled: Iterable[Started | Ended | Abandoned]) -> list[TakeOver]:
    """Every move of the members that wrote this down, by the time at which it was over."""
    of_partition: dict[TopicPartition, list[ObservedCall]] = defaultdict(list)
    for call in handler_calls(handled, {}):
        of_partition[call.record.partition].append(call)
    found: list[TakeOver] = []
    for partition, calls in of_partition.items():
        owner, drained = calls[0].member, calls[0].end
        for call in calls:
            if call.member != owner:
                found.append(TakeOver(partition, owner, drained, call.begin))
                owner, drained = call.member, call.end
            drained = max(drained, call.end)
    return sorted(found, key=lambda move: move.began)


def beyond_rounds(moves: Iterable[TakeOver]) -> list[float]:
    """Seconds from the end of the drain of a move's round to the first call of the new member."""
    rounds: dict[str, list[list[TakeOver]]] = defaultdict(list)
    for move in moves:
        of_member = rounds[move.old]
        if not of_member or move.began - of_member[-1][-1].began > _OF_ONE_ROUND:
            of_member.append([])
        of_member[-1].append(move)
    return [
        move.began - max(other.drained for other in each if other.drained <= move.began)
        for of_member in rounds.values()
        for each in of_member
        for move in each
    ]
