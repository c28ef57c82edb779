"""``asyncrevoke groups lag --watch`` while groups come and go."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Self

import pytest
from typer.testing import CliRunner
from unit.groups.fake_brokers import FakeBrokers

from asyncrevoke.cli.app import app
from asyncrevoke.client.groups import cluster
from asyncrevoke.client.groups.errors import GroupsError, NoGroupError

if TYPE_CHECKING:
    from typer.testing import Result

LOOKS = "Dead", "Empty", GroupsError("no broker responds"), "Empty", "Dead", "Empty"
"""The states of a group, from one look to the next: a dead one does not exist."""


class ComingAndGoing(FakeBrokers):
    """Of the group, broker 2 reports one state of ``LOOKS`` after another. Another one is absent.
    Ctrl-C follows the last look."""

    def __init__(self, *_config: object) -> None:
        super().__init__()
        self.speaks_modern = False
        self._looks = iter(LOOKS)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        """There is no connection to close."""

    async def coordinator(self, group: str) -> int:
        if group != "billing":
            raise NoGroupError(f"there is no group {group!r}")
        look = next(self._looks, None)
        if look is None:
            raise KeyboardInterrupt
        if isinstance(look, GroupsError):
            raise look
        self.state = look
        exists = look != "Dead"
        self.protocol_type = "consumer" if exists else ""
        self.committed = {0: 10, 1: 20} if exists else {}
        self.end += 10
        return 2


@pytest.fixture(autouse=True)
def brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def soon(_seconds: float) -> None:
        """Look again at once."""

    monkeypatch.setattr(cluster, "GroupsClient", ComingAndGoing)
    monkeypatch.setattr(asyncio, "sleep", soon)


def watch(*words: str) -> Result:
    result = CliRunner().invoke(app, ["groups", "lag", *words])
    assert result.exit_code == 0, result.output
    return result


def test_a_watched_group_that_does_not_exist_is_looked_for_again() -> None:
    result = watch("shipping", "billing", "--watch", "0.5", "--json")
    looks: list[Any] = [json.loads(line) for line in result.stdout.splitlines()]
    assert [each["missing"] for each in looks] == [
        ["shipping", "billing"],
        ["shipping"],
        ["shipping"],
        ["shipping", "billing"],
        ["shipping"],
    ]
    assert result.stderr == "error: no broker responds\n"
    rates = [each["lags"][0]["arriving"] for each in looks if each["lags"]]
    assert rates[1] > 0
    assert rates[::2] == [None, None], "since it was created again"


def test_each_look_is_printed_with_its_time_and_the_groups_that_do_not_exist() -> None:
    lines = watch("billing", "--watch", "0.5").stdout.splitlines()
    missing = "there is no group 'billing' (yet)"
    assert lines.count(missing) == 2
    assert lines[1] == missing
    times = [line for line in lines if line.endswith("+00:00")]
    assert len(times) == 5
    assert times == sorted(times)
    header = lines[3].split()
    assert header == ["group", "topic", "partitions", "lag", "worst", "arriving/s", "committing/s"]


def test_without_watch_a_group_that_does_not_exist_is_an_error() -> None:
    result = CliRunner().invoke(app, ["groups", "lag", "billing"])
    assert result.exit_code == 1
    assert "there is no group 'billing'; asyncrevoke groups lists them" in result.stderr
