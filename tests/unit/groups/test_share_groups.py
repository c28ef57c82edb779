"""Share groups, as ``asyncrevoke groups`` describes them, and as others refuse them."""

from __future__ import annotations

import io

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.list_groups.v5.response import ListedGroup, ListGroupsResponse
from kio.schema.types import GroupId
from rich.console import Console
from typer.testing import CliRunner
from unit.core.scripted_brokers import tp
from unit.groups.fake_brokers import NOW, FakeBrokers, share_member

from asyncrevoke.cli.app import app
from asyncrevoke.cli.groups.tables import show_share_group
from asyncrevoke.client.groups import requests
from asyncrevoke.client.groups.errors import (
    GroupsError,
    NoGroupError,
    ShareGroupError,
    UnsupportedRequestError,
)
from asyncrevoke.client.groups.facts import GroupFacts, ShareGroupFacts
from asyncrevoke.client.groups.observer import (
    committed_offsets,
    describe_group,
    describe_group_of_any_type,
    summarize_groups,
)
from asyncrevoke.client.groups.share_groups import describe_share_group
from asyncrevoke.client.groups.unread import observe_group


@pytest.fixture
def shared(brokers: FakeBrokers) -> FakeBrokers:
    """A broker whose other requests say of a share group that it does not exist."""
    brokers.share = (share_member("one", 0, 1, 2), share_member("two", 1))
    brokers.protocol_type, brokers.state, brokers.committed = "", "Dead", {}
    return brokers


def shown(group: ShareGroupFacts) -> str:
    text = io.StringIO()
    show_share_group(Console(file=text, width=500), group)
    return text.getvalue()


async def test_a_share_group_is_described_with_the_members_of_each_partition(
    shared: FakeBrokers,
) -> None:
    shared.share_offsets[3] = (-1, -1)
    group = await describe_group_of_any_type(shared, "billing")
    assert isinstance(group, ShareGroupFacts)
    assert (group.type, group.assignor, group.epoch, group.lag) == ("share", "simple", 7, 4)
    assert [member.assigned for member in group.members] == [(tp(0), tp(1), tp(2)), (tp(1),)]
    assert [(p.partition, p.start, p.lag, p.member_ids) for p in group.partitions] == [
        (0, 0, 4, ("one-id",)),
        (1, 20, 0, ("one-id", "two-id")),
        (2, None, None, ("one-id",)),
        (3, None, None, ()),
    ]
    text = shown(group)
    assert "billing: share, Dead, epoch 7, simple, coordinated by b2:9092" in text
    assert "one two" in text
    assert "nobody" in text
    assert "lag: 4, and 2 partitions of unknown lag" in text
    assert "known after the first fetch" in text


async def test_a_consumer_group_costs_no_request_about_share_groups(brokers: FakeBrokers) -> None:
    assert isinstance(await describe_group_of_any_type(brokers, "billing"), GroupFacts)
    await committed_offsets(brokers, "billing")
    assert not [name for _, name in brokers.asked if "Share" in name]


async def test_a_share_group_is_listed_with_its_members_and_lag(shared: FakeBrokers) -> None:
    listed = ListedGroup(
        group_id=GroupId("billing"), protocol_type="share", group_state="Stable", group_type="share"
    )
    response = ListGroupsResponse(throttle_time=NOW, error_code=ErrorCode.none, groups=(listed,))
    shared.listed = {1: response, 2: response}.get
    (group,) = await summarize_groups(shared)
    assert (group.type, group.state, group.members, group.lag) == ("share", "Stable", 2, 4)


async def test_a_share_group_is_no_consumer_group_without_commits(shared: FakeBrokers) -> None:
    for refused in (
        describe_group(shared, "billing"),
        committed_offsets(shared, "billing"),
        observe_group(shared, "billing", 10.0),
    ):
        with pytest.raises(ShareGroupError, match="'billing' is a share group, which commits no"):
            await refused


@pytest.mark.parametrize("offered", [True, False])
async def test_a_group_that_does_not_exist_is_no_share_group(
    brokers: FakeBrokers, *, offered: bool
) -> None:
    brokers.protocol_type, brokers.state, brokers.committed = "", "Dead", {}
    if not offered:
        brokers.not_offered = frozenset((requests.ShareGroupDescribeRequest,))
    with pytest.raises(NoGroupError, match="there is no group 'billing'"):
        await describe_group_of_any_type(brokers, "billing")
    assert await committed_offsets(brokers, "billing") == {}


async def test_share_groups_that_are_off_in_the_cluster_are_said_to_be(shared: FakeBrokers) -> None:
    shared.share_error = ErrorCode.unsupported_version
    with pytest.raises(UnsupportedRequestError, match=r"upgrade --feature share\.version=1"):
        await describe_share_group(shared, "billing")
    with pytest.raises(NoGroupError, match="there is no group 'billing'"):
        await describe_group_of_any_type(shared, "billing")


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (ErrorCode.group_authorization_failed, "not authorized; grant DESCRIBE to this user"),
        (ErrorCode.topic_authorization_failed, "grant DESCRIBE on all topics of the group"),
    ],
)
async def test_the_right_that_is_missing_is_named(
    shared: FakeBrokers, code: ErrorCode, sentence: str
) -> None:
    shared.share_error = code
    with pytest.raises(GroupsError, match=sentence):
        await describe_share_group(shared, "billing")


async def test_a_broker_that_reports_no_offsets_of_share_groups_leaves_the_lag_unknown(
    shared: FakeBrokers,
) -> None:
    shared.not_offered = frozenset((requests.DescribeShareGroupOffsetsRequest,))
    group = await describe_share_group(shared, "billing")
    assert [p.lag for p in group.partitions] == [None, None, None]
    assert group.lag is None


@pytest.mark.parametrize("arguments", [["show"], []])
def test_the_command_show_is_run_by_default(arguments: list[str]) -> None:
    servers = ["--bootstrap-servers", "127.0.0.1:1"]
    result = CliRunner().invoke(app, ["groups", *arguments, "billing", *servers])
    assert result.exit_code == 1
    assert "no broker responds at 127.0.0.1:1" in result.stderr
