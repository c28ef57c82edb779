"""How long the leader of a classic group takes to assign with ``cooperative-sticky``, by size.

    python -m benchmarks.costs.assignor [--json] [--times N] [--largest N]

Four sizes, each twice the one before, up to 2,000 members and 100,000 partitions. Measured is the
CPU time of the whole turn of a leader: it reads all subscriptions, plans, withholds, checks the
result and encodes it, with the event loop blocked meanwhile. Each figure is the least of some runs,
since whatever else the machine does can only add to it; with random subscriptions, it is that of
the slowest of four groups. How the cost grows is counted in lines of Python that the assignor
executes, because time also grows with what no longer fits the processor's caches. Fails if a turn
takes longer than 5 s, or if the lines grow faster than n log n from the smallest size to the
largest.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import random
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from asyncrevoke.client.core.assignors import ASSIGNORS, Member, assign, repair, withheld
from asyncrevoke.client.core.assignors.racks import PartitionRacks
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.subscription import (
    Subscription,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from benchmarks.report.surroundings import surroundings, table

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from asyncrevoke.client.core.assignors import Assignment

TraceFunction: TypeAlias = "Callable[[FrameType, str, object], TraceFunction | None]"

MEMBERS = 2_000
PARTITIONS_A_MEMBER = 50
SIZES = 4
GROUPS = 4
LIMIT = 5.0


class Group(NamedTuple):
    """A group as it stands: who is in it, and what there is."""

    partitions: Mapping[str, Sequence[int]]
    members: list[tuple[str, Subscription]]
    racks: PartitionRacks


def _member_id(rng: random.Random) -> str:
    return f"consumer-{rng.getrandbits(128):032x}"


def same_topics(members: int, rng: random.Random) -> Group:
    """All read the same ten topics."""
    per_topic = members * PARTITIONS_A_MEMBER // 10
    partitions = {f"topic-{number}": range(per_topic) for number in range(10)}
    subscription = Subscription(topics=tuple(partitions))
    return Group(partitions, [(_member_id(rng), subscription) for _ in range(members)], {})


def racks(members: int, rng: random.Random) -> Group:
    """The same in three racks, with two replicas of each partition."""
    group = same_topics(members, rng)
    names = ("rack-1", "rack-2", "rack-3")
    placed = {
        TopicPartition(topic, number): frozenset(rng.sample(names, 2))
        for topic, numbers in group.partitions.items()
        for number in numbers
    }
    subscribed = [
        (member_id, Subscription(topics=member.topics, rack=rng.choice(names)))
        for member_id, member in group.members
    ]
    return Group(group.partitions, subscribed, placed)


def different_topics(members: int, rng: random.Random) -> Group:
    """Each reads five of many topics, some of which have many times the partitions of others."""
    weights = [rng.expovariate(1.0) for _ in range(members // 10)]
    total = members * PARTITIONS_A_MEMBER / sum(weights)
    partitions = {
        f"topic-{number}": range(max(1, round(weight * total)))
        for number, weight in enumerate(weights)
    }
    topics = sorted(partitions)
    subscribed = [
        (_member_id(rng), Subscription(topics=tuple(rng.sample(topics, 5)))) for _ in range(members)
    ]
    return Group(partitions, subscribed, {})


SHAPES = {"same topics": same_topics, "same, racks": racks, "different topics": different_topics}


def turn(group: Group) -> tuple[float, Assignment]:
    """One turn of the leader: its CPU time, and what came of it."""
    assignor = ASSIGNORS["cooperative-sticky"]
    sent = [
        (member_id, encode_subscription(subscription)) for member_id, subscription in group.members
    ]
    gc.collect()
    started = time.process_time()
    members = [Member(member_id, None, decode_subscription(data)) for member_id, data in sent]
    plan = assign(assignor, group.partitions, members, group.racks)
    plan, violations = repair(plan, members)
    withheld(group.partitions, members, plan)
    for member in members:
        encode_assignment(plan[member.member_id])
    took = time.process_time() - started
    assert not violations
    return took, plan


def lines_of(group: Group) -> int:
    """How many lines of Python the assignor executes; each turn of a loop counts its lines."""
    count = 0

    def trace(_frame: FrameType, event: str, _argument: object) -> TraceFunction:
        nonlocal count
        count += event == "line"
        return trace

    members = [Member(member_id, None, member) for member_id, member in group.members]
    sys.settrace(trace)
    try:
        assign(ASSIGNORS["cooperative-sticky"], group.partitions, members, group.racks)
    finally:
        sys.settrace(None)
    return count


def joined(group: Group, plan: Assignment, generation: int) -> Group:
    """The group after its members have taken over ``plan``."""
    return group._replace(
        members=[
            (
                member_id,
                Subscription(
                    topics=member.topics,
                    rack=member.rack,
                    owned=tuple(plan[member_id]),
                    generation=generation,
                ),
            )
            for member_id, member in group.members
        ]
    )


def measure(
    shape: Callable[[int, random.Random], Group], members: int, times: int, seed: int
) -> dict[str, tuple[float, int]]:
    """CPU seconds of a leader's turn and lines of the assignor, by what has happened."""
    rng = random.Random(f"{members} {seed}")  # reproducible
    empty = shape(members, rng)
    newcomer = (_member_id(rng), empty.members[0][1])
    first, plan = turn(empty)
    running = joined(empty, plan, 1)
    _, plan = turn(running)
    running = joined(running, plan, 2)
    groups = {
        "first": empty,
        "nothing": running,
        "one joins": running._replace(members=[*running.members, newcomer]),
        "a tenth leaves": running._replace(members=running.members[members // 10 :]),
    }
    found = {name: min(turn(group)[0] for _ in range(times)) for name, group in groups.items()}
    found["first"] = min(first, found["first"])
    return {name: (found[name], lines_of(group)) for name, group in groups.items()}


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.costs.assignor", description=__doc__
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--times", type=int, default=2, help="runs per figure, 2 by default")
    parser.add_argument("--largest", type=int, default=MEMBERS, help="members of the largest group")
    options = parser.parse_args()
    sizes = [options.largest >> step for step in reversed(range(SIZES))]
    n = [size * PARTITIONS_A_MEMBER for size in sizes]
    allowed = n[-1] * math.log(n[-1]) / (n[0] * math.log(n[0]))
    results: list[dict[str, object]] = []
    rows: list[list[str]] = []
    failed = False
    for name, shape in SHAPES.items():
        # Random subscriptions are easy or hard to balance: of these several groups are measured.
        seeds = range(GROUPS if shape is different_topics else 1)
        by_size = [[measure(shape, size, options.times, seed) for seed in seeds] for size in sizes]
        for event in by_size[0][0]:
            seconds = [max(found[event][0] for found in groups) for groups in by_size]
            lines = [sum(found[event][1] for found in groups) for groups in by_size]
            growth = lines[-1] / lines[0]
            failed |= seconds[-1] > LIMIT or growth > allowed
            results.append({"group": name, "event": event, "seconds": seconds, "lines": lines})
            rows.append([name, event, *(f"{second:.3f}" for second in seconds), f"{growth:.1f}"])
    if options.json:
        print(json.dumps({"members": sizes, "partitions": n, "turns": results}, indent=2))
    else:
        head = [f"{size:,} / {count:,}" for size, count in zip(sizes, n, strict=True)]
        print(table(["group", "what happens", *head, "lines grow"], rows))
        print(f"\nmembers / partitions, seconds; n log n grows {allowed:.1f} times")
        print(", ".join(f"{name} {value}" for name, value in surroundings("none").items()))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
