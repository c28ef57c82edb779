"""Messages of commands name their flags, where the library names its options."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from asyncrevoke import Consumer
from asyncrevoke.cli.app import app
from asyncrevoke.cli.options.option_groups import as_flags
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.dead_letters import dead_letter_topic
from asyncrevoke.dead_letters.dead_letter_topic import DeadLetterTopic
from asyncrevoke.dead_letters.reprocessing import topics_without_results

if TYPE_CHECKING:
    from pathlib import Path

APP = """
from asyncrevoke import Consumer

consumer = Consumer(group_id="billing")


@consumer.handler("orders", publish_to="receipts")
async def bill(value: bytes) -> bytes:
    return value
"""


def test_a_wrong_option_is_named_as_it_was_typed() -> None:
    result = CliRunner().invoke(app, ["dead-letters", "replay", "orders.dlq", "--limit", "0"])
    assert result.exit_code == 2
    assert "--limit 0: at least 1" in result.output
    assert "limit=" not in result.output


@pytest.mark.parametrize("flags", [(), ("--no-idempotence",)])
def test_a_replay_writes_with_idempotence_unless_a_flag_says_otherwise(
    flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[object] = []

    class Opened(DeadLetterTopic):
        def __init__(self, topic: str, *, idempotent: bool = True, **_options: object) -> None:
            opened.append(idempotent)
            raise ConfigError(f"{topic} is not opened here")

    monkeypatch.setattr(dead_letter_topic, "DeadLetterTopic", Opened)
    CliRunner().invoke(app, ["dead-letters", "replay", "orders.dlq", *flags])
    assert opened == [not flags]


def test_options_of_the_library_are_shownas_flags() -> None:
    assert as_flags("it failed again (max_attempts=3)") == "it failed again (--max-attempts 3)"
    assert as_flags("(resend_in_doubt=True sends it again)") == "(--resend-in-doubt sends it again)"
    assert as_flags("start=4 is after end=2") == "--from 4 is after --to 2"
    assert as_flags("name another file: journal=PATH") == "name another file: --journal PATH"


@pytest.mark.parametrize("command", [["groups"], ["dead-letters", "list", "orders.dlq"]])
@pytest.mark.timeout(30)
def test_an_unreachable_cluster_names_flags_of_the_command(command: list[str]) -> None:
    result = CliRunner().invoke(app, [*command, "--bootstrap-servers", "localhost:1"])
    assert result.exit_code == 1
    assert "check --bootstrap-servers ..., --security-protocol ..." in result.output


@pytest.mark.parametrize("publish_to", [None, "receipts"])
def test_topics_are_named_to_which_reprocessing_writes_no_results(publish_to: str | None) -> None:
    consumer = Consumer(group_id="billing")

    @consumer.handler("orders", publish_to=publish_to)
    async def bill(value: bytes) -> bytes:
        return value

    assert topics_without_results(consumer) == ([publish_to] if publish_to else [])


@pytest.mark.timeout(30)
def test_no_handler_is_called_whose_results_would_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "app_with_results.py").write_text(APP)
    monkeypatch.syspath_prepend(tmp_path)
    command = ["dead-letters", "reprocess", "orders.dlq", "app_with_results:consumer"]
    command += ["--bootstrap-servers", "localhost:1"]
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 2
    assert refused.stderr == (
        "error: results for receipts would not be written: write the dead letters back with "
        "replay, or add --drop-results\n"
    )
    connects = CliRunner().invoke(app, [*command, "--drop-results"])
    assert connects.exit_code == 1
    assert "no broker responds at localhost:1" in connects.stderr
