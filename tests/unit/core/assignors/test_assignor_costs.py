"""What assigning costs: near to the size of its input, whatever the members say.

The lines that the assignors execute are counted, not time: what takes four times the input may
take little more than four times the lines.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import asyncrevoke.client.core.assignors
from asyncrevoke.client.core.assignors import ASSIGNORS, Member, assign
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    from asyncrevoke.client.core.assignors.assignor import Assignment

PLACE = str(Path(asyncrevoke.client.core.assignors.__file__).parent)

Group = tuple[dict[str, range], list[Member], dict[TopicPartition, frozenset[str]]]


def lines_of(call: Callable[[], object]) -> int:
    """How many lines of the assignors a call executes."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        if event == "call" and not frame.f_code.co_filename.startswith(PLACE):
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def member(number: int, topics: list[str], *, owned: list[TopicPartition] | None = None,
           rack: str | None = None) -> Member:  # fmt: skip
    return Member(
        f"m-{number:04}",
        None,
        Subscription(
            topics=tuple(topics),
            owned=tuple(owned or ()),
            generation=7,
            rack=rack,
        ),
    )


def everything(partitions: dict[str, range]) -> list[TopicPartition]:
    return [TopicPartition(topic, n) for topic, numbers in partitions.items() for n in numbers]


def lopsided(size: int, count: int) -> dict[int, list[str]]:
    """Each topic has fewer subscribers than the one before."""
    return {
        number: [f"t-{topic:04}" for topic in range(size) if topic % count <= number]
        for number in range(count)
    }


def all_claim_all(size: int) -> Group:
    partitions = {f"t-{topic:04}": range(2) for topic in range(size)}
    claimed = everything(partitions)
    wanted = lopsided(size, 6)
    return partitions, [member(n, topics, owned=claimed) for n, topics in wanted.items()], {}


def one_has_all(size: int) -> Group:
    partitions = {f"t-{topic:04}": range(2) for topic in range(size)}
    wanted = lopsided(size, 6)
    members = [member(n, topics) for n, topics in wanted.items()]
    members.append(member(99, list(partitions), owned=everything(partitions)))
    return partitions, members, {}


def each_shares_with_the_next(size: int) -> Group:
    """What the first has too much of can only go by chains through all the others."""
    partitions = {f"t-{topic:04}": range(2) for topic in range(size)}
    members = [member(n, [f"t-{t:04}" for t in (n, n + 1) if t < size]) for n in range(size)]
    partitions["t-0000"] = range(size)
    members[0] = member(0, ["t-0000", "t-0001"], owned=everything({"t-0000": range(size)}))
    return partitions, members, {}


def many_givers_in_a_chain(size: int) -> Group:
    """Many members have too much, and all of it has to pass the same few."""
    partitions = {f"t-{topic:04}": range(3) for topic in range(size)} | {"way": range(4)}
    members = [
        member(n, [f"t-{n:04}", "way"], owned=everything({f"t-{n:04}": range(3)}))
        for n in range(size)
    ]
    members.append(member(999, ["way", "t-0000"]))
    return partitions, members, {}


def one_of_many_is_subscribed(size: int) -> Group:
    partitions = {"alone": range(size), "all": range(4)}
    members = [member(n, ["all"]) for n in range(size)]
    return partitions, [*members, member(9999, ["all", "alone"])], {}


def racks_that_nobody_is_in(size: int) -> Group:
    partitions = {topic: range(size) for topic in ("a", "b", "c")}
    members = [member(n, list(partitions), rack=f"r-{n}") for n in range(size)]
    racks = {tp: frozenset({"r-0", "elsewhere"}) for tp in everything(partitions)}
    racks[TopicPartition("a", 0)] = frozenset({"r-1"})
    return partitions, members, racks


def racks_and_different_topics(size: int) -> Group:
    partitions = {f"t-{topic:04}": range(2) for topic in range(size)}
    members = [
        member(n, topics, rack=f"r-{n}", owned=everything(partitions))
        for n, topics in lopsided(size, 6).items()
    ]
    racks = {tp: frozenset({f"r-{tp.partition}", "r-5"}) for tp in everything(partitions)}
    return partitions, members, racks


@pytest.mark.parametrize(
    "group",
    [
        all_claim_all,
        one_has_all,
        each_shares_with_the_next,
        many_givers_in_a_chain,
        one_of_many_is_subscribed,
        racks_that_nobody_is_in,
        racks_and_different_topics,
    ],
)
@pytest.mark.parametrize("name", ASSIGNORS)
def test_four_times_the_group_costs_little_more_than_four_times_as_much(
    name: str, group: Callable[[int], Group]
) -> None:
    def cost(size: int) -> int:
        partitions, members, racks = group(size)
        result: list[Assignment] = []
        lines = lines_of(lambda: result.append(assign(ASSIGNORS[name], partitions, members, racks)))
        assert result[0].keys() == {each.member_id for each in members}
        return lines

    small, large = cost(60), cost(240)
    assert large < small * 4 * 1.7, (small, large)
