"""What holds for every group, whatever its members own, want and contradict each other about."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrevoke.client.core.assignors import (
    ASSIGNORS,
    Assignment,
    Assignor,
    Member,
    repair,
    withheld,
)
from asyncrevoke.client.core.assignors.cooperative_sticky import plan
from asyncrevoke.client.core.assignors.ownership import ReportedOwnership
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.subscription import Subscription

STICKY = ASSIGNORS["cooperative-sticky"]
Partitions = dict[str, range]
Group = tuple[Partitions, list[Member]]
TOPICS = "tuvw"
STATIC = st.booleans()
MEMBER_IDS = [f"{name}-{number}" for name in ("a", "b", "mn", "xyz") for number in range(8)]


@st.composite
def groups(draw: st.DrawFn, *, most: int = 8, size: int = 7, contradict: bool = False) -> Group:
    """A group in any state: partitions owned by members, claimed twice if wanted, or free."""
    partitions = {
        topic: range(draw(st.integers(0, size)))
        for topic in TOPICS[: draw(st.integers(1, len(TOPICS)))]
    }
    ids = draw(st.lists(st.sampled_from(MEMBER_IDS), min_size=1, max_size=most, unique=True))
    some = st.sets(st.sampled_from([*partitions, "unknown"]), min_size=1)
    common = draw(st.none() | some)
    topics = {member_id: common or draw(some) for member_id in ids}
    owned: dict[str, set[TopicPartition]] = {member_id: set() for member_id in ids}
    holders = draw(st.lists(st.sampled_from([*ids, None]), min_size=1, max_size=4))
    holder_of_each = st.sampled_from(holders)
    for topic, numbers in partitions.items():
        for number in numbers:
            holder = draw(holder_of_each)
            if holder is not None:
                owned[holder].add(TopicPartition(topic, number))
    if contradict:
        claims = [TopicPartition(topic, number) for topic in TOPICS for number in range(size + 1)]
        claimed_by_each = st.sets(st.sampled_from(claims), max_size=4)
        for member_id in ids:
            owned[member_id] |= draw(claimed_by_each)
    generation_of_each = st.integers(-1, 3) if contradict else st.just(3)
    members = [
        Member(
            member_id,
            f"instance {member_id}" if draw(STATIC) else None,
            Subscription(
                topics=tuple(sorted(topics[member_id])),
                owned=tuple(sorted(owned[member_id])),
                generation=draw(generation_of_each),
            ),
        )
        for member_id in ids
    ]
    return partitions, members


def following(members: list[Member], assignment: Assignment) -> list[Member]:
    """The members when they join again, having given up what they were told to."""
    return [
        member._replace(
            subscription=Subscription(
                topics=member.subscription.topics,
                owned=tuple(sorted(assignment[member.member_id])),
                generation=member.subscription.generation + 1,
                rack=member.subscription.rack,
            )
        )
        for member in members
    ]


def unevenness(assignment: Assignment) -> int:
    return sum(len(assigned) ** 2 for assigned in assignment.values())


def owned_by(members: list[Member]) -> dict[TopicPartition, str]:
    return {tp: member.member_id for member in members for tp in member.subscription.owned}


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=list(ASSIGNORS))
@given(group=groups(contradict=True))
def test_each_partition_goes_to_at_most_one_member_and_that_one_is_subscribed(
    assignor: Assignor, group: Group
) -> None:
    partitions, members = group
    result = assignor.assign(partitions, members)
    assert result.keys() == {member.member_id for member in members}
    given_out = [tp for assigned in result.values() for tp in assigned]
    assert len(given_out) == len(set(given_out))
    for member in members:
        for topic, number in result[member.member_id]:
            assert topic in member.subscription.topics
            assert number in partitions[topic]


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=list(ASSIGNORS))
@given(group=groups(contradict=True))
def test_a_partition_without_owner_is_one_that_waits_for_its_old_owner(
    assignor: Assignor, group: Group
) -> None:
    partitions, members = group
    result = assignor.assign(partitions, members)
    claimed = {tp for member in members for tp in member.subscription.owned}
    missing = withheld(partitions, members, result)
    assert set(missing) <= (claimed if assignor is STICKY else set())


@given(groups(contradict=True))
def test_no_partition_is_given_to_one_while_another_must_still_give_it_up(group: Group) -> None:
    partitions, members = group
    result = STICKY.assign(partitions, members)
    assert repair(result, members) == (result, [])
    for member in members:
        revoked = set(member.subscription.owned) - set(result[member.member_id])
        for other in members:
            added = set(result[other.member_id]) - set(other.subscription.owned)
            assert not added & revoked


@given(groups())
def test_who_all_want_the_same_topics_get_the_same_number_give_or_take_one(group: Group) -> None:
    partitions, members = group
    topics = members[0].subscription.topics
    same = [_with_topics(member, topics) for member in members]
    loads = [len(assigned) for assigned in plan(partitions, same, ReportedOwnership(same)).values()]
    assert max(loads) - min(loads) <= 1


@given(groups(most=4, size=2))
def test_no_assignment_is_more_even(group: Group) -> None:
    partitions, members = group
    choices = [
        [member.member_id for member in members if topic in member.subscription.topics]
        for topic, numbers in partitions.items()
        for _ in numbers
    ]
    best = min(
        sum(taken.count(member.member_id) ** 2 for member in members)
        for taken in itertools.product(*[choice for choice in choices if choice])
    )
    assert unevenness(plan(partitions, members, ReportedOwnership(members))) == best


@given(groups(contradict=True))
def test_a_group_comes_to_rest_after_one_follow_up_round(group: Group) -> None:
    partitions, members = group
    target = unevenness(plan(partitions, members, ReportedOwnership(members)))
    joined_again = following(members, STICKY.assign(partitions, members))
    result = STICKY.assign(partitions, joined_again)
    assert unevenness(result) == target
    assert withheld(partitions, joined_again, result) == []
    for member in joined_again:  # nobody is asked to give something up a second time
        assert set(member.subscription.owned) <= set(result[member.member_id])
    again = STICKY.assign(partitions, following(joined_again, result))
    assert {m: sorted(a) for m, a in again.items()} == {m: sorted(a) for m, a in result.items()}


@given(groups(), st.data())
def test_no_kept_partition_goes_while_a_round_is_handed_over_in_stages(
    group: Group, data: st.DataObject
) -> None:
    partitions, members = group
    topics = members[0].subscription.topics
    members = [_with_topics(member, topics) for member in members]
    first = STICKY.assign(partitions, members)
    kept = {m.member_id: set(m.subscription.owned) & set(first[m.member_id]) for m in members}
    for _ in range(3):
        released = data.draw(
            st.sets(st.sampled_from([tp for m in members for tp in m.subscription.owned]))
            if any(m.subscription.owned for m in members)
            else st.just(set[TopicPartition]())
        )
        members = [_without(m, released - kept[m.member_id]) for m in members]
        result = STICKY.assign(partitions, members)
        members = [_with(m, result[m.member_id]) for m in members]
        for member_id, mine in kept.items():
            assert mine <= set(result[member_id])
            mine |= set(result[member_id])


@given(groups())
def test_nothing_moves_when_members_only_leave_and_all_want_the_same(group: Group) -> None:
    partitions, members = group
    topics = members[0].subscription.topics
    same = [_with_topics(member, topics) for member in members]
    settled = following(same, plan(partitions, same, ReportedOwnership(same)))
    for left in range(1, len(settled)):
        result = STICKY.assign(partitions, settled[left:])
        for member in settled[left:]:
            assert set(member.subscription.owned) <= set(result[member.member_id])


@given(groups())
def test_a_partition_changes_its_owner_only_where_that_makes_it_more_even(group: Group) -> None:
    partitions, members = group
    result = plan(partitions, members, ReportedOwnership(members))
    loads = {member_id: len(assigned) for member_id, assigned in result.items()}
    wants = {member.member_id: member.subscription.topics for member in members}
    owners = owned_by(members)
    for taker, assigned in result.items():
        for tp in assigned:
            giver = owners.get(tp, taker)
            if giver != taker and tp.topic in wants[giver]:
                # Given back, it would leave its owner with more than the taker has now.
                assert loads[giver] + 1 > loads[taker] - 1
                assert loads[giver] >= loads[taker]


@given(groups(contradict=True))
def test_the_order_of_topics_does_not_matter(group: Group) -> None:
    partitions, members = group
    backwards = dict(reversed(partitions.items()))
    turned = [_with_topics(member, member.subscription.topics[::-1]) for member in members]
    for assignor in ASSIGNORS.values():
        assert assignor.assign(partitions, members) == assignor.assign(backwards, turned)


def _with_topics(member: Member, topics: tuple[str, ...]) -> Member:
    old = member.subscription
    return member._replace(
        subscription=Subscription(topics=topics, owned=old.owned, generation=old.generation)
    )


def _without(member: Member, released: set[TopicPartition]) -> Member:
    """It joins again, having released these of its partitions."""
    left = set(member.subscription.owned) - released
    return _owning(member, left)


def _with(member: Member, assigned: list[TopicPartition]) -> Member:
    """It has got these, and still has what it has not released."""
    return _owning(member, {*member.subscription.owned, *assigned})


def _owning(member: Member, owned: set[TopicPartition]) -> Member:
    old = member.subscription
    return member._replace(
        subscription=Subscription(
            topics=old.topics, owned=tuple(sorted(owned)), generation=old.generation + 1
        )
    )


@st.composite
def racks_of(
    draw: st.DrawFn, group: Group
) -> tuple[list[Member], dict[TopicPartition, frozenset[str]]]:
    """Members that run somewhere, and where the partitions have their replicas."""
    partitions, members = group
    placed = [
        member._replace(
            subscription=msgspec.structs.replace(
                member.subscription, rack=draw(st.sampled_from(["a", "b", "c", None]))
            )
        )
        for member in members
    ]
    racks = {
        TopicPartition(topic, number): draw(
            st.frozensets(st.sampled_from("abc"), min_size=1, max_size=2)
        )
        for topic, numbers in partitions.items()
        for number in numbers
    }
    return placed, racks


def across(
    members: list[Member], racks: dict[TopicPartition, frozenset[str]], plan: Assignment
) -> int:
    rack = {member.member_id: member.subscription.rack for member in members}
    return sum(
        rack[member_id] is not None and rack[member_id] not in racks[tp]
        for member_id, assigned in plan.items()
        for tp in assigned
    )


@given(data=st.data())
def test_racks_cost_no_evenness_and_leave_no_partition_out(data: st.DataObject) -> None:
    partitions, members = group = data.draw(groups())
    members, racks = data.draw(racks_of(group))
    claims = ReportedOwnership(members)
    with_racks, without = (
        plan(partitions, members, claims, racks),
        plan(partitions, members, claims),
    )
    assert unevenness(with_racks) == unevenness(without)
    given_out = sorted(tp for assigned in with_racks.values() for tp in assigned)
    assert given_out == sorted(tp for assigned in without.values() for tp in assigned)
    for member in members:
        assert {tp.topic for tp in with_racks[member.member_id]} <= set(member.subscription.topics)


@given(data=st.data())
def test_with_racks_and_different_topics_a_group_comes_to_rest(data: st.DataObject) -> None:
    partitions, members = group = data.draw(groups())
    members, racks = data.draw(racks_of(group))
    before = across(members, racks, plan(partitions, members, ReportedOwnership(members), racks))
    for _ in range(6):
        planned = plan(partitions, members, ReportedOwnership(members), racks)
        members = following(members, planned)
        again = plan(partitions, members, ReportedOwnership(members), racks)
        if {m: sorted(tps) for m, tps in again.items()} == {
            m: sorted(tps) for m, tps in planned.items()
        }:
            break
    else:
        raise AssertionError("it moves partitions for ever")
    assert across(members, racks, again) <= before
