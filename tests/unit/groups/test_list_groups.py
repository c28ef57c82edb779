"""``asyncrevoke groups`` without a name: every group that the brokers list."""

from __future__ import annotations

import asyncio
import io
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode
from kio.schema.list_groups.v5.response import ListedGroup, ListGroupsResponse
from kio.schema.types import GroupId
from rich.console import Console
from typer.testing import CliRunner
from unit.core.scripted_brokers import tp
from unit.groups.fake_brokers import NOW, FakeBrokers, classic_member

from asyncrevoke.cli.app import app
from asyncrevoke.cli.groups import command
from asyncrevoke.cli.groups.tables import show_groups
from asyncrevoke.client.groups.observer import list_groups, summarize_groups

if TYPE_CHECKING:
    import pytest


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
        ("s", "share", "Stable"),
    ]
    assert {node for node, _ in brokers.asked} == {1, 2}
    text = io.StringIO()
    show_groups(Console(file=text, width=200), found)
    assert "consumer" in text.getvalue()


async def test_a_group_without_a_listed_state_that_is_not_described_has_question_marks(
    brokers: FakeBrokers,
) -> None:
    only_billing(brokers, state="", kind="")
    (group,) = await list_groups(brokers)
    assert (group.type, group.state) == ("", "")
    text = io.StringIO()
    show_groups(Console(file=text, width=200), [group])
    assert text.getvalue().count("?") == 4


async def test_the_state_that_kafka_2_4_does_not_list_comes_from_the_description(
    brokers: FakeBrokers,
) -> None:
    only_billing(brokers, state="", kind="")
    brokers.speaks_modern = False
    (group,) = await summarize_groups(brokers)
    assert (group.type, group.state, group.members) == ("classic", "Stable", 0)


def only_billing(brokers: FakeBrokers, state: str = "Stable", kind: str = "Classic") -> None:
    group = ListedGroup(
        group_id=GroupId("billing"), protocol_type="consumer", group_state=state, group_type=kind
    )
    response = ListGroupsResponse(throttle_time=NOW, error_code=ErrorCode.none, groups=(group,))
    brokers.listed = {1: response, 2: response}.get


async def test_each_group_is_listed_with_its_members_and_lag(brokers: FakeBrokers) -> None:
    only_billing(brokers)
    brokers.classic = (classic_member("one", tp(0), tp(1)), classic_member("two", tp(2)))
    (group,) = await summarize_groups(brokers)
    assert (group.group, group.state, group.members, group.lag) == ("billing", "Stable", 2, 20)
    text = io.StringIO()
    show_groups(Console(file=text, width=200), [group])
    assert text.getvalue().split()[-5:] == ["billing", "classic", "Stable", "2", "20"]


async def test_a_group_that_may_not_be_described_is_listed_without_members_and_lag(
    brokers: FakeBrokers,
) -> None:
    only_billing(brokers)
    brokers.error = ErrorCode.group_authorization_failed
    (group,) = await summarize_groups(brokers)
    assert (group.group, group.members, group.lag) == ("billing", None, None)


async def test_a_group_that_has_gone_meanwhile_is_not_listed(brokers: FakeBrokers) -> None:
    only_billing(brokers)
    brokers.protocol_type, brokers.state, brokers.committed = "", "Dead", {}
    assert await summarize_groups(brokers) == []


async def test_groups_that_are_not_described_in_time_are_listed_all_the_same(
    brokers: FakeBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_billing(brokers)

    async def never(_group: str) -> int:
        forever: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        return await forever

    monkeypatch.setattr(brokers, "coordinator", never)
    (group,) = await summarize_groups(brokers, within=0.01)
    assert (group.group, group.members, group.lag) == ("billing", None, None)


def test_no_groups_at_all_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(_config: object, _name: str | None) -> object:
        return []

    monkeypatch.setattr(command, "_ask", ask)
    result = CliRunner().invoke(app, ["groups"])
    assert (result.exit_code, result.output.strip()) == (0, "there are no groups")
