"""Random groups, and what Java's assignors make of them.

``python -m interop.assignor_cases``, run in ``tests``, writes the vectors of the unit tests anew.
"""

from __future__ import annotations

import base64
import json
import os
import random
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NotRequired, TypedDict

import jgo
from interop.assignor_comparison import AssignedGroup, Case

from asyncrevoke.client.core.assignors import ASSIGNORS
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.subscription import Subscription, encode_subscription

if TYPE_CHECKING:
    from collections.abc import Sequence

KAFKA = "4.4.0"
COORDINATES = (
    f"org.apache.kafka:kafka-clients:{KAFKA}+com.fasterxml.jackson.core:jackson-databind:2.19.0"
)
# Short programs: an optimising compiler takes longer than it saves.
JAVA = ("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
PROGRAM = Path(__file__).parent / "java" / "Assignors.java"
VECTORS = Path(__file__).parents[1] / "unit" / "core" / "assignors" / "data" / "assignments.json"
COUNT = 200
STICKY = ("sticky", "cooperative-sticky")
_RACKS = ["east", "north", "west"]


class AssignorResult(TypedDict):
    """What Java made of a group, in base64: assignments and plan by member id.

    ``subscriptions`` are as Java writes them; there is a plan with cooperative-sticky only.
    """

    assignments: dict[str, str]
    subscriptions: list[str]
    plan: NotRequired[dict[str, str]]


class UserDataQuestion(TypedDict):
    """An assignment of partitions of the topic ``orders``."""

    assignor: str
    generation: int
    partitions: list[int]


class _Shape(NamedTuple):
    sizes: tuple[int, ...]
    members: int
    same_topics: bool


def random_groups(count: int, seed: int) -> list[AssignedGroup]:
    """``count`` groups of all assignors, small and large, new, settled and in the midst of it."""
    choose = random.Random(seed)
    return [_random_group(choose) for _ in range(count)]


def assigned_by_java(groups: Sequence[AssignedGroup]) -> list[AssignorResult]:
    """What Java makes of ``groups``."""
    return [json.loads(line) for line in _ask_java(groups)]


def user_data_of_java(questions: Sequence[UserDataQuestion]) -> list[str]:
    """The user data after each assignment, in base64."""
    return [json.loads(line)["user_data"] for line in _ask_java(questions)]


def _ask_java(questions: Sequence[object]) -> list[str]:
    jars = os.pathsep.join(str(jar) for jar in jgo.build(COORDINATES).all_jars)
    lines = "".join(json.dumps(question) + "\n" for question in questions)
    done = subprocess.run(
        [*JAVA, "-cp", jars, str(PROGRAM)],
        input=lines,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if done.returncode:
        raise RuntimeError(f"java ended with {done.returncode}: {done.stderr[-4000:]}")
    return done.stdout.splitlines()


def _random_group(choose: random.Random) -> AssignedGroup:
    assignor = choose.choice(["range", "roundrobin", *["sticky"] * 2, *["cooperative-sticky"] * 4])
    shape = _Shape(
        sizes=tuple(choose.choice([1, 2, 3, 4, 6, 8, 12]) for _ in range(choose.randint(1, 5))),
        members=choose.choice([1, 2, 3, 4, 5, 7, 12, 13, 20, 30]),
        same_topics=choose.random() < 0.7,
    )
    partitions = {f"topic{choose.choice('-._')}{n}": size for n, size in enumerate(shape.sizes)}
    ids = sorted(
        f"{choose.choice(['consumer', 'app', 'billing-αβ'])}-{choose.randint(1, 40)}-"
        f"{choose.getrandbits(48):012x}"
        for _ in range(shape.members)
    )
    choose.shuffle(ids)
    common = _topics(choose, partitions)
    topics = {
        member: common if shape.same_topics else _topics(choose, partitions) for member in ids
    }
    generation = choose.randint(0, 50)
    owned: dict[str, list[TopicPartition]] = (
        _owned(choose, partitions, topics, common)
        if assignor in STICKY and choose.random() < 0.8
        else {member: [] for member in ids}
    )
    versions = {member: choose.choice([3, 3, 3, 2, 1]) for member in ids}
    generations = {
        member: max(generation - choose.choice([0, 0, 0, 0, 1, 3]), 0) if mine else -1
        for member, mine in owned.items()
    }
    if choose.random() < 0.3:
        _conflict(choose, owned, versions)
        if assignor == "sticky":
            # Who was assigned something knows the generation.
            generations |= {m: max(generations[m], 0) for m, mine in owned.items() if mine}
    racks = _racks(choose, partitions) if choose.random() < 0.4 else None
    members: list[tuple[str, str | None, str]] = []
    static = choose.random() < 0.3
    for number, member in enumerate(ids):
        instance = f"instance-{number}" if static and choose.random() < 0.6 else None
        written = encode_subscription(
            Subscription(
                topics=tuple(topics[member]),
                owned=() if assignor == "sticky" else tuple(owned[member]),
                generation=generations[member],
                rack=choose.choice([*_RACKS, None]) if racks is not None else None,
                user_data=_user_data(assignor, generations[member], owned[member]),
            ),
            versions[member],
        )
        members.append((member, instance, base64.b64encode(written).decode()))
    group = AssignedGroup(assignor=assignor, partitions=partitions, members=members)
    if racks is not None:
        group["racks"] = racks
    return group


def _user_data(assignor: str, generation: int, owned: Sequence[TopicPartition]) -> bytes | None:
    return ASSIGNORS[assignor].user_data(generation, owned)


def _racks(choose: random.Random, partitions: dict[str, int]) -> dict[str, list[list[str]]]:
    """Where the replicas of each partition are; sometimes in one rack that no member has."""
    replicas = choose.choice([1, 2, 2, 3])
    racks = _RACKS if choose.random() < 0.9 else ["elsewhere", "far away", "nowhere"]
    same = choose.random() < 0.1
    return {
        topic: [
            sorted(racks[:replicas] if same else choose.sample(racks, replicas))
            for _ in range(size)
        ]
        for topic, size in partitions.items()
    }


def _topics(choose: random.Random, partitions: dict[str, int]) -> list[str]:
    topics = choose.sample(sorted(partitions), choose.randint(1, len(partitions)))
    return [*topics, "not-in-metadata"] if choose.random() < 0.1 else topics


def _owned(
    choose: random.Random,
    partitions: dict[str, int],
    topics: dict[str, list[str]],
    common: list[str],
) -> dict[str, list[TopicPartition]]:
    """Somebody's partitions: of current members, of a few of them, or of nobody any more."""
    owned: dict[str, list[TopicPartition]] = {member: [] for member in topics}
    holders = choose.sample(sorted(topics), choose.randint(1, len(topics)))
    if choose.random() < 0.5:
        holders += [""] * choose.randint(1, 3)  # members that have left
    even = choose.random() < 0.6
    turn = 0
    for topic, size in partitions.items():
        for number in range(size):
            dropped = choose.random() < 0.05  # a topic that its owner no longer wants
            able = [m for m in holders if not m or dropped or topic in topics[m]]
            if able:
                turn += 1
                member = able[turn % len(able)] if even else choose.choice(able)
                if member and (topic in common or not dropped):
                    owned[member].append(TopicPartition(topic, number))
    return owned


def _conflict(
    choose: random.Random, owned: dict[str, list[TopicPartition]], versions: dict[str, int]
) -> None:
    """A second member claims some partition, both of them telling their generation in a field."""
    holders = [member for member, mine in owned.items() if mine]
    if len(owned) < 2 or not holders:
        return
    first = choose.choice(holders)
    second = choose.choice([member for member in owned if member != first])
    owned[second].append(choose.choice(owned[first]))
    versions[first] = versions[second] = 3


def vectors() -> str:
    """The text of ``VECTORS``: the cases that the unit tests go through without Java."""
    groups = random_groups(COUNT, seed=1)
    answers = assigned_by_java(groups)
    questions = [
        UserDataQuestion(assignor=assignor, generation=generation, partitions=partitions)
        for assignor in ("cooperative-sticky", "sticky")
        for generation, partitions in ((-1, []), (0, [3]), (7, [0, 1, 11]), (2**31 - 1, []))
    ]
    text = json.dumps(
        {
            "kafka": KAFKA,
            "user_data": list(zip(questions, user_data_of_java(questions), strict=True)),
            "cases": [
                case_of(group, answer) for group, answer in zip(groups, answers, strict=True)
            ],
        },
        separators=(",", ":"),
        ensure_ascii=False,
    )
    return text.replace('{"group"', '\n{"group"') + "\n"


def case_of(group: AssignedGroup, answer: AssignorResult) -> Case:
    """The subscriptions are written down as Java writes them."""
    as_java = [
        (member_id, instance, written)
        for (member_id, instance, _), written in zip(
            group["members"], answer["subscriptions"], strict=True
        )
    ]
    case = Case(
        group=AssignedGroup({**group, "members": as_java}), assignments=answer["assignments"]
    )
    if "plan" in answer and answer["plan"] != answer["assignments"]:
        case["plan"] = answer["plan"]
    return case


if __name__ == "__main__":
    VECTORS.parent.mkdir(exist_ok=True)
    VECTORS.write_text(vectors(), encoding="utf-8")
