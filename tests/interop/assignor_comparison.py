"""Compares our assignors with what Java's made of the same groups, bytes included."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, NotRequired, TypedDict

from asyncrevoke.client.core.assignors import ASSIGNORS, Assignment, Member, assign
from asyncrevoke.client.core.assignors.cooperative_sticky import plan
from asyncrevoke.client.core.assignors.ownership import ReportedOwnership
from asyncrevoke.client.core.assignors.racks import Racks
from asyncrevoke.client.core.membership.classic.led_generation import (
    read_subscription,
)
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.subscription import (
    decode_assignment,
    decode_subscription,
    encode_subscription,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_LATER = 1000  # a generation after all of the cases


class AssignedGroup(TypedDict):
    """A group before its assignment; members are (id, instance id, subscription in base64), racks
    those of each partition of a topic."""

    assignor: str
    partitions: dict[str, int]
    members: list[tuple[str, str | None, str]]
    racks: NotRequired[dict[str, list[list[str]]]]


class Case(TypedDict):
    """A group and what Java made of it; ``plan`` if something was withheld from it."""

    group: AssignedGroup
    assignments: dict[str, str]
    plan: NotRequired[dict[str, str]]


def differences(case: Case) -> list[str]:
    """What of ``case`` we do otherwise than we promise.

    ``range``, ``roundrobin``, and the sticky ones if all have the same subscription: the same
    partitions for each member. The sticky ones otherwise: at least as even as Java,
    and if just as even, then no more owned partitions moved (unless racks matter, or members
    contradict each other about what they own, where Java may give a partition to somebody not
    subscribed to it). The last holds for all but about one in 2,500 such groups: the fewest moves
    are not searched for over cycles in which an owned partition is passed on to get another one
    back.
    """
    group = case["group"]
    found = [
        f"{member_id}: the subscription is written otherwise"
        for member_id, _, written in group["members"]
        if _rewritten(written) != written
    ]
    partitions = {topic: range(count) for topic, count in group["partitions"].items()}
    members = members_of(group)
    ours = assign(ASSIGNORS[group["assignor"]], partitions, members, racks_of(group))
    java = _decoded(case["assignments"])
    if group["assignor"] not in ("sticky", "cooperative-sticky") or same_topics(members):
        if _ordered(ours) != _ordered(java):
            found.append(f"ours: {_ordered(ours)}, Java's: {_ordered(java)}")
        return found
    claims = ReportedOwnership(members)
    racks = racks_of(group)
    our_plan = plan(partitions, members, claims, racks)
    java_plan = _decoded(case.get("plan", case["assignments"]))
    if not _valid(java_plan, members):
        return found
    if _unevenness(our_plan) > _unevenness(java_plan):
        found.append(f"less even than Java: {_ordered(our_plan)} against {_ordered(java_plan)}")
    elif (
        _unevenness(our_plan) == _unevenness(java_plan)
        and not _contradictory(members)
        and not racks_matter(our_plan, members, racks)
        and _moved(our_plan, members) > _moved(java_plan, members)
    ):
        found.append(f"moves more than Java: {_ordered(our_plan)} against {_ordered(java_plan)}")
    return found


def across_racks(case: Case) -> tuple[int, int] | None:
    """How many partitions go to members that are not beside them, by our plan and by Java's; None
    unless racks matter and topics differ."""
    group = case["group"]
    members, racks = members_of(group), racks_of(group)
    partitions = {topic: range(count) for topic, count in group["partitions"].items()}
    java_plan = _decoded(case.get("plan", case["assignments"]))
    if group["assignor"] not in ("sticky", "cooperative-sticky") or same_topics(members):
        return None
    our_plan = plan(partitions, members, ReportedOwnership(members), racks)
    if not _valid(java_plan, members) or not racks_matter(our_plan, members, racks):
        return None
    known = Racks(members, [tp for mine in our_plan.values() for tp in mine], racks)
    ours, java = (
        sum(not known.match(member, tp) for member, mine in found.items() for tp in mine)
        for found in (our_plan, java_plan)
    )
    return ours, java


def racks_matter(
    assignment: Assignment,
    members: Sequence[Member],
    racks: Mapping[TopicPartition, frozenset[str]],
) -> bool:
    """Whether members and partitions have racks that tell them apart."""
    return Racks(members, [tp for mine in assignment.values() for tp in mine], racks).useful


def racks_of(group: AssignedGroup) -> dict[TopicPartition, frozenset[str]]:
    """The racks of each partition."""
    return {
        TopicPartition(topic, number): frozenset(racks)
        for topic, by_partition in group.get("racks", {}).items()
        for number, racks in enumerate(by_partition)
    }


def members_of(group: AssignedGroup) -> list[Member]:
    """The members as their leader sees them."""
    assignor = ASSIGNORS[group["assignor"]]
    reports = [
        (member_id, instance, read_subscription(base64.b64decode(written), _LATER, assignor))
        for member_id, instance, written in group["members"]
    ]
    assert [report for *_, report in reports if report.unreadable or report.ignored] == []
    return [
        Member(member_id, instance, report.subscription) for member_id, instance, report in reports
    ]


def same_topics(members: Sequence[Member]) -> bool:
    """Whether all have the same subscription."""
    return len({frozenset(member.subscription.topics) for member in members}) == 1


def _rewritten(written: str) -> str:
    data = base64.b64decode(written)
    version = int.from_bytes(data[:2], "big")
    return base64.b64encode(encode_subscription(decode_subscription(data), version)).decode()


def _decoded(assignments: Mapping[str, str]) -> Assignment:
    return {
        member_id: list(decode_assignment(base64.b64decode(written))[0])
        for member_id, written in assignments.items()
    }


def _ordered(assignment: Assignment) -> Assignment:
    return {member_id: sorted(assigned) for member_id, assigned in sorted(assignment.items())}


def _valid(assignment: Assignment, members: Sequence[Member]) -> bool:
    return all(
        tp.topic in member.subscription.topics
        for member in members
        for tp in assignment[member.member_id]
    )


def _contradictory(members: Sequence[Member]) -> bool:
    owned = [tp for member in members for tp in member.subscription.owned]
    return len(owned) != len(set(owned))


def _unevenness(assignment: Assignment) -> int:
    return sum(len(assigned) ** 2 for assigned in assignment.values())


def _moved(assignment: Assignment, members: Sequence[Member]) -> int:
    return sum(
        tp not in assignment[member.member_id]
        for member in members
        for tp in member.subscription.owned
    )
