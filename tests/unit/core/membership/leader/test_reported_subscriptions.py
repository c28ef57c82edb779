"""What a leader takes of subscriptions that other members have made up."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from msgspec import structs
from unit.core.scripted_brokers import tp
from unit.core.scripted_group import MEMBER, ScriptedGroup, orders

from asyncrevoke.client.config.topics import MAX_TOPICS
from asyncrevoke.client.core.assignors import ASSIGNORS
from asyncrevoke.client.core.assignors.ownership import generation_of
from asyncrevoke.client.core.membership.classic.led_generation import (
    MAX_BYTES,
    MAX_OWNED,
    read_generation,
    read_subscription,
)
from asyncrevoke.client.core.membership.classic.state_table import ClassicState
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    JoinGroupMember,
    JoinGroupResponse,
    MetadataRequest,
    MetadataResponse,
)
from asyncrevoke.client.protocol.subscription import Subscription, encode_subscription

if TYPE_CHECKING:
    from collections.abc import Callable

RANGE, STICKY = ASSIGNORS["range"], ASSIGNORS["sticky"]
VALID = Subscription(topics=("orders",), owned=(tp(1), tp(3)), generation=4, rack="r")


def read(subscription: Subscription, version: int = 3) -> Subscription:
    return read_subscription(encode_subscription(subscription, version), 5, RANGE).subscription


def test_a_valid_subscription_is_taken_as_it_is() -> None:
    reported = read_subscription(encode_subscription(VALID), 5, RANGE)
    assert reported == (VALID, None, ())


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "x" * 250, "a\n", "a/b", "a\0"])
def test_names_that_no_topic_can_have_are_ignored_with_what_is_claimed_of_them(name: str) -> None:
    claimed = (TopicPartition(name, 0), tp(1), tp(3))
    hostile = structs.replace(VALID, topics=("orders", name), owned=claimed)
    reported = read_subscription(encode_subscription(hostile), 5, RANGE)
    assert reported.subscription == VALID
    assert len(reported.ignored) == 2


def test_topics_and_partitions_that_are_named_twice_count_once() -> None:
    twice = structs.replace(VALID, topics=("orders", "orders"), owned=VALID.owned * 2)
    assert read(twice) == VALID


@pytest.mark.parametrize("generation", [5, 6, 2**31 - 1])
@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_generation_that_has_not_been_counts_as_the_last_one(
    generation: int, version: int
) -> None:
    hostile = structs.replace(
        VALID, generation=generation, user_data=struct.pack(">i", generation) + b"more"
    )
    taken = read(hostile, version)
    assert generation_of(taken) == 4
    assert taken.owned == VALID.owned
    assert taken.user_data == struct.pack(">i", 4) + b"more"


def test_owned_partitions_that_are_not_valid_are_ignored_and_the_topics_count() -> None:
    data = encode_subscription(VALID, 0) + b"\0\0\0\1"
    reported = read_subscription(b"\0\1" + data[2:], 5, RANGE)
    assert reported.subscription == Subscription(topics=("orders",))
    assert reported.unreadable is None
    assert reported.ignored == ("4 bytes after the user data that are not valid",)


def test_a_negative_generation_is_none() -> None:
    assert generation_of(read(structs.replace(VALID, generation=-(2**31)))) == -1


def too_long() -> bytes:
    return encode_subscription(structs.replace(VALID, user_data=bytes(MAX_BYTES)))


def too_many_topics() -> bytes:
    return struct.pack(">hi", 0, MAX_TOPICS + 1) + b"\0\1a" * (MAX_TOPICS + 1) + b"\xff" * 4


def too_many_partitions() -> bytes:
    count = MAX_OWNED + 1
    owned = struct.pack(f">ih1si{count}i", 1, 1, b"a", count, *range(count))
    return struct.pack(">hih1s", 1, 1, 1, b"a") + b"\xff" * 4 + owned


def a_negative_partition() -> bytes:
    return encode_subscription(structs.replace(VALID, owned=(tp(-1),)))


@pytest.mark.parametrize(
    "blob", [too_long, too_many_topics, too_many_partitions, a_negative_partition]
)
def test_a_subscription_beyond_all_bounds_is_rejected_as_a_whole(
    blob: Callable[[], bytes],
) -> None:
    reported = read_subscription(blob(), 5, RANGE)
    assert reported.subscription == Subscription(topics=())
    assert reported.unreadable


def another(subscription: Subscription, member_id: str = "m-2") -> JoinGroupMember:
    return JoinGroupMember(
        member_id=member_id, group_instance_id=None, metadata=encode_subscription(subscription)
    )


@pytest.mark.parametrize(
    "error", [ErrorCode.invalid_topic_exception, ErrorCode.topic_authorization_failed]
)
def test_an_unauthorized_topic_of_another_member_ends_no_membership(
    error: ErrorCode,
) -> None:
    group = ScriptedGroup()
    group.start()
    group.give_id()
    group.silent.add(MetadataRequest)
    group.respond_to_join(leads=True, others=(another(Subscription(topics=("orders", "secret"))),))
    send, request = group.only(MetadataRequest)
    assert request.topics == ("orders", "secret")
    response = group._metadata(request.topics)
    rejected = [
        structs.replace(topic, error=error) if topic.name == "secret" else topic
        for topic in response.topics
    ]
    group.reply(send, MetadataResponse(brokers=response.brokers, topics=tuple(rejected)))
    plan = group.planned()
    assert plan[MEMBER] | plan["m-2"] == orders(0, 1, 2, 3)
    group.respond_to_sync(tp(0))
    assert group.poll() is None  # raised BrokerError or TopicAuthorizationError
    assert group.phase() is ClassicState.STABLE


def test_topics_of_others_that_do_not_exist_have_one_line_together() -> None:
    group = ScriptedGroup()
    group.start()
    group.give_id()
    many = tuple(f"missing-{number}" for number in range(50))
    group.respond_to_join(leads=True, others=(another(Subscription(topics=("orders", *many))),))
    warned = [event for event in group.events if event.level == "warning"]
    (line,) = warned
    assert line.fields["count"] == 50
    assert line.fields["topics"] == sorted(many)[:10]


def test_an_impossible_name_of_one_member_costs_the_others_nothing() -> None:
    group = ScriptedGroup()
    group.start()
    group.give_id()
    group.respond_to_join(leads=True, others=(another(Subscription(topics=("", "orders"))),))
    assert len(group.planned()[MEMBER]) == 2
    (line,) = group.named("part of a member's subscription is not valid and was ignored")
    assert line.fields["member"] == "m-2"
    assert all(
        "" not in (send.message.topics or ())
        for send in group.sent
        if isinstance(send.message, MetadataRequest)
    )


def test_who_claims_what_the_leader_has_assigned_to_others_costs_them_nothing() -> None:
    group = ScriptedGroup()
    group.start()
    group.give_id()
    group.respond_to_join(leads=True, others=(another(Subscription(topics=("orders",))),))
    first = group.planned()
    group.respond_to_sync(*first[MEMBER])
    group.rebalance()
    everything = tuple(sorted(orders(0, 1, 2, 3)))
    hostile = Subscription(topics=("orders",), owned=everything, generation=2**31 - 1)
    group.respond_to_join(leads=True, others=(another(hostile),))
    assert group.planned() == first  # was nothing for anybody
    (line,) = group.named("part of a member's subscription is not valid and was ignored")
    assert "2 owned partitions that were assigned to others" in str(line.fields["problems"])


def test_what_another_leader_has_assigned_in_between_is_not_held_against_anybody() -> None:
    group = ScriptedGroup()
    group.start()
    group.give_id()
    group.respond_to_join(leads=True)
    group.respond_to_sync(*orders(0, 1, 2, 3))
    group.rebalance()
    group.respond_to_join()  # another leads
    group.respond_to_sync(tp(0))
    assert group.assigned == orders(0, 1, 2, 3)  # 1 to 3 are on their way out
    taken = Subscription(topics=("orders",), owned=(tp(1), tp(2), tp(3)), generation=2)
    group.step()
    group.step()
    group.respond_to_join(leads=True, others=(another(taken),))
    assert group.planned()["m-2"] <= orders(1, 2, 3)
    assert not group.named("part of a member's subscription is not valid and was ignored")


def sticky(data: bytes | None) -> Subscription:
    subscription = structs.replace(VALID, owned=(), generation=-1, user_data=data)
    return read_subscription(encode_subscription(subscription), 5, STICKY).subscription


def test_with_sticky_the_last_assignment_in_the_user_data_counts_as_owned() -> None:
    taken = sticky(STICKY.user_data(4, VALID.owned) or b"")
    assert (taken.owned, taken.generation, taken.user_data) == (VALID.owned, 4, None)
    # Version 0 ends before the generation.
    taken = sticky((STICKY.user_data(4, VALID.owned) or b"")[:-4])
    assert (taken.owned, generation_of(taken)) == (VALID.owned, -1)


@pytest.mark.parametrize("size", [None, -4])
def test_with_sticky_what_follows_the_last_assignment_is_left_out(size: int | None) -> None:
    taken = sticky((STICKY.user_data(4, VALID.owned) or b"")[:size] + b"note")
    assert taken.user_data is None
    assert taken.owned == VALID.owned


def test_with_sticky_a_generation_that_has_not_been_counts_as_the_last_one() -> None:
    taken = sticky(STICKY.user_data(2**31 - 1, VALID.owned))
    assert (taken.owned, generation_of(taken)) == (VALID.owned, 4)


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"asyncrevoke\1",
        b"\xff" * 4,
        b"\x7f\xff\xff\xff",
        struct.pack(">ih", 1, -1),
        struct.pack(">ih6si", 1, 6, b"orders", 2**31 - 1),
        struct.pack(">ih6si", 1, 6, b"orders", -1),
        struct.pack(">ih2si", 1, 2, b"\xff\xff", 0),
        struct.pack(
            f">ih6si{MAX_OWNED + 1}i", 1, 6, b"orders", MAX_OWNED + 1, *range(MAX_OWNED + 1)
        ),
    ],
)
def test_with_sticky_user_data_that_cannot_be_read_say_nothing(data: bytes | None) -> None:
    taken = sticky(data)
    assert (taken.topics, taken.owned, generation_of(taken)) == (VALID.topics, (), -1)


def some_topics(first: int, count: int) -> Subscription:
    return Subscription(topics=tuple(f"{number:06}" for number in range(first, first + count)))


def test_members_with_more_topics_than_a_leader_watches_cost_the_others_nothing() -> None:
    half = MAX_TOPICS // 2
    small, large = some_topics(0, half - 1), some_topics(half, half)
    larger, ours = some_topics(2 * half, half + 1), Subscription(topics=("orders",))
    reply = JoinGroupResponse(
        error=ErrorCode.none,
        generation=1,
        leader=MEMBER,
        member_id=MEMBER,
        members=(
            another(larger, "m-2"),
            another(large, "m-3"),
            another(small, "m-4"),
            another(ours, MEMBER),
        ),
    )
    read = read_generation(RANGE, reply, {})
    ((member_id, reported),) = read.faulty
    assert member_id == "m-2"
    assert reported.unreadable == f"with its topics the group would have more than {MAX_TOPICS}"
    assert read.generation.topics == {*small.topics, *large.topics, *ours.topics}


def test_many_small_subscriptions_displace_no_topics_of_the_leader() -> None:
    ours = some_topics(0, MAX_TOPICS // 2)
    others = [some_topics(MAX_TOPICS + 1000 * n, 1000) for n in range(60)]
    reply = JoinGroupResponse(
        error=ErrorCode.none,
        generation=1,
        leader=MEMBER,
        member_id=MEMBER,
        members=(
            *(another(other, f"m-{n}") for n, other in enumerate(others)),
            another(ours, MEMBER),
            another(ours, "m-z"),
        ),
    )
    read = read_generation(RANGE, reply, {})
    assert len(read.generation.topics) == MAX_TOPICS
    assert len(read.faulty) == 10
    assert {MEMBER, "m-z"}.isdisjoint(member_id for member_id, _ in read.faulty)
