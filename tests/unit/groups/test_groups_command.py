"""``asyncrevoke groups`` on brokers of the test's own."""

from __future__ import annotations

import dataclasses
import io
import json

import msgspec
import pytest
from kio.schema.describe_groups.v5 import response as classic
from kio.schema.errors import ErrorCode
from rich.console import Console
from typer.testing import CliRunner
from unit.core.scripted_brokers import tp
from unit.groups.fake_brokers import FakeBrokers, classic_member, modern_member

from asyncrevoke.cli.app import app
from asyncrevoke.cli.groups import command
from asyncrevoke.cli.groups.tables import show_group
from asyncrevoke.client.groups.errors import GroupsError
from asyncrevoke.client.groups.facts import GroupFacts, GroupSummary, MemberFacts, PartitionFacts
from asyncrevoke.client.groups.observer import describe_group
from asyncrevoke.client.groups.rebalance_blockers import classic_rebalance, consumer_group_rebalance
from asyncrevoke.client.protocol.subscription import encode_assignment


def shown(group: GroupFacts) -> str:
    text = io.StringIO()
    show_group(Console(file=text, width=500), group)
    return text.getvalue()


# --- classic groups -----------------------------------------------------------------------------


async def test_a_classic_group_is_described_with_members_and_lag(brokers: FakeBrokers) -> None:
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
async def test_what_a_broker_does_not_report_is_said_to_be_unknown(
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


@pytest.mark.parametrize(("log_start", "lags"), [(15, [10, 5]), (22, [3, 3]), (25, [0, 0])])
async def test_lag_does_not_count_what_retention_has_removed(
    brokers: FakeBrokers, log_start: int, lags: list[int]
) -> None:
    brokers.log_start = log_start
    group = await describe_group(brokers, "billing")
    assert [p.committed for p in group.partitions] == [10, 20]
    assert [p.lag for p in group.partitions] == lags


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
    with pytest.raises(GroupsError, match="not a consumer group but 'connect'"):
        await describe_group(brokers, "billing")


async def test_a_rejection_names_the_right_that_is_missing(brokers: FakeBrokers) -> None:
    brokers.error = ErrorCode.group_authorization_failed
    with pytest.raises(GroupsError, match="grant DESCRIBE"):
        await describe_group(brokers, "billing")


async def test_a_coordinator_that_loads_is_asked_again_but_not_for_ever(
    brokers: FakeBrokers,
) -> None:
    brokers.errors = [
        ErrorCode.none,
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_load_in_progress,
    ]
    assert (await describe_group(brokers, "billing")).state == "Stable"
    assert brokers.errors == []
    brokers.error = ErrorCode.not_coordinator
    with pytest.raises(GroupsError, match="not_coordinator"):
        await describe_group(brokers, "billing", patience=0.0)


async def test_a_broker_without_describe_groups_is_named_whatever_it_says_of_offsets(
    brokers: FakeBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def send(*_: object) -> object:
        raise GroupsError("an invalid response to OffsetFetch")

    monkeypatch.setattr(brokers, "send", send)
    brokers.speaks_modern = brokers.speaks_classic = False
    with pytest.raises(GroupsError, match="does not offer DescribeGroups"):
        await describe_group(brokers, "billing")


async def test_brokers_before_kip_848_are_asked_the_old_way(brokers: FakeBrokers) -> None:
    brokers.speaks_modern = False
    brokers.classic = (classic_member("one", tp(0)),)
    assert (await describe_group(brokers, "billing")).type == "classic"


async def test_a_leader_that_does_not_respond_costs_the_lag_of_its_partitions(
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


async def test_when_all_members_have_their_target_no_rebalance_is_in_progress(
    brokers: FakeBrokers,
) -> None:
    brokers.modern = (modern_member("one", 7, assigned=(0, 1, 2, 3), target=(0, 1, 2, 3)),)
    group = await describe_group(brokers, "billing")
    assert not group.rebalance.in_progress
    assert group.members[0].waiting_for == ()


@pytest.mark.timeout(20)
async def test_members_with_many_partitions_are_described_in_linear_time(
    brokers: FakeBrokers,
) -> None:
    owned, target = tuple(range(40_000)), tuple(range(20_000, 60_000))
    brokers.modern = (modern_member("one", 7, assigned=owned, target=target),)
    (member,) = (await describe_group(brokers, "billing")).members
    assert (len(member.releasing), len(member.waiting_for)) == (20_000, 20_000)


def test_a_group_state_without_lagging_members_is_shown_unchanged() -> None:
    member = MemberFacts(member_id="a", client_id="a", host="h", epoch=7, target=())
    rebalance = consumer_group_rebalance("Assigning", 7, [member])
    assert rebalance.in_progress
    assert rebalance.says == "The group is Assigning; no member delays it."
    assert not classic_rebalance("Empty", ()).in_progress


async def test_partitions_name_their_member_by_its_id_if_members_have_the_same_client_id(
    brokers: FakeBrokers,
) -> None:
    group = await describe_group(brokers, "billing")
    members = tuple(
        MemberFacts(member_id=f"asyncrevoke-{n}", client_id="asyncrevoke", host="h", epoch=None)
        for n in range(2)
    )
    partitions = (
        PartitionFacts(topic="orders", partition=0, member_id="asyncrevoke-1"),
        PartitionFacts(topic="orders", partition=1, member_id="asyncrevoke-0"),
    )
    text = shown(msgspec.structs.replace(group, members=members, partitions=partitions))
    owners = [line.split()[:2] for line in text.splitlines() if line.startswith("orders-")]
    assert owners == [["orders-0", "asyncrevoke-1"], ["orders-1", "asyncrevoke-0"]]


# --- the list -----------------------------------------------------------------------------------


# --- on the wire --------------------------------------------------------------------------------


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


def test_groups_without_members_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        GroupSummary(group="billing", members=2),
        GroupSummary(group="former", members=0),
        GroupSummary(group="undescribed"),
    ]

    async def ask(_config: object, _name: str | None) -> object:
        return found

    monkeypatch.setattr(command, "_ask", ask)
    for options, names in (
        ([], ["billing", "former", "undescribed"]),
        (["--active"], ["billing", "undescribed"]),
    ):
        result = CliRunner().invoke(app, ["groups", "--json", *options])
        assert [group["group"] for group in json.loads(result.output)] == names
    former = found.pop(1)
    found[:] = [former]
    assert "there are no groups" in CliRunner().invoke(app, ["groups", "--active"]).output


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
    assert "no broker responds at 127.0.0.1:1" in result.stderr


@pytest.mark.parametrize("groups", [0, 2])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_broker_that_responds_with_other_groups_is_an_error_in_words(
    groups: int, protocol: str
) -> None:
    brokers = FakeBrokers()
    if protocol == "consumer":
        brokers.modern = ()
    kind = "_classic" if protocol == "classic" else "_modern"
    honest = getattr(brokers, kind)

    def lying(node: int, request: object) -> object:
        response = honest(node, request)
        return dataclasses.replace(response, groups=response.groups * groups)

    setattr(brokers, kind, lying)
    with pytest.raises(GroupsError, match=f"responded with {groups} groups"):
        await describe_group(brokers, "billing")
