"""The assignors by example: orders, withholding, contradictions, and what a user can get wrong."""

from __future__ import annotations

import msgspec
import pytest

from asyncrevoke.client.core.assignors import (
    ASSIGNORS,
    Assignment,
    Assignor,
    Member,
    RebalanceProtocol,
    choose_protocol,
    find_assignors,
    repair,
    withheld,
)
from asyncrevoke.client.core.assignors.cooperative_sticky import CooperativeStickyAssignor
from asyncrevoke.client.core.assignors.member import hash_order
from asyncrevoke.client.core.assignors.ownership import encode_generation
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.subscription import Subscription

EAGER, COOPERATIVE = RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE
RANGE = ASSIGNORS["range"]
ROUND_ROBIN = ASSIGNORS["roundrobin"]
STICKY = ASSIGNORS["cooperative-sticky"]


def member(
    member_id: str,
    *owned: TopicPartition,
    topics: str = "t",
    generation: int = 5,
    instance: str | None = None,
    user_data: bytes | None = None,
) -> Member:
    return Member(
        member_id,
        instance,
        Subscription(
            topics=tuple(topics.split()), owned=owned, generation=generation, user_data=user_data
        ),
    )


def in_rack(rack: str, of: Member) -> Member:
    return of._replace(subscription=msgspec.structs.replace(of.subscription, rack=rack))


def t(*numbers: int, topic: str = "t") -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


class OfTheUser:
    """An assignor of somebody else's."""

    def __init__(self, name: str, *protocols: RebalanceProtocol) -> None:
        self.name = name
        self.protocols = frozenset(protocols)

    def user_data(self, generation: int, owned: object) -> None:
        return None

    def assign(self, partitions: object, members: object) -> Assignment:
        raise NotImplementedError


# --- range and roundrobin ----------------------------------------------------------------------


def test_range_gives_consecutive_partitions_and_the_rest_to_the_first_members() -> None:
    result = RANGE.assign({"t": range(5)}, [member("b"), member("a")])
    assert result == {"b": t(3, 4), "a": t(0, 1, 2)}


def test_range_keeps_topics_of_one_size_together() -> None:
    members = [member(m, topics="t u") for m in "abc"]
    result = RANGE.assign({"t": range(4), "u": range(4)}, members)
    assert result["a"] == [*t(0, 1), *t(0, 1, topic="u")]


def test_static_members_come_first_in_the_order_of_their_instances() -> None:
    members = [member("a"), member("b", instance="z"), member("c", instance="y")]
    assert RANGE.assign({"t": range(3)}, members) == {"a": t(2), "b": t(1), "c": t(0)}
    assert ROUND_ROBIN.assign({"t": range(3)}, members) == {"a": t(2), "b": t(1), "c": t(0)}


def test_roundrobin_continues_with_the_next_topic_where_it_stopped() -> None:
    members = [member("a", topics="t u"), member("b", topics="t u")]
    result = ROUND_ROBIN.assign({"u": range(3), "t": range(3)}, members)
    assert result == {
        "a": [*t(0, 2), *t(1, topic="u")],
        "b": [*t(1), *t(0, 2, topic="u")],
    }


def test_roundrobin_passes_over_who_is_not_subscribed() -> None:
    members = [member("a", topics="t"), member("b", topics="u")]
    result = ROUND_ROBIN.assign({"t": range(3), "u": range(1)}, members)
    assert result == {"a": t(0, 1, 2), "b": t(0, topic="u")}


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=list(ASSIGNORS))
def test_topics_without_subscriber_or_without_partitions_are_left_out(assignor: Assignor) -> None:
    members = [member("a", topics="t unknown"), member("b", topics="unknown empty")]
    result = assignor.assign({"t": range(2), "empty": (), "foreign": range(9)}, members)
    assert result == {"a": t(0, 1), "b": []}


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=list(ASSIGNORS))
def test_a_group_without_members_gets_nothing(assignor: Assignor) -> None:
    assert assignor.assign({"t": range(2)}, []) == {}


# --- cooperative-sticky ------------------------------------------------------------------------


def test_an_overloaded_member_keeps_its_lowest_partitions_then_topics() -> None:
    owned = [
        TopicPartition("u", 0),
        TopicPartition("t", 1),
        TopicPartition("u", 1),
        TopicPartition("t", 0),
    ]
    members = [member("a", *owned, topics="t u"), member("b", topics="t u")]
    result = STICKY.assign({"t": range(2), "u": range(2)}, members)
    assert sorted(result["a"]) == [TopicPartition("t", 0), TopicPartition("u", 0)]


def test_a_partition_that_changes_its_owner_is_withheld_in_this_round() -> None:
    members = [member("a", *t(0, 1, 2, 3)), member("b")]
    result = STICKY.assign({"t": range(4)}, members)
    assert result == {"a": t(0, 1), "b": []}
    assert withheld({"t": range(4)}, members, result) == t(2, 3)


def test_unowned_partitions_are_assigned_at_once_beside_withheld_ones() -> None:
    members = [member("a", *t(0, 1, 2, 3)), member("b")]
    result = STICKY.assign({"t": range(5)}, members)
    assert result == {"a": t(0, 1, 2), "b": t(4)}
    assert withheld({"t": range(5)}, members, result) == t(3)


def test_partitions_of_eager_members_move_at_once_in_a_mixed_group() -> None:
    # The second rolling bounce: a is cooperative and reports what it owns, b and c are eager.
    members = [member("a", *t(0, 1, 2)), member("b"), member("c")]
    result = STICKY.assign({"t": range(6)}, members)
    assert result == {"a": t(0, 1), "b": t(4), "c": t(3, 5)}  # 2 was a's, 3 to 5 were theirs
    assert withheld({"t": range(6)}, members, result) == t(2)


def test_of_two_that_claim_one_partition_the_higher_generation_has_it() -> None:
    members = [member("a", *t(0), generation=4), member("b", *t(0, 1), generation=5)]
    result = STICKY.assign({"t": range(2)}, members)
    assert result == {"a": [], "b": t(0)}  # 1 goes to a, once b has given it up


def test_a_partition_that_two_members_of_one_generation_report_is_owned_by_neither() -> None:
    members = [member("a", *t(0)), member("b", *t(0))]
    assert STICKY.assign({"t": range(1)}, members) == {"a": [], "b": []}


def test_generations_in_the_user_data_of_old_members_count() -> None:
    members = [
        member("a", *t(0), generation=-1, user_data=encode_generation(6)),
        member("b", *t(0, 1), generation=5),
    ]
    assert STICKY.assign({"t": range(2)}, members) == {"a": t(0), "b": t(1)}


@pytest.mark.parametrize("user_data", [b"", b"\x00\x00\x00", b"\x80\x00\x00\x00"])
def test_user_data_that_is_no_generation_is_the_lowest(user_data: bytes) -> None:
    members = [
        member("a", *t(0), generation=-1, user_data=user_data),
        member("b", *t(0), generation=0),
    ]
    assert STICKY.assign({"t": range(1)}, members) == {"a": [], "b": t(0)}


def test_owned_partitions_of_dropped_topics_and_vanished_ones_are_no_claim_to_anything() -> None:
    members = [member("a", *t(0, 9), TopicPartition("gone", 0)), member("b")]
    assert STICKY.assign({"t": range(2)}, members) == {"a": t(0), "b": t(1)}


def test_a_partition_that_its_owner_dropped_waits_for_it_all_the_same() -> None:
    # a has dropped u and still works on it; b wants it.
    members = [member("a", TopicPartition("u", 0), *t(0)), member("b", topics="u")]
    assert STICKY.assign({"t": range(1), "u": range(1)}, members) == {"a": t(0), "b": []}


def test_a_chain_over_a_third_member_evens_out_what_no_single_move_can() -> None:
    members = [
        member("a", topics="t"),
        member("b", *t(0), topics="t u"),
        member("c", *t(0, 1, topic="u"), topics="u"),
    ]
    result = STICKY.assign({"t": range(1), "u": range(2)}, members)
    assert result == {"a": [], "b": [], "c": t(0, topic="u")}  # t-0 to a, u-1 to b: both withheld


def test_no_owned_partition_moves_if_the_free_ones_can_even_out_the_loads() -> None:
    # Where the free ones are put at first is not good enough: some must be passed on.
    members = [
        member("a", topics="u"),
        member("b", *t(0, 3, topic="v"), *t(2, topic="w"), topics="t u v w x"),
        member("c", *t(0, topic="x"), topics="v w x"),
        member("d", *t(3, topic="x"), topics="t u x"),
        member("e", *t(2, topic="u"), topics="u v w"),
        member("f", topics="t w"),
        member("g", *t(0), *t(2, topic="v"), *t(1, topic="w"), topics="t v w x"),
    ]
    sizes = {"t": range(1), "u": range(3), "v": range(4), "w": range(4), "x": range(4)}
    result = STICKY.assign(sizes, members)
    assert withheld(sizes, members, result) == []
    assert sorted(len(assigned) for assigned in result.values()) == [2, 2, 2, 2, 2, 3, 3]


def test_a_member_subscribed_to_nothing_gets_nothing() -> None:
    nothing = Member("b", None, Subscription(topics=()))
    assert STICKY.assign({"t": range(2)}, [nothing, member("a")]) == {"a": t(0, 1), "b": []}


def test_members_on_their_way_out_change_nothing_for_the_others() -> None:
    staying = [member("a", *t(0, 1, 2)), member("b", *t(3))]
    gone = Member("c", None, Subscription(topics=(), owned=tuple(t(4, 5))))
    partitions = {"t": range(6)}
    result = STICKY.assign(partitions, [gone, *staying])
    assert result == {"a": t(0, 1, 2), "b": t(3), "c": []}
    assert withheld(partitions, [gone, *staying], result) == t(4, 5)
    assert STICKY.assign(partitions, staying) == {"a": t(0, 1, 2), "b": t(3, 4, 5)}
    assert STICKY.assign(partitions, [gone]) == {"c": []}


def test_members_are_asked_in_the_order_of_a_java_hash_map() -> None:
    # "Aa" and "BB" have the same hash code, 2112; "a" 97, "b" 98; the map has 16 buckets.
    assert hash_order(["b", "BB", "a", "Aa"]) == ["BB", "Aa", "a", "b"]
    # 13 entries make it 32 buckets: "@" is 64, "P" is 80.
    assert hash_order(["P", "@"]) == ["P", "@"]
    assert hash_order([*"PabcdefghijkO", "@"])[:1] == ["@"]


# --- choosing ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "protocol"),
    [
        (["cooperative-sticky"], COOPERATIVE),
        (["range", "cooperative-sticky"], EAGER),
        (["cooperative-sticky", "roundrobin"], EAGER),
        (["range"], EAGER),
    ],
)
def test_the_highest_protocol_that_all_assignors_support_is_used(
    names: list[str], protocol: RebalanceProtocol
) -> None:
    assert choose_protocol(find_assignors(names)) is protocol


def test_assignors_without_a_common_protocol_are_rejected() -> None:
    mine = OfTheUser("mine", COOPERATIVE)
    with pytest.raises(ConfigError, match=r"share no .* \(range supports EAGER; mine supports C"):
        choose_protocol([RANGE, mine])
    assert choose_protocol([STICKY, mine]) is COOPERATIVE


def test_an_assignor_without_any_protocol_is_rejected() -> None:
    with pytest.raises(ConfigError, match="mine supports none"):
        choose_protocol([OfTheUser("mine")])


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        (["coop-sticky"], "did you mean 'cooperative-sticky'"),
        (["xyz"], "use one of range, roundrobin, sticky, cooperative-sticky"),
        (["range", "range"], "twice"),
        ([], "name at least one"),
    ],
)
def test_the_error_of_a_wrong_list_of_assignors_names_the_fix(
    wanted: list[str], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        find_assignors(wanted)


def test_choosing_from_nothing_is_rejected() -> None:
    with pytest.raises(ConfigError, match="name at least one"):
        choose_protocol([])


def test_a_users_assignor_is_used_beside_named_ones() -> None:
    mine = OfTheUser("mine", EAGER)
    assert find_assignors([mine, "range"]) == (mine, RANGE)


def test_only_cooperative_sticky_sends_user_data() -> None:
    assert [each.user_data(7, ()) for each in (RANGE, ROUND_ROBIN, STICKY)] == [
        None,
        None,
        b"\x00\x00\x00\x07",
    ]


# --- repairing ---------------------------------------------------------------------------------


def test_a_partition_still_owned_by_another_is_stripped_and_reported() -> None:
    members = [member("a", *t(0, 1)), member("b")]
    repaired, violations = repair({"a": t(0), "b": t(1)}, members)
    assert repaired == {"a": t(0), "b": []}
    assert [(v.partition, v.member_id, v.reason) for v in violations] == [
        (TopicPartition("t", 1), "b", "is still reported as owned by a")
    ]


def test_a_partition_given_twice_stays_with_one() -> None:
    repaired, violations = repair({"b": t(0), "a": t(0, 0)}, [member("a"), member("b")])
    assert repaired == {"a": t(0), "b": []}
    assert [v.reason for v in violations] == ["is given to a as well"]


def test_an_unknown_member_gets_no_partitions_of_others_and_a_forgotten_one_none() -> None:
    repaired, violations = repair({"x": t(0)}, [member("a")])
    assert repaired == {"a": []}
    assert [v.reason for v in violations] == ["is given to no member of the group"]


def test_a_result_that_withholds_is_left_as_it_is() -> None:
    members = [member("a", *t(0, 1, 2, 3)), member("b")]
    result = STICKY.assign({"t": range(5)}, members)
    assert repair(result, members) == (result, [])


def test_members_get_partitions_in_their_racks_where_topics_differ_and_shares_stay_even() -> None:
    racks = {
        tp: frozenset({"a" if tp.partition % 2 else "b"})
        for tp in (*t(0, 1, 2, 3), *t(0, 1, 2, 3, topic="u"))
    }
    partitions = {"t": range(4), "u": range(4)}

    def group(first: list[TopicPartition], second: list[TopicPartition]) -> list[Member]:
        return [
            in_rack("a", member("one", *first, topics="t u")),
            in_rack("b", member("two", *second, topics="t")),
            in_rack("a", member("three", topics="u")),
        ]

    # What is across racks is given up if somebody is beside it, and even shares come first.
    found = CooperativeStickyAssignor().assign_by_rack(partitions, group(t(0, 2), []), racks)
    assert not set(found["one"]) & set(t(0, 2))
    found = CooperativeStickyAssignor().assign_by_rack(partitions, group([], []), racks)
    assert sorted(len(mine) for mine in found.values()) == [2, 3, 3]
    assert set(t(0, 2)) <= set(found["two"])
    assert set(t(1, 3)) & set(found["one"])
    # And then nothing moves any more.
    again = CooperativeStickyAssignor().assign_by_rack(
        partitions, group(found["one"], found["two"]), racks
    )
    assert (sorted(again["one"]), sorted(again["two"])) == (
        sorted(found["one"]),
        sorted(found["two"]),
    )
