"""The bytes that members of other clients get from us are those that their strictest decoder reads.

sarama 1.61.1 takes bytes after the structure of an assignment, or of the user data of ``sticky``,
for an error ("invalid length"). The bytes here were given to its GetMemberAssignment, GetMembers
and Plan, to franz-go 1.22.3, kafka-go 0.4.51, KafkaJS 2.2.4 and Java 4.4.0: all read them.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from unit.core.scripted_brokers import tp
from unit.core.scripted_group import MEMBER, ScriptedGroup, foreign, orders

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.core.assignors import ASSIGNORS
from asyncrevoke.client.core.assignors.assignor import RebalanceProtocol
from asyncrevoke.client.core.membership.classic.user_data import (
    LastAssignment,
    decode_assignment_user_data,
    has_mark,
    subscription_user_data,
)
from asyncrevoke.client.protocol.messages import JoinGroupMember, SyncGroupRequest
from asyncrevoke.client.protocol.subscription import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_subscription,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from asyncrevoke.client.core.assignors.assignor import Assignment
    from asyncrevoke.client.core.assignors.member import Member
    from asyncrevoke.client.model import TopicPartition

CONFIG = ConsumerConfig(bootstrap_servers="localhost:9092")
LAST = LastAssignment(3, (tp(0),))
# Of "sticky" it is StickyAssignorUserDataV1: orders-0, generation 3.
USER_DATA = {
    "range": b"asyncrevoke\1",
    "roundrobin": b"asyncrevoke\1",
    "sticky": bytes.fromhex("00000001 0006 6f7264657273 00000001 00000000 00000003"),
    "cooperative-sticky": b"\0\0\0\3asyncrevoke\1",
}


def structure(*numbers: int) -> bytes:
    """An assignment of these partitions of orders, as Java's leader sends it: version 3, null as
    user data."""
    topics = struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    topics = b"\0\0\0\1\0\6orders" + topics if numbers else bytes(4)
    return b"\0\3" + topics + b"\xff" * 4


@pytest.mark.parametrize("name", ASSIGNORS)
def test_the_mark_is_where_no_client_decodes_user_data_strictly(name: str) -> None:
    data = subscription_user_data(ASSIGNORS[name], 3, (), LAST, CONFIG)
    assert data == USER_DATA[name]
    assert has_mark(data) is (name != "sticky")


def assignments(
    group: ScriptedGroup, *others: JoinGroupMember
) -> dict[str, tuple[frozenset[TopicPartition], bytes]]:
    """What each member gets from us, as partitions and bytes."""
    group.start()
    group.give_id()
    group.respond_to_join(leads=True, others=others)
    _, sync = group.only(SyncGroupRequest)
    return {
        member: (frozenset(decode_assignment(data)[0]), data) for member, data in sync.assignments
    }


def numbers(partitions: Collection[TopicPartition]) -> list[int]:
    return sorted(number for _, number in partitions)


@pytest.mark.parametrize("name", ASSIGNORS)
def test_the_assignment_of_a_member_without_the_mark_ends_with_its_structure(name: str) -> None:
    group = ScriptedGroup(assignors=(name,))
    given = assignments(group, foreign("sarama"), foreign("java"))
    for member in ("sarama", "java"):
        partitions, data = given[member]
        assert partitions
        assert data == structure(*numbers(partitions))
    note = given[MEMBER][1].removeprefix(structure(*numbers(given[MEMBER][0])))
    read = decode_assignment_user_data(note)
    assert (read is None) is (name == "sticky")
    assert read is None or not read.maps_are_read


@pytest.mark.parametrize("name", ASSIGNORS)
def test_a_member_without_partitions_gets_an_empty_structure(name: str) -> None:
    others = [foreign(f"m-{number}", "payments") for number in range(2)]
    given = assignments(ScriptedGroup(assignors=(name,)), *others)
    assert [given[f"m-{number}"] for number in range(2)] == [(frozenset(), structure())] * 2


def test_of_sticky_members_even_those_with_the_mark_of_former_versions_get_none() -> None:
    group = ScriptedGroup(assignors=("sticky",))
    former = Subscription(topics=("orders",), user_data=USER_DATA["sticky"] + b"asyncrevoke\1")
    other = JoinGroupMember(
        member_id="former", group_instance_id=None, metadata=encode_subscription(former)
    )
    given = assignments(group, other)
    assert given["former"][0] >= orders(0)
    for partitions, data in given.values():
        assert data == structure(*numbers(partitions))


class Cooperative:
    """The user's own; gives everything to the first member."""

    name = "cooperative"
    protocols = frozenset({RebalanceProtocol.COOPERATIVE})

    def user_data(self, generation: int, owned: Collection[TopicPartition]) -> bytes:
        return b"own"

    def assign(
        self, partitions: Mapping[str, Sequence[int]], members: Sequence[Member]
    ) -> Assignment:
        plan: Assignment = {member.member_id: [] for member in members}
        plan[min(plan)] += [tp(number) for number in partitions["orders"]]
        return plan


def test_with_an_assignor_of_the_users_own_nothing_is_added() -> None:
    group = ScriptedGroup(assignors=(Cooperative(),))
    for partitions, data in assignments(group, foreign("a")).values():
        assert data == structure(*numbers(partitions))
    assert subscription_user_data(Cooperative(), 3, (), LAST, CONFIG) == b"own"


@pytest.mark.parametrize(
    "data",
    [
        "0001 00000001 0006 6f7264657273 ffffffff",  # kafka-go 0.4.51, @platformatic/kafka 1.35.0
        "0001 00000001 0006 6f7264657273 00000003 617a31",  # kafka-go, rack affinity
        "0001 00000001 0006 6f7264657273 00000000",  # KafkaJS 2.2.4
    ],
)
@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_members_whose_subscription_ends_after_the_user_data_are_assigned_partitions(
    data: str, name: str
) -> None:
    metadata = bytes.fromhex(data)
    assert decode_subscription(metadata).owned == ()
    group = ScriptedGroup(assignors=(name,))
    other = JoinGroupMember(member_id="go", group_instance_id=None, metadata=metadata)
    given = assignments(group, other)
    assert {member: len(partitions) for member, (partitions, _) in given.items()} == {
        MEMBER: 2,
        "go": 2,
    }
    assert not group.named(
        "a member's subscription cannot be decoded; it is assigned no partitions"
    )
