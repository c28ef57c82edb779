"""Groups whose members do not all rebalance alike (KIP-429): what no other file holds.

``docs/explanation/mixed-groups.md`` lists all situations, and the test that holds each.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from unit.core.scripted_brokers import tp
from unit.core.scripted_group import (
    MEMBER,
    ScriptedGroup,
    foreign,
    orders,
    owned,
    release,
    subscription_of,
    working,
)

from asyncrevoke.client.core.assignors import ASSIGNORS, Assignment, Member, RebalanceProtocol
from asyncrevoke.client.core.assignors.ownership import encode_generation
from asyncrevoke.client.core.assignors.sticky import with_last_assignment
from asyncrevoke.client.core.io.effects import NotifyKind
from asyncrevoke.client.core.membership.classic.state_table import ClassicState
from asyncrevoke.client.errors import ConfigError, InconsistentGroupError
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    JoinGroupMember,
    JoinGroupRequest,
    MetadataRequest,
    OffsetCommitRequest,
)
from asyncrevoke.client.protocol.subscription import (
    Subscription,
    decode_subscription,
    encode_subscription,
)
from asyncrevoke.consumer import Consumer

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

FIRST_BOUNCE = ("range", "cooperative-sticky")
FORMER_ID = "one-01234567-89ab-cdef-0123-456789abcdef"
PAGE = Path(__file__).parents[4] / "docs" / "explanation" / "mixed-groups.md"


class Everything:
    """Gives all partitions to the first member by id, whoever owns them."""

    name = "everything"

    def __init__(self, *protocols: RebalanceProtocol) -> None:
        self.protocols = frozenset(protocols)

    def user_data(self, generation: int, owned: Collection[TopicPartition]) -> None:
        return None

    def assign(
        self, partitions: Mapping[str, Sequence[int]], members: Sequence[Member]
    ) -> Assignment:
        first = min(member.member_id for member in members)
        return {first: [TopicPartition(name, n) for name in partitions for n in partitions[name]]}


def test_every_situation_is_named_with_the_test_that_holds_it() -> None:
    rows = [line.split("|")[1:-1] for line in PAGE.read_text(encoding="utf-8").splitlines()]
    numbered = {int(row[0]): row for row in rows if len(row) == 4 and row[0].strip().isdecimal()}
    assert sorted(numbered) == list(range(1, 41))
    # That the named tests exist is checked for every page.
    assert [
        n for n, row in numbered.items() if not re.search(r"`tests/\S+::test_\w+`", row[3])
    ] == []


# --- what is offered ----------------------------------------------------------------------------


def offered(request: JoinGroupRequest) -> dict[str, Subscription]:
    return {name: decode_subscription(data) for name, data in request.protocols}


def test_a_member_in_the_first_bounce_offers_both_and_owns_nothing_when_it_joins() -> None:
    group = ScriptedGroup(assignors=FIRST_BOUNCE)
    group.become_member(0, 1)
    group.rebalance()
    assert group.phase() is ClassicState.REVOKING  # eager: it gives up all of it first
    assert group.step().to_be_revoked == orders(0, 1)
    group.step()
    protocols = offered(group.joining())
    assert list(protocols) == list(FIRST_BOUNCE)
    assert [subscription.owned for subscription in protocols.values()] == [(), ()]


def test_the_generation_is_sent_in_its_field_and_in_the_user_data_for_old_java_leaders() -> None:
    group = ScriptedGroup()
    group.become_member(0, 1)
    group.rebalance()
    (name, data), *_ = group.joining().protocols
    assert (name, data[:2]) == ("cooperative-sticky", b"\x00\x03")
    subscription = subscription_of(group.joining())
    assert subscription.generation == group.generation
    assert subscription.user_data is not None
    assert subscription.user_data.startswith(encode_generation(group.generation))
    assert frozenset(subscription.owned) == orders(0, 1)


def test_a_sticky_member_owns_nothing_and_tells_its_last_assignment_in_the_user_data() -> None:
    group = ScriptedGroup(assignors=("sticky", "cooperative-sticky"))
    group.become_member(0, 1)
    group.rebalance()
    assert group.step().to_be_revoked == orders(0, 1)
    group.step()
    subscription = offered(group.joining())["sticky"]
    assert subscription.owned == ()
    last = with_last_assignment(subscription, 100)
    assert (frozenset(last.owned), last.generation) == (orders(0, 1), group.generation)


def test_a_sticky_leader_leaves_partitions_where_the_last_assignment_gave_them() -> None:
    group = ScriptedGroup(assignors=("sticky",))
    group.start()
    group.give_id()
    last = ASSIGNORS["sticky"].user_data(group.generation, sorted(orders(1, 3)))
    subscription = Subscription(topics=("orders",), user_data=last)
    group.respond_to_join(
        leads=True,
        others=(
            JoinGroupMember(
                member_id="a", group_instance_id=None, metadata=encode_subscription(subscription)
            ),
        ),
    )
    assert group.planned() == {MEMBER: orders(0, 2), "a": orders(1, 3)}


def test_a_forced_protocol_that_an_assignor_lacks_is_rejected_at_construction() -> None:
    cooperative_only = Everything(RebalanceProtocol.COOPERATIVE)
    with pytest.raises(ConfigError, match="share no rebalance protocol"):
        Consumer("orders", group_id="billing", assignors=("range", cooperative_only))
    with pytest.raises(ConfigError, match="everything supports none"):
        Consumer("orders", group_id="billing", assignors=(Everything(),))
    Consumer("orders", group_id="billing", assignors=("cooperative-sticky", cooperative_only))


# --- what the group agrees on -------------------------------------------------------------------


def test_while_a_member_offers_range_alone_the_group_assigns_by_range() -> None:
    group = ScriptedGroup(assignors=FIRST_BOUNCE)
    group.start()
    group.give_id()
    group.respond_to_join(leads=True, protocol="range", others=(foreign("m-2"),))
    assert group.planned() == {"m-2": orders(0, 1), MEMBER: orders(2, 3)}


def test_an_eager_leader_withholds_what_cooperative_members_report_as_owned() -> None:
    group = ScriptedGroup(assignors=FIRST_BOUNCE)
    group.start()
    group.give_id()
    others = (foreign("m-2", owned=orders(0, 1, 2, 3)), foreign("m-3"))
    group.respond_to_join(leads=True, protocol="cooperative-sticky", others=others)
    plan = group.planned()
    assert plan[MEMBER] == plan["m-3"] == frozenset()
    assert len(plan["m-2"]) == 2
    assert plan["m-2"] <= orders(0, 1, 2, 3)


def test_in_the_second_bounce_what_eager_members_gave_up_moves_at_once() -> None:
    # We are cooperative and hold 0 and 1; the eager ones had 2 and 3, and join with nothing.
    group, record = working(0, 1)
    group.rebalance()
    assert owned(group.joining()) == orders(0, 1)
    eager = tuple(map(foreign, ("m-2", "m-3", "m-4")))
    group.respond_to_join(leads=True, others=eager)
    plan = group.planned()
    assert plan.pop(MEMBER) == orders(0)
    assert set().union(*plan.values()) == orders(2, 3)
    group.respond_to_sync(tp(0))
    assert group.step().to_be_revoked == orders(1)
    release(group, record)
    group.respond_to_join(leads=True, others=eager)
    # Now that we have released it, it may go to one of them.
    assert set().union(*group.planned().values()) == orders(0, 1, 2, 3)


def test_an_eager_member_is_served_by_a_cooperative_assignment_all_the_same() -> None:
    group = ScriptedGroup(assignors=("cooperative-sticky", "range"))
    group.start()
    group.give_id()
    assert owned(group.respond_to_join(protocol="cooperative-sticky")) == frozenset()
    group.respond_to_sync(*orders(0, 1))
    assert group.heard(NotifyKind.ASSIGNED) == [orders(0, 1)]
    group.rebalance()
    assert group.step().to_be_revoked == orders(0, 1)
    group.step()
    assert owned(group.respond_to_join(protocol="cooperative-sticky")) == frozenset()
    group.respond_to_sync(*orders(0))
    assert group.assigned == orders(0)
    assert group.phase() is ClassicState.STABLE  # nothing is withheld from who reported nothing


@pytest.mark.parametrize("assignors", [("cooperative-sticky",), FIRST_BOUNCE])
def test_a_group_that_no_longer_shares_an_assignor_loses_first_and_is_not_asked_again(
    assignors: tuple[str, ...],
) -> None:
    group = ScriptedGroup(assignors=assignors)
    group.become_member(0, 1)
    group.rebalance()
    group.step()
    group.step()
    held = group.assigned
    group.respond_to_join(ErrorCode.inconsistent_group_protocol)
    assert group.heard(NotifyKind.LOST) == ([held] if held else [])
    if held:
        assert group.step().lost == held
    with pytest.raises(InconsistentGroupError, match="restart its members twice"):
        group.poll()
    joins = group.count(JoinGroupRequest)
    group.advance(600.0)
    assert group.count(JoinGroupRequest) == joins


# --- foreign members and foreign assignors ------------------------------------------------------


def without_generation(member_id: str, *numbers: int) -> JoinGroupMember:
    """A member that writes subscriptions of version 1, as kafka-python does."""
    subscription = Subscription(topics=("orders",), owned=tuple(sorted(orders(*numbers))))
    return JoinGroupMember(
        member_id=member_id,
        group_instance_id=None,
        metadata=encode_subscription(subscription, version=1),
    )


def test_a_member_that_reports_no_generation_owns_what_no_other_member_reports() -> None:
    group = ScriptedGroup()
    group.become_member(0, 1)
    group.rebalance()
    # It claims 1 as well, from a generation that we have outlived.
    group.respond_to_join(leads=True, others=(without_generation("m-2", 1, 2),))
    plan = group.planned()
    assert plan[MEMBER] == orders(0, 1)
    assert plan["m-2"] == orders(2, 3)


def test_an_assignor_of_the_users_own_that_does_not_withhold_is_stripped_and_logged() -> None:
    group = ScriptedGroup(assignors=(Everything(RebalanceProtocol.COOPERATIVE),))
    group.start()
    group.give_id()
    group.respond_to_join(
        leads=True, others=(foreign("a-first", owned=orders(0)), foreign("b", owned=orders(1)))
    )
    assert group.planned() == {"a-first": orders(0, 2, 3), "b": frozenset(), MEMBER: frozenset()}
    (line,) = group.named("the assignor assigned partitions that other members still own")
    assert line.level == "error"
    assert line.fields["assignor"] == "everything"


def test_an_eager_assignor_of_the_users_own_is_taken_at_its_word() -> None:
    group = ScriptedGroup(assignors=(Everything(RebalanceProtocol.EAGER),))
    group.start()
    group.give_id()
    group.respond_to_join(leads=True, others=(foreign("a-first"),))
    assert group.planned() == {"a-first": orders(0, 1, 2, 3), MEMBER: frozenset()}


# --- what the listener hears --------------------------------------------------------------------


def test_a_rebalance_without_changes_calls_no_listener() -> None:
    group = ScriptedGroup()
    group.become_member()
    group.rebalance()
    group.rejoin()
    assert group.notices == []
    group.rebalance()
    group.rejoin(0)
    group.rebalance()
    group.rejoin(0)
    assert [notice.partitions for notice in group.notices] == [orders(0)]


# --- changes while a rebalance is under way -----------------------------------------------------


def test_a_topic_subscribed_again_before_its_release_resumes_at_its_position() -> None:
    group = ScriptedGroup(
        "orders", "bills", partitions={"orders": 2, "bills": 2}, commit_mode="ack"
    )
    group.start()
    group.give_id()
    group.respond_to_join()
    group.respond_to_sync(tp(0), tp(0, "bills"))
    (record,) = group.receive(0, topic="bills")
    group.subscribe("orders")
    assert group.step().to_be_revoked == {tp(0, "bills")}
    group.subscribe("orders", "bills")
    group.rebalance()
    request = group.joining()
    assert set(subscription_of(request).topics) == {"orders", "bills"}
    assert owned(request) == {tp(0), tp(0, "bills")}
    group.respond_to_join()
    group.respond_to_sync(tp(0), tp(0, "bills"))
    # Wanted again and given back before it was released: it goes on where it was.
    assert group.assigned == {tp(0), tp(0, "bills")}
    assert group.step().to_be_revoked == frozenset()
    assert group.complete(record)


# --- static members -----------------------------------------------------------------------------


def returned_leader(**options: str) -> ScriptedGroup:
    """A static leader that has come back; the broker speaks JoinGroup before version 9."""
    group = ScriptedGroup(
        group_instance_id=options.get("instance", "one"), metadata_max_age=10.0, client_id="us"
    )
    group.start()
    group.generation = 6
    group.respond_to_join(leader=options.get("leader", FORMER_ID))
    group.pulse = ErrorCode.none
    return group


def test_before_kip_814_a_static_leader_that_comes_back_watches_and_assigns_nothing() -> None:
    group = returned_leader()
    assert group.planned() == {}
    group.respond_to_sync(*orders(0, 1), led_by_us=True)
    assert group.phase() is ClassicState.STABLE
    group.partitions["orders"] = 6
    group.advance(12.0)
    assert group.phase() is ClassicState.AWAIT_JOIN


@pytest.mark.parametrize(
    "leader", ["another", f"one-{FORMER_ID}", "one-", "two-" + FORMER_ID.removeprefix("one-")]
)
def test_another_leader_is_not_taken_for_our_former_self(leader: str) -> None:
    group = returned_leader(leader=leader)
    group.respond_to_sync(*orders(0, 1))
    group.partitions["orders"] = 6
    group.advance(12.0)
    assert group.phase() is ClassicState.STABLE


# --- racks (KIP-881) ----------------------------------------------------------------------------


def in_the_west(assignor: str = "cooperative-sticky") -> ScriptedGroup:
    """We run in the west; the odd partitions are there, the even ones in the east."""
    group = ScriptedGroup(client_rack="west", metadata_max_age=10.0, assignors=(assignor,))
    group.racks = {1: "east", 2: "west"}
    group.replicas = {tp(number): (number % 2 + 1,) for number in range(4)}
    group.start()
    group.give_id()
    return group


def in_the_east(member_id: str) -> JoinGroupMember:
    subscription = Subscription(topics=("orders",), rack="east")
    return JoinGroupMember(
        member_id=member_id, group_instance_id=None, metadata=encode_subscription(subscription)
    )


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_leader_gives_members_what_is_in_their_rack(assignor: str) -> None:
    group = in_the_west(assignor)
    assert subscription_of(group.joining()).rack == "west"
    group.respond_to_join(leads=True, others=(in_the_east("m-2"),))
    assert group.planned() == {MEMBER: orders(1, 3), "m-2": orders(0, 2)}


def test_a_leader_assigns_again_when_replicas_have_moved_to_another_rack() -> None:
    group = in_the_west()
    group.respond_to_join(leads=True, others=(in_the_east("m-2"),))
    group.respond_to_sync(*orders(1, 3))
    group.pulse = ErrorCode.none
    group.advance(12.0)
    assert group.phase() is ClassicState.STABLE
    group.replicas = {tp(number): (2 - number % 2,) for number in range(4)}
    group.advance(12.0)
    assert group.phase() is ClassicState.AWAIT_JOIN


def test_without_a_member_with_a_rack_the_leader_ignores_moved_replicas() -> None:
    group = ScriptedGroup(metadata_max_age=10.0)
    group.racks = {1: "east", 2: "west"}
    group.start()
    group.give_id()
    group.respond_to_join(leads=True)
    group.respond_to_sync(*orders(0, 1, 2, 3))
    group.pulse = ErrorCode.none
    group.replicas = {tp(0): (2,)}
    group.advance(12.0)
    assert group.phase() is ClassicState.STABLE


# --- groups that are converted ------------------------------------------------------------------


def joined(leader: str) -> ScriptedGroup:
    group = ScriptedGroup(metadata_max_age=5.0)
    group.start()
    group.give_id()
    group.respond_to_join(leader=leader)
    group.respond_to_sync(tp(0))
    group.pulse = ErrorCode.none
    return group


def test_without_a_leader_each_member_reports_changed_topics() -> None:
    group = joined(leader="")
    group.advance(12.0)
    assert not group.sends(JoinGroupRequest), "nothing has changed"
    group.partitions["orders"] += 1
    group.advance(6.0)
    assert group.only(JoinGroupRequest)[1].reason == (
        "the partitions of the group's topics have changed"
    )


def test_where_another_member_leads_it_is_the_leaders_to_report() -> None:
    group = joined(leader="another")
    group.partitions["orders"] += 1
    group.advance(12.0)
    assert not group.sends(JoinGroupRequest)


def test_without_a_leader_a_topic_created_after_the_join_is_reported() -> None:
    # It may be one that was deleted, and nobody would begin the new one.
    group = ScriptedGroup("orders", "bills", partitions={"orders": 2}, metadata_max_age=5.0)
    group.start()
    group.give_id()
    group.respond_to_join(leader="")
    group.respond_to_sync(tp(0))
    group.pulse = ErrorCode.none
    group.advance(6.0)
    assert not group.sends(JoinGroupRequest)
    group.partitions["bills"] = 2
    group.topic_ids["bills"] = b"bills".ljust(16)
    group.advance(6.0)
    assert group.sends(JoinGroupRequest)


def test_without_a_leader_topics_learned_after_the_join_have_not_changed() -> None:
    group = ScriptedGroup(metadata_max_age=5.0)
    group.silent.add(MetadataRequest)
    group.start()
    group.give_id()
    group.respond_to_join(leader="")
    group.respond_to_sync(tp(0))
    group.pulse = ErrorCode.none
    group.silent.clear()
    send, request = group.only(MetadataRequest)
    group.reply(send, group._metadata(request.topics))
    group.advance(12.0)
    assert group.assigned == orders(0)
    assert not group.sends(JoinGroupRequest)


def away_and_back(leader: str, seconds: float) -> ScriptedGroup:
    """A member of 0 and 1 that heard of nobody for so long, and then joins again."""
    group, _ = working(0, 1, session_timeout=10.0)
    beat = group.beat()
    group.now += seconds
    group.respond_to_beat(ErrorCode.rebalance_in_progress, send=beat)
    assert owned(group.joining()) == orders(0, 1)
    group.respond_to_join(leader=leader)
    return group


def test_after_a_session_without_a_response_who_joins_a_coordinator_has_nothing_of_before() -> None:
    group = away_and_back("", 11.0)
    assert group.heard(NotifyKind.LOST) == [orders(0, 1)]
    group.respond_to_sync(tp(0))
    assert group.assigned == orders(0)
    assert not group.sends(OffsetCommitRequest), "others may have done more of it"


@pytest.mark.parametrize(("leader", "seconds"), [("another", 11.0), ("", 9.0)])
def test_who_joins_in_time_or_is_led_by_a_member_keeps_what_it_has(
    leader: str, seconds: float
) -> None:
    group = away_and_back(leader, seconds)
    assert not group.heard(NotifyKind.LOST)
    group.respond_to_sync(tp(0))
    assert group.assigned == orders(0, 1)
