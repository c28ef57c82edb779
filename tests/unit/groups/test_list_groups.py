"""``asyncrevoke groups`` without a name: every group that the brokers list."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode
from kio.schema.list_groups.v3.response import ListedGroup as OldGroup
from kio.schema.list_groups.v3.response import ListGroupsResponse as OldGroups
from kio.schema.list_groups.v5.response import ListedGroup, ListGroupsResponse
from kio.schema.types import GroupId
from rich.console import Console
from typer.testing import CliRunner
from unit.groups.fake_brokers import NOW, FakeBrokers

from asyncrevoke.cli.app import app
from asyncrevoke.cli.groups import command
from asyncrevoke.cli.groups.view import show_groups
from asyncrevoke.groups.observer import list_groups

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
    ]
    assert {node for node, _ in brokers.asked} == {1, 2}
    text = io.StringIO()
    show_groups(Console(file=text, width=200), found)
    assert "consumer" in text.getvalue()


async def test_brokers_that_report_no_state_leave_it_unknown(brokers: FakeBrokers) -> None:
    old = OldGroup(group_id=GroupId("a"), protocol_type="consumer")
    answer = OldGroups(throttle_time=NOW, error_code=ErrorCode.none, groups=(old,))
    brokers.listed = {1: answer, 2: answer}.get
    (group,) = await list_groups(brokers)
    assert (group.type, group.state) == ("", "")
    text = io.StringIO()
    show_groups(Console(file=text, width=200), [group])
    assert text.getvalue().count("?") == 2


def test_no_groups_at_all_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(_config: object, _name: str | None) -> object:
        return []

    monkeypatch.setattr(command, "_ask", ask)
    result = CliRunner().invoke(app, ["groups"])
    assert (result.exit_code, result.output.strip()) == (0, "there are no consumer groups")
