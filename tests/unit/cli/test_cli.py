from __future__ import annotations

import importlib.util
import io
import sys
from importlib.metadata import version
from typing import Any, cast

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from asyncrevoke.cli import main
from asyncrevoke.cli.app import COMMANDS, app
from asyncrevoke.cli.broker.command import topic_argument
from asyncrevoke.cli.terminal import print_line


@pytest.mark.parametrize("module", ["typer", "rich"])
def test_without_the_extra_the_error_names_it_and_the_exit_code_is_two(
    module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find_spec = importlib.util.find_spec

    def without(name: str, package: str | None = None) -> object:
        return None if name == module else find_spec(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert "pip install 'asyncrevoke[cli]'" in capsys.readouterr().err


def test_importing_the_entry_point_loads_neither_typer_nor_the_consumer() -> None:
    import subprocess

    script = (
        "import sys, asyncrevoke.cli; "
        "print([name for name in ('typer', 'rich', 'asyncrevoke.consumer') if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "command",
    [
        *("broker --", "demo --", "run app:consumer --", "groups billing --", "init billing"),
        *("dashboard --group", "replay app:consumer --", "handover /data/checkpoint --"),
        "audit /var/lib/billing/journal --topic",
    ],
)
def test_help_has_an_example(command: str) -> None:
    result = CliRunner().invoke(app, [command.split(maxsplit=1)[0], "--help"])
    assert result.exit_code == 0
    assert f"Example: asyncrevoke {command}" in result.output.replace("`", "")


@pytest.mark.parametrize("command", [[], ["run"], ["journal", "check"]])
def test_h_is_help(command: list[str]) -> None:
    brief, long = (CliRunner().invoke(app, [*command, option]) for option in ("-h", "--help"))
    assert brief.exit_code == 0
    assert brief.output == long.output


def test_version_is_that_of_the_package() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"asyncrevoke {version('asyncrevoke')}\n")


@pytest.mark.parametrize(
    ("text", "topic"), [("orders", ("orders", None)), ("orders:12", ("orders", 12))]
)
def test_topic_has_a_name_and_partitions(text: str, topic: tuple[str, int | None]) -> None:
    assert topic_argument(text) == topic


@pytest.mark.parametrize("text", ["orders:", "orders:x", "orders:0", ":3", "orders:-1"])
def test_topic_that_is_none_is_a_usage_error(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="use NAME:PARTITIONS"):
        topic_argument(text)
    assert CliRunner().invoke(app, ["broker", "--topic", text]).exit_code == 2


def test_a_line_is_wrapped_in_a_terminal_and_not_in_a_file() -> None:
    for terminal, lines in (False, 1), (True, 2):
        file = io.StringIO()
        console = Console(file=file, width=80, force_terminal=terminal)
        print_line(console, "a word " * 20)
        assert len(file.getvalue().splitlines()) == lines


def test_the_list_of_commands_says_of_each_what_its_own_help_says_first() -> None:
    group = cast("Any", typer.main.get_command(app))
    context = typer.Context(group)
    listed = {name: each.help for name, each in COMMANDS.items()}
    assert listed == {
        name: command.get_short_help_str(1000).replace("`", "")
        for name, command in group.commands.items()
    }
    assert list(listed) == group.list_commands(context)


@pytest.mark.parametrize("command", ["broker", "groups show", "audit", "journal show"])
def test_the_help_shows_no_value_after_a_flag(command: str) -> None:
    lines = CliRunner().invoke(app, [*command.split(), "--help"]).output.splitlines()
    (shown,) = (line for line in lines if "--json" in line)
    assert "<bool>" not in shown
    assert [line for line in lines if "<bool>" in line] == []
