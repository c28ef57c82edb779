"""One generation of a classic group that this member leads: its members as they report themselves,
and their assignment.

Pure functions for any thread: in a large group they would block the event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from asyncrevoke.client.config.topics import MAX_TOPICS, is_legal_topic
from asyncrevoke.client.core.assignors.assignor import Assignor, RebalanceProtocol, assign
from asyncrevoke.client.core.assignors.member import Member
from asyncrevoke.client.core.assignors.ownership import (
    OwnershipViolation,
    encode_generation,
    generation_of,
    repair,
    withheld,
)
from asyncrevoke.client.core.assignors.sticky import StickyAssignor, with_last_assignment
from asyncrevoke.client.core.membership.classic.user_data import (
    AssignmentUserData,
    carries_mark,
    checksum,
    encode_assignment_user_data,
    has_mark,
    reads_maps,
)
from asyncrevoke.client.model import TopicPartition, Value
from asyncrevoke.client.protocol.subscription import (
    MalformedMemberData,
    Subscription,
    decode_with_unread_size,
    encode_assignment,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asyncrevoke.client.core.assignors.racks import PartitionRacks
    from asyncrevoke.client.protocol.messages import JoinGroupMember, JoinGroupResponse

# A broker stores all subscriptions of a group in one record, of 1 MiB by default.
MAX_BYTES = 4 * 2**20
MAX_OWNED = 250_000
# Characters of another member's data in a log line.
_QUOTED = 60

_NOTHING = Subscription(topics=())


class ReportedSubscription(NamedTuple):
    """The subscription of another member as its leader reads it: errors affect only its member.

    A subscription whose topics cannot be read, or that is too large, counts as one without topics
    (``unreadable``: why). What is missing or not valid after its user data counts as not reported.
    Illegal topic names are ignored, with the partitions that a member claims of them (``ignored``:
    which parts are). A generation that the group has not had yet counts as the one before the
    present one.
    """

    subscription: Subscription
    unreadable: str | None = None
    ignored: tuple[str, ...] = ()


def read_subscription(metadata: bytes, generation: int, assignor: Assignor) -> ReportedSubscription:
    """Read and check what a member has sent with JoinGroup; never raises.

    ``generation`` is the one that the group has just joined: members own partitions since an
    earlier one. With ``sticky`` what the last assignment gave a member counts as owned.
    """
    if len(metadata) > MAX_BYTES:
        return _unreadable(f"{len(metadata)} bytes are more than {MAX_BYTES}")
    try:
        subscription, unread = decode_with_unread_size(
            metadata, max_topics=MAX_TOPICS, max_owned=MAX_OWNED
        )
    except MalformedMemberData as error:
        return _unreadable(str(error))
    if isinstance(assignor, StickyAssignor):
        subscription = with_last_assignment(subscription, MAX_OWNED)
    ignored = [f"{unread} bytes after the user data that are not valid"] if unread else []
    topics = tuple(dict.fromkeys(filter(is_legal_topic, subscription.topics)))
    if illegal := [name for name in subscription.topics if not is_legal_topic(name)]:
        ignored.append(f"{len(illegal)} names that no topic can have, such as {_quote(illegal[0])}")
    owned = dict.fromkeys(subscription.owned)
    if foreign := {tp.topic for tp in owned if not is_legal_topic(tp.topic)}:
        ignored.append(f"owned partitions of {len(foreign)} topics that cannot exist")
    user_data = subscription.user_data
    # It matters only with owned partitions; the user data of other assignors begins differently.
    claimed = generation_of(subscription) if owned else subscription.generation
    if claimed >= generation:
        ignored.append(f"generation {claimed}, which the group has not had yet")
        claimed = max(-1, generation - 1)
        encoded = encode_generation(claimed)
        if user_data is not None and len(user_data) >= len(encoded):
            user_data = encoded + user_data[len(encoded) :]
    return ReportedSubscription(
        msgspec.structs.replace(
            subscription,
            topics=topics,
            owned=tuple(tp for tp in owned if tp.topic not in foreign),
            generation=min(subscription.generation, claimed),
            user_data=user_data,
        ),
        ignored=tuple(ignored),
    )


def _unreadable(problem: str) -> ReportedSubscription:
    return ReportedSubscription(_NOTHING, unreadable=problem)


def _quote(text: str) -> str:
    return repr(text[:_QUOTED])


Assignments = tuple[tuple[str, bytes], ...]
"""The encoded assignment of each member, by its id."""

Owners = dict[TopicPartition, str]

# The fewest bytes of a topic or a partition in a subscription.
_BYTES_PER_NAME = 4
_TOO_MANY_TOPICS = ReportedSubscription(
    Subscription(topics=()),
    unreadable=f"with its topics the group would have more than {MAX_TOPICS}",
)


class LedGeneration:
    """The members of a generation, and what follows from their subscriptions."""

    def __init__(
        self, assignor: Assignor, members: list[Member], *, skips_assignment: bool
    ) -> None:
        self.assignor = assignor
        self.members = members
        self.skips_assignment = skips_assignment
        # The ids of the members without the mark, where that says whose they are.
        self.other_clients = tuple(
            member.member_id
            for member in members
            if carries_mark(assignor) and not has_mark(member.subscription.user_data)
        )
        all_read_maps = all(reads_maps(member.subscription.user_data) for member in members)
        # Eager members claim what the generation before assigned them. Another client can replace a
        # static member within a generation, unknown to the others.
        stays_true = RebalanceProtocol.COOPERATIVE in assignor.protocols or all(
            member.group_instance_id is None for member in members
        )
        self.maps_are_read = all_read_maps and stays_true
        self.has_racks = any(member.subscription.rack for member in members)
        self.topics = frozenset(topic for member in members for topic in member.subscription.topics)

    def size(self, partitions: Mapping[str, Sequence[int] | None]) -> int:
        """The number of partitions to assign, and of topics and partitions in subscriptions."""
        reported = sum(
            len(member.subscription.topics) + len(member.subscription.owned)
            for member in self.members
        )
        return reported + sum(len(numbers or ()) for numbers in partitions.values())


class ReadGeneration(Value, frozen=True):
    """``faulty`` are the members whose subscriptions are partly or wholly ignored."""

    generation: LedGeneration
    faulty: tuple[tuple[str, ReportedSubscription], ...]


class AssignmentPlan(Value, frozen=True):
    """``violations`` are partitions that a foreign assignor gave to a second owner, and ``owners``
    the members by their assigned partitions."""

    assignments: Assignments
    violations: list[OwnershipViolation]
    owners: Owners


def size_of(reply: JoinGroupResponse) -> int:
    """The number of topics and partitions in all subscriptions, at most."""
    return sum(len(member.metadata) for member in reply.members) // _BYTES_PER_NAME


def read_generation(
    assignor: Assignor, reply: JoinGroupResponse, assigned: Mapping[int, Owners]
) -> ReadGeneration:
    """Read the subscriptions of all members; an error in one affects only its member.

    ``assigned`` has this leader's former assignments. If two members claim a partition since the
    same generation, they tell which of them owns it.
    """
    reports = {
        member.member_id: (member, read_subscription(member.metadata, reply.generation, assignor))
        for member in reply.members  # a member that is named twice counts once
    }
    for member_id in _with_too_many_topics(reply.member_id, reports):
        reports[member_id] = (reports[member_id][0], _TOO_MANY_TOPICS)
    claims = {
        member_id: (generation_of(report.subscription), frozenset(report.subscription.owned))
        for member_id, (_, report) in reports.items()
        if assigned
    }
    members: list[Member] = []
    faulty: list[tuple[str, ReportedSubscription]] = []
    for member_id, (member, report) in reports.items():
        reported = _without_false_claims(member_id, report, claims, assigned)
        if reported.unreadable is not None or reported.ignored:
            faulty.append((member_id, reported))
        members.append(Member(member_id, member.group_instance_id, reported.subscription))
    generation = LedGeneration(assignor, members, skips_assignment=reply.skip_assignment)
    return ReadGeneration(generation, tuple(faulty))


def _with_too_many_topics(
    us: str, reports: Mapping[str, tuple[JoinGroupMember, ReportedSubscription]]
) -> list[str]:
    """The members with the largest subscriptions, if the topics of all, beside this leader's own,
    exceed what a leader watches."""
    topics = {member_id: report.subscription.topics for member_id, (_, report) in reports.items()}
    if sum(map(len, topics.values())) <= MAX_TOPICS:
        return []
    watched = set(topics.get(us, ()))
    too_many: list[str] = []
    for member_id in sorted(topics, key=lambda member_id: len(topics[member_id])):
        added = frozenset(topics[member_id]).difference(watched)
        if not added or len(watched) + len(added) <= MAX_TOPICS:
            watched |= added
        else:
            too_many.append(member_id)
    return too_many


def _without_false_claims(
    member_id: str,
    reported: ReportedSubscription,
    claims: Mapping[str, tuple[int, frozenset[TopicPartition]]],
    assigned: Mapping[int, Owners],
) -> ReportedSubscription:
    """Without partitions that another member claims since the same generation and was assigned."""
    subscription = reported.subscription
    since = generation_of(subscription)
    owners = assigned.get(since)
    if not owners:
        return reported
    owned: list[TopicPartition] = []
    for tp in subscription.owned:
        owner = owners.get(tp, member_id)
        generation, theirs = claims.get(owner, (-1, frozenset[TopicPartition]()))
        if owner == member_id or generation != since or tp not in theirs:
            owned.append(tp)
    false = len(subscription.owned) - len(owned)
    if not false:
        return reported
    return reported._replace(
        subscription=msgspec.structs.replace(subscription, owned=tuple(owned)),
        ignored=(*reported.ignored, f"{false} owned partitions that were assigned to others"),
    )


def plan_assignment(
    generation: LedGeneration,
    known: Mapping[str, tuple[int, ...] | None],
    racks: PartitionRacks,
) -> AssignmentPlan:
    """Assign the partitions that are ``known``; a topic that does not exist has none. Raises what
    the user's assignor raises."""
    partitions: dict[str, Sequence[int]] = {
        topic: numbers for topic, numbers in known.items() if numbers
    }
    plan = assign(generation.assignor, partitions, generation.members, racks)
    violations: list[OwnershipViolation] = []
    waits = False
    if RebalanceProtocol.COOPERATIVE in generation.assignor.protocols:
        plan, violations = repair(plan, generation.members)
        waits = bool(withheld(partitions, generation.members, plan))
    note = encode_assignment_user_data(
        AssignmentUserData(waits, checksum(known), generation.maps_are_read)
    )
    return AssignmentPlan(
        tuple(
            (
                member.member_id,
                encode_assignment(
                    plan.get(member.member_id, ()),
                    note if has_mark(member.subscription.user_data) else b"",
                ),
            )
            for member in generation.members
        ),
        violations,
        {tp: member_id for member_id, its in plan.items() for tp in its},
    )
