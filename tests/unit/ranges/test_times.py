"""Times that are given to commands."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

from asyncrevoke.cli.app import app
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.replays.ranges.times import TIME_FORMS, to_optional_time, to_time
from asyncrevoke.spark.source.option_values import to_place

NOW = datetime(2026, 11, 2, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("now", NOW),
        ("0s", NOW),
        ("90s", NOW - timedelta(seconds=90)),
        ("15m", NOW - timedelta(minutes=15)),
        ("2h", NOW - timedelta(hours=2)),
        ("1d", datetime(2026, 11, 1, 12, tzinfo=UTC)),
        ("2026-11-01T08:00+01:00", datetime(2026, 11, 1, 7, tzinfo=UTC)),
        ("2026-11-01", datetime(2026, 11, 1).astimezone()),
    ],
)
def test_a_time_is_now_or_written_or_a_duration_before_now(text: str, time: datetime) -> None:
    assert to_time("--since", text, NOW) == time
    assert to_time("--since", text, NOW).tzinfo is not None
    if text != "now":
        assert to_place("--from", text, NOW) == time


@pytest.mark.parametrize("text", ["soon", "-1h", "1.5h", "1w", "h", "1 h", "999999999d", "\u0661h"])
def test_the_error_of_a_wrong_time_lists_all_forms(text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        to_time("--since", text, NOW)
    assert str(raised.value) == f"--since {text}: write {TIME_FORMS}"


def test_an_option_that_is_not_given_has_no_time() -> None:
    assert to_optional_time("--since", None, NOW) is None


def test_an_option_of_spark_is_no_duration_since_it_is_parsed_again_later() -> None:
    with pytest.raises(ConfigError, match="start='1h': use \"earliest\""):
        to_place("start", "1h")


NOWHERE = ("--bootstrap-servers", "127.0.0.1:1")


@pytest.mark.parametrize(
    "command",
    [
        ("topics", "read", "orders", *NOWHERE, "--from"),
        ("topics", "read", "orders", *NOWHERE, "--until"),
        ("dead-letters", "list", "orders.dlq", *NOWHERE, "--since"),
        ("dead-letters", "list", "orders.dlq", *NOWHERE, "--until"),
        ("groups", "reset-offsets", "billing", *NOWHERE, "--to"),
    ],
)
def test_all_commands_take_the_same_times(command: tuple[str, ...]) -> None:
    wrong = CliRunner().invoke(app, [*command, "soon"])
    assert wrong.exit_code == 2
    assert f"soon: write {TIME_FORMS}" in wrong.stderr
