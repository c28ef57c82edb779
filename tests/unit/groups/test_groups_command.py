"""``asyncrevoke groups`` on brokers of the test's own."""

from __future__ import annotations

import dataclasses
import datetime
import io
import json
import struct
from typing import TYPE_CHECKING, Any

import pytest
from kio.schema.consumer_group_describe.v0 import response as modern
from kio.schema.describe_groups.v5 import response as classic
from kio.schema.errors import ErrorCode
from kio.schema.list_groups.v3.response import ListedGroup as OldGroup
from kio.schema.list_groups.v3.response import ListGroupsResponse as OldGroups
from kio.schema.list_groups.v5.response import ListedGroup, ListGroupsResponse
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i32Timedelta
from rich.console import Console
from typer.testing import CliRunner
from unit.core.scripted_brokers import tp

from asyncrevoke.cli.app import app
from asyncrevoke.cli.groups import command
from asyncrevoke.cli.groups.view import show_group, show_groups
from asyncrevoke.groups import requests
from asyncrevoke.groups.errors import GroupsError, UnsupportedRequestError
from asyncrevoke.groups.facts import GroupFacts, MemberFacts
from asyncrevoke.groups.observer import describe_group, list_groups
from asyncrevoke.groups.rebalance_blockers import classic_rebalance, consumer_group_rebalance
from asyncrevoke.groups.retry import retry_until_settled
from asyncrevoke.protocol import codec, messages
from asyncrevoke.protocol.subscription import Subscription, encode_assignment, encode_subscription

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

    from asyncrevoke.model import TopicPartition


NOW = i32Timedelta.parse(datetime.timedelta(0))
NODES = {1: "b1:9092", 2: "b2:9092"}


def classic_member(
    name: str,
    *assigned: TopicPartition,
    owned: tuple[TopicPartition, ...] = (),
    instance: str | None = None,
    topics: tuple[str, ...] = ("orders",),
) -> classic.DescribedGroupMember:
    subscription = Subscription(topics=topics, owned=owned, rack="east")
    return classic.DescribedGroupMember(
        member_id=f"{name}-id",
        group_instance_id=instance,
        client_id=name,
        client_host=f"/10.0.0.{len(name)}",
        member_metadata=encode_subscription(subscription),
        member_assignment=encode_assignment(assigned),
    )


def modern_member(
    name: str, epoch: int, assigned: tuple[int, ...], target: tuple[int, ...]
) -> modern.Member:
    def assignment(numbers: tuple[int, ...]) -> modern.Assignment:
        topic = modern.TopicPartitions(
            topic_id=None, topic_name=TopicName("orders"), partitions=tuple(map(i32, numbers))
        )
        return modern.Assignment(topic_partitions=(topic,))

    return modern.Member(
        member_id=f"{name}-id",
        member_epoch=i32(epoch),
        client_id=name,
        client_host="/10.0.0.1",
        subscribed_topic_names=(TopicName("orders"),),
        assignment=assignment(assigned),
        target_assignment=assignment(target),
    )


class FakeBrokers:
    """Two brokers, topic orders with 4 partitions of which broker 1 leads the even ones."""

    def __init__(self) -> None:
        self.state = "Stable"
        self.protocol_type = "consumer"
        self.classic: tuple[classic.DescribedGroupMember, ...] = ()
        self.modern: tuple[modern.Member, ...] | None = None
        self.error = ErrorCode.none
        self.committed = {0: 10, 1: 20}
        self.listed: Any = None
        self.speaks_modern = True
        self.dead_leader: int | None = None
        self.asked: list[tuple[int, str]] = []

    def brokers(self) -> dict[int, str]:
        return NODES

    async def coordinator(self, group: str) -> int:
        return 2

    async def metadata(self, topics: Iterable[str]) -> messages.MetadataResponse:
        assert list(topics) == ["orders"]
        partitions = tuple(
            messages.PartitionMetadata(
                error=ErrorCode.none, partition=number, leader_id=number % 2 + 1
            )
            for number in range(4)
        )
        topic = messages.TopicMetadata(error=ErrorCode.none, name="orders", partitions=partitions)
        return messages.MetadataResponse(brokers=(), topics=(topic,))

    async def ask(self, node: int, request: messages.EntityRequest[Any]) -> Any:
        self.asked.append((node, type(request).__name__))
        match request:
            case requests.ListGroupsRequest():
                return self.listed(node)
            case requests.DescribeGroupsRequest():
                return self._classic(node, request)
            case _:
                return self._modern(node, request)

    async def send(self, node: int, request: messages.Request, answer: type[Any]) -> Any:
        self.asked.append((node, type(request).__name__))
        if isinstance(request, messages.ListOffsetsRequest):
            return self._ends(node, request)
        assert request == requests.committed("billing")
        return self._committed()

    def _classic(self, node: int, _request: object) -> object:
        assert node == 2
        group = classic.DescribedGroup(
            error_code=self.error,
            group_id=GroupId("billing"),
            group_state=self.state,
            protocol_type=self.protocol_type,
            protocol_data="cooperative-sticky" if self.state == "Stable" else "",
            members=self.classic,
        )
        return classic.DescribeGroupsResponse(throttle_time=NOW, groups=(group,))

    def _modern(self, node: int, _request: object) -> object:
        if not self.speaks_modern:
            raise UnsupportedRequestError("the broker does not offer it")
        group = modern.DescribedGroup(
            error_code=ErrorCode.group_id_not_found if self.modern is None else self.error,
            group_id=GroupId("billing"),
            group_state=self.state,
            group_epoch=i32(7),
            assignment_epoch=i32(7),
            assignor_name="uniform",
            members=self.modern or (),
        )
        return modern.ConsumerGroupDescribeResponse(throttle_time=NOW, groups=(group,))

    def _committed(self) -> messages.OffsetFetchResponse:
        return messages.OffsetFetchResponse(
            error=ErrorCode.none,
            offsets=tuple(
                messages.FetchedOffset(partition=tp(number), error=ErrorCode.none, offset=offset)
                for number, offset in self.committed.items()
            ),
        )

    def _ends(
        self, node: int, request: messages.ListOffsetsRequest
    ) -> messages.ListOffsetsResponse:
        if node == self.dead_leader:
            raise GroupsError("the broker does not answer")
        asked = [query.partition for query in request.queries]
        assert all(partition.partition % 2 + 1 == node for partition in asked)
        return messages.ListOffsetsResponse(
            offsets=tuple(
                messages.ListedOffset(partition=partition, error=ErrorCode.none, offset=25)
                for partition in asked
            )
        )


@pytest.fixture
def brokers() -> FakeBrokers:
    return FakeBrokers()


def shown(group: GroupFacts) -> str:
    text = io.StringIO()
    show_group(Console(file=text, width=500), group)
    return text.getvalue()


# --- classic groups -----------------------------------------------------------------------------


async def test_a_classic_group_is_told_with_members_and_lag(brokers: FakeBrokers) -> None:
    brokers.classic = (
        classic_member("one", tp(0), tp(1), owned=(tp(0), tp(1))),
        classic_member("two", tp(2), tp(3), instance="two-of-two"),
    )
    group = await describe_group(brokers, "billing")
    assert (group.type, group.state, group.assignor) == ("classic", "Stable", "cooperative-sticky")
    assert (group.coordinator, group.epoch) == ("b2:9092", None)
    assert [member.assigned for member in group.members] == [(tp(0), tp(1)), (tp(2), tp(3))]
    assert group.members[1].group_instance_id == "two-of-two"
    assert {member.rack for member in group.members} == {"east"}
    assert [(p.partition, p.committed, p.end, p.lag, p.member_id) for p in group.partitions] == [
        (0, 10, 25, 15, "one-id"),
        (1, 20, 25, 5, "one-id"),
        (2, None, 25, None, "two-id"),
        (3, None, 25, None, "two-id"),
    ]
    assert group.rebalance.says == "No rebalance is in progress."
    text = shown(group)
    assert "orders-0..1" in text
    assert "lag: 20, and 2 partitions of unknown lag" in text


async def test_a_cooperative_member_that_has_not_released_is_named(brokers: FakeBrokers) -> None:
    brokers.classic = (
        classic_member("slow", tp(0), owned=(tp(0), tp(1), tp(2))),
        classic_member("new", tp(3)),
    )
    group = await describe_group(brokers, "billing")
    assert group.rebalance.in_progress
    assert group.rebalance.held_up_by == ("slow-id",)
    assert group.rebalance.says == ("slow at 10.0.0.4 has not released orders-1, orders-2 yet.")
    # They are still its own until then.
    assert [p.member_id for p in group.partitions] == ["slow-id"] * 3 + ["new-id"]


@pytest.mark.parametrize(
    ("state", "word"), [("PreparingRebalance", "rejoined"), ("CompletingRebalance", "leader")]
)
async def test_what_a_broker_does_not_tell_is_said_to_be_unknown(
    brokers: FakeBrokers, state: str, word: str
) -> None:
    brokers.state = state
    brokers.classic = (
        classic.DescribedGroupMember(
            member_id="one-id",
            client_id="one",
            client_host="/10.0.0.1",
            member_metadata=b"",
            member_assignment=b"",
        ),
    )
    group = await describe_group(brokers, "billing")
    assert (group.rebalance.in_progress, group.rebalance.known) == (True, False)
    assert group.rebalance.held_up_by == ()
    assert word in group.rebalance.says
    assert "do not report which member" in group.rebalance.says


async def test_a_group_without_members_has_its_lag_all_the_same(brokers: FakeBrokers) -> None:
    brokers.state = "Empty"
    group = await describe_group(brokers, "billing")
    assert [p.lag for p in group.partitions] == [15, 5]
    assert {p.member_id for p in group.partitions} == {None}
    assert "nobody" in shown(group)


async def test_bytes_of_a_member_that_cannot_be_read_are_named(brokers: FakeBrokers) -> None:
    broken = classic.DescribedGroupMember(
        member_id="one-id",
        client_id="one",
        client_host="/10.0.0.1",
        member_metadata=b"\x00\x03\xff\xff",
        member_assignment=encode_assignment([tp(0)]),
    )
    brokers.classic = (broken,)
    group = await describe_group(brokers, "billing")
    assert group.members[0].unreadable
    assert group.members[0].unreadable in shown(group)


async def test_a_group_that_does_not_exist_is_an_error(brokers: FakeBrokers) -> None:
    brokers.state, brokers.protocol_type, brokers.committed = "Dead", "", {}
    with pytest.raises(GroupsError, match="there is no group 'billing'"):
        await describe_group(brokers, "billing")


async def test_groups_of_other_kinds_are_none_of_ours(brokers: FakeBrokers) -> None:
    brokers.protocol_type = "connect"
    with pytest.raises(GroupsError, match="no consumer group but 'connect'"):
        await describe_group(brokers, "billing")


async def test_a_refusal_names_the_right_that_is_missing(brokers: FakeBrokers) -> None:
    brokers.error = ErrorCode.group_authorization_failed
    with pytest.raises(GroupsError, match="grant DESCRIBE"):
        await describe_group(brokers, "billing")


async def test_a_coordinator_that_loads_is_asked_again_but_not_for_ever(
    brokers: FakeBrokers,
) -> None:
    answers = [ErrorCode.none, ErrorCode.not_coordinator, ErrorCode.coordinator_load_in_progress]

    def ask() -> Awaitable[GroupFacts]:
        brokers.error = answers.pop() if answers else ErrorCode.not_coordinator
        return describe_group(brokers, "billing")

    assert (await retry_until_settled(ask)).state == "Stable"
    assert answers == []
    with pytest.raises(GroupsError, match="not_coordinator"):
        await retry_until_settled(ask, patience=0.0)


async def test_brokers_before_kip_848_are_asked_the_old_way(brokers: FakeBrokers) -> None:
    brokers.speaks_modern = False
    brokers.classic = (classic_member("one", tp(0)),)
    assert (await describe_group(brokers, "billing")).type == "classic"


async def test_a_leader_that_does_not_answer_costs_the_lag_of_its_partitions(
    brokers: FakeBrokers,
) -> None:
    brokers.dead_leader = 2
    brokers.classic = (classic_member("one", tp(0), tp(1)),)
    group = await describe_group(brokers, "billing")
    assert [(p.end, p.lag) for p in group.partitions] == [
        (25, 15),
        (None, None),
        (25, None),
        (None, None),
    ]


# --- KIP-848 ------------------------------------------------------------------------------------


async def test_a_member_behind_the_newest_epoch_holds_its_group_up(brokers: FakeBrokers) -> None:
    brokers.state = "Reconciling"
    brokers.modern = (
        modern_member("slow", 6, assigned=(0, 1), target=(0, 1)),  # has not heard of it yet
        modern_member("new", 7, assigned=(3,), target=(2, 3)),
    )
    group = await describe_group(brokers, "billing")
    assert (group.type, group.epoch, group.assignor) == ("consumer", 7, "uniform")
    assert group.rebalance.held_up_by == ("slow-id",)
    assert "at epoch 6, the newest assignment is of 7" in group.rebalance.says
    assert group.members[1].waiting_for == (tp(2),)
    assert group.members[0].waiting_for == ()
    assert "waits for" in shown(group)


async def test_a_member_that_has_more_than_its_target_is_named_with_it(
    brokers: FakeBrokers,
) -> None:
    brokers.state = "Reconciling"
    brokers.modern = (modern_member("slow", 6, assigned=(0, 1), target=(0,)),)
    group = await describe_group(brokers, "billing")
    assert group.rebalance.says == "slow at 10.0.0.1 has not released orders-1 yet."


async def test_when_all_have_their_target_nobody_is_waited_for(brokers: FakeBrokers) -> None:
    brokers.modern = (modern_member("one", 7, assigned=(0, 1, 2, 3), target=(0, 1, 2, 3)),)
    group = await describe_group(brokers, "billing")
    assert not group.rebalance.in_progress
    assert group.members[0].waiting_for == ()


def test_a_state_in_which_nobody_is_behind_is_told_as_it_is() -> None:
    member = MemberFacts(member_id="a", client_id="a", host="h", epoch=7, target=())
    rebalance = consumer_group_rebalance("Assigning", 7, [member])
    assert rebalance.in_progress
    assert rebalance.says == "The group is Assigning; no member delays it."
    assert not classic_rebalance("Empty", ()).in_progress


# --- the list -----------------------------------------------------------------------------------


async def test_all_brokers_are_asked_for_their_groups(brokers: FakeBrokers) -> None:
    def listed(node: int) -> object:
        groups = {
            1: [("b", "consumer", "Stable", "Consumer"), ("c", "connect", "Stable", "Classic")],
            2: [("a", "consumer", "Empty", "Classic"), ("s", "share", "Stable", "Share")],
        }
        return ListGroupsResponse(
            throttle_time=NOW,
            error_code=ErrorCode.none,
            groups=tuple(
                ListedGroup(
                    group_id=GroupId(name), protocol_type=kind, group_state=state, group_type=type_
                )
                for name, kind, state, type_ in groups[node]
            ),
        )

    brokers.listed = listed
    found = await list_groups(brokers)
    assert [(group.group, group.type, group.state) for group in found] == [
        ("a", "classic", "Empty"),
        ("b", "consumer", "Stable"),
    ]
    assert {node for node, _ in brokers.asked} == {1, 2}
    text = io.StringIO()
    show_groups(Console(file=text, width=200), found)
    assert "consumer" in text.getvalue()


async def test_brokers_that_tell_no_state_leave_it_unknown(brokers: FakeBrokers) -> None:
    old = OldGroup(group_id=GroupId("a"), protocol_type="consumer")
    answer = OldGroups(throttle_time=NOW, error_code=ErrorCode.none, groups=(old,))
    brokers.listed = {1: answer, 2: answer}.get
    (group,) = await list_groups(brokers)
    assert (group.type, group.state) == ("", "")
    text = io.StringIO()
    show_groups(Console(file=text, width=200), [group])
    assert text.getvalue().count("?") == 2


# --- on the wire --------------------------------------------------------------------------------


def test_a_request_takes_the_newest_version_that_both_support() -> None:
    request = requests.ListGroupsRequest()
    for highest, version, body in (
        (9, 5, b"\x01\x01\x00"),
        (4, 4, b"\x01\x00"),
        (3, 3, b"\x00"),
    ):
        assert codec.choose_version(requests.ListGroupsRequest, {16: (0, highest)}) == version
        assert codec.encode_request(request, version) == body
    with pytest.raises(codec.UnsupportedVersion, match="ListGroups"):
        codec.choose_version(requests.ListGroupsRequest, {16: (0, 2)})
    with pytest.raises(codec.UnsupportedVersion, match="does not offer ListGroups"):
        codec.choose_version(requests.ListGroupsRequest, {})
    header = codec.encode_header(requests.ListGroupsRequest, 5, 9, "me")
    assert header[:8] == struct.pack(">hhi", 16, 5, 9)


@pytest.mark.parametrize(("version", "everything"), [(5, b"\xff" * 4), (7, b"\x00"), (9, b"\x00")])
def test_all_committed_offsets_of_a_group_are_requested(version: int, everything: bytes) -> None:
    request = requests.committed("billing")
    assert everything in codec.encode_request(request, version)
    entity: Any = codec._dialect(messages.OffsetFetchRequest, version).build(request)
    assert (entity.groups[0] if version == 9 else entity).topics is None


# --- the command --------------------------------------------------------------------------------


def test_the_facts_are_one_json_value(
    brokers: FakeBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.classic = (classic_member("one", tp(0)),)

    async def ask(_config: object, name: str | None) -> object:
        assert name == "billing"
        return await describe_group(brokers, name)

    monkeypatch.setattr(command, "_ask", ask)
    result = CliRunner().invoke(app, ["groups", "billing", "--json"])
    assert result.exit_code == 0
    told = json.loads(result.output)
    assert told["members"][0]["assigned"] == [["orders", 0]]
    assert told["rebalance"]["in_progress"] is False


def test_no_groups_at_all_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(_config: object, _name: str | None) -> object:
        return []

    monkeypatch.setattr(command, "_ask", ask)
    result = CliRunner().invoke(app, ["groups"])
    assert (result.exit_code, result.output.strip()) == (0, "there are no consumer groups")


@pytest.mark.parametrize(
    "options",
    [
        ["--security-protocol", "TLS"],
        ["--security-protocol", "SASL_SSL"],
        ["--bootstrap-servers", "kafka://x"],
        ["--timeout", "-1"],
        ["--ca-file", "no-such-file", "--security-protocol", "SSL"],
        ["--ca-file", __file__, "--security-protocol", "SSL"],
    ],
)
def test_a_wrong_option_is_a_usage_error_with_a_sentence(options: list[str]) -> None:
    result = CliRunner().invoke(app, ["groups", *options])
    assert result.exit_code == 2
    assert "error: " in result.stderr


def test_a_broker_that_is_not_there_is_a_failure_with_a_sentence() -> None:
    result = CliRunner().invoke(app, ["groups", "--bootstrap-servers", "127.0.0.1:1"])
    assert result.exit_code == 1
    assert "no broker answers at 127.0.0.1:1" in result.stderr


@pytest.mark.parametrize("groups", [0, 2])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_broker_that_answers_with_other_groups_is_an_error_in_words(
    groups: int, protocol: str
) -> None:
    brokers = FakeBrokers()
    if protocol == "consumer":
        brokers.modern = ()
    kind = "_classic" if protocol == "classic" else "_modern"
    honest = getattr(brokers, kind)

    def lying(node: int, request: object) -> object:
        answer = honest(node, request)
        return dataclasses.replace(answer, groups=answer.groups * groups)

    setattr(brokers, kind, lying)
    with pytest.raises(GroupsError, match=f"answered with {groups} groups"):
        await describe_group(brokers, "billing")
