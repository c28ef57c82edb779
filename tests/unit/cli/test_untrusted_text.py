"""Names and messages of brokers, members and journals command neither terminals, logs nor pages."""

from __future__ import annotations

import io
import json
import logging
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.consumer_group_heartbeat.v0.response import ConsumerGroupHeartbeatResponse
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32, i32Timedelta
from rich.console import Console
from rich.table import Table
from typer.testing import CliRunner

from asyncrevoke import ConfigError, TopicPartition
from asyncrevoke.broker.errors import BrokerStartError
from asyncrevoke.cli.app import app
from asyncrevoke.cli.groups import command
from asyncrevoke.cli.groups.tables import show_group, show_groups, show_share_group
from asyncrevoke.cli.run.log_output import LogFormat, LogLevel, LogOutput
from asyncrevoke.cli.terminal import add_row, print_error, print_line
from asyncrevoke.client.core.io.effects import FailureKind
from asyncrevoke.client.errors import (
    AsyncRevokeError,
    CorruptRecordError,
    RequestTimeoutError,
    TopicAuthorizationError,
)
from asyncrevoke.client.groups.errors import GroupsError
from asyncrevoke.client.groups.facts import (
    GroupFacts,
    GroupSummary,
    MemberFacts,
    PartitionFacts,
    RebalanceFacts,
    ShareGroupFacts,
    SharePartitionFacts,
)
from asyncrevoke.client.printable import printable, printable_json, printable_lines
from asyncrevoke.client.protocol.dialects import group
from asyncrevoke.client.runtime.hooks.event_log import EventLog
from asyncrevoke.client.runtime.net.fatal_errors import RequestFailed
from asyncrevoke.web.dashboard.history import History, Pending, Place, Sample
from asyncrevoke.web.dashboard.page import parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Markup of rich, a line of one's own, a colour, a C1 escape, a mark of direction, and HTML.
HOSTILE = '[/x] [bold]a\nERROR forged\r\x1b[2J\x1b]0;title\x07\x9b31m\u202egnol\u2066\ud800<b>&"'
FORBIDDEN = ("\n", "\r", "\x1b", "\x07", "\x9b", "\u202e", "\u2066", "\ud800")


def assert_harmless(text: str) -> None:
    assert [char for char in FORBIDDEN if char in text] == []
    assert text.isprintable(), ascii(text)


def test_what_is_not_printable_is_escaped_and_what_is_too_long_is_cut() -> None:
    assert printable("Zahlungen für Köln, 東京 🙂") == "Zahlungen für Köln, 東京 🙂"
    assert printable("a\nb\tc\x1b[31m") == "a\\nb\\tc\\x1b[31m"
    assert printable("\u202e\u2028\ud800\x9b") == "\\u202e\\u2028\\ud800\\x9b"
    assert printable("x" * 2000, 10) == "xxxxxxxxxx… (2000 characters)"
    assert printable_lines("a\n\tb\x1b") == "a\n\tb\\x1b"
    assert_harmless(printable(HOSTILE))
    value = {"name": HOSTILE.replace("\ud800", "\U0001f1e6\x7f")}
    encoded = printable_json(json.dumps(value, ensure_ascii=False))
    assert encoded.isprintable()
    assert json.loads(encoded) == value


@given(st.text(st.characters()))
def test_any_text_becomes_one_line_of_printable_characters(text: str) -> None:
    assert printable(text).isprintable()
    assert all(char.isprintable() or char in "\n\t" for char in printable_lines(text))
    encoded = printable_json(json.dumps(text, ensure_ascii=False))
    assert encoded.isprintable()
    assert json.loads(encoded) == text


@pytest.mark.parametrize(
    "error",
    [
        AsyncRevokeError(HOSTILE),
        ConfigError(HOSTILE),
        GroupsError(f"the broker responds {HOSTILE}"),
        RequestTimeoutError(HOSTILE),
        TopicAuthorizationError([TopicPartition(HOSTILE, 0)]),
        CorruptRecordError(TopicPartition(HOSTILE, 0), 3, HOSTILE),
        RequestFailed(FailureKind.AUTHENTICATION, HOSTILE),
    ],
    ids=lambda error: type(error).__name__,
)
def test_the_message_of_an_error_is_one_printable_line(error: Exception) -> None:
    assert_harmless(str(error))
    assert isinstance(error, RequestFailed) or "forged" in repr(error)


def test_the_last_lines_of_a_broker_keep_their_line_breaks_alone() -> None:
    error = BrokerStartError("no broker", "first\nsecond \x1b[2J")
    assert str(error) == "no broker\nfirst\nsecond \\x1b[2J"
    assert error.log_tail == "first\nsecond \x1b[2J"


def test_what_a_coordinator_adds_to_an_error_is_printable_and_short() -> None:
    response = ConsumerGroupHeartbeatResponse(
        throttle_time=i32Timedelta.parse(timedelta(0)),
        error_code=ErrorCode.unsupported_assignor,
        error_message=HOSTILE.replace("\ud800", "") + "x" * 30_000,
        member_id=None,
        member_epoch=i32(0),
        heartbeat_interval=i32Timedelta.parse(timedelta(0)),
        assignment=None,
    )
    detail = group._consumer_group_heartbeat(response).detail
    assert_harmless(detail)
    assert len(detail) < 2000


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def test_a_log_line_of_ours_is_one_line() -> None:
    heard = Lines()
    logger = logging.getLogger("asyncrevoke")
    logger.addHandler(heard)
    try:
        EventLog().write(
            "warning",
            "partitions lost",
            {
                "partitions": [TopicPartition(HOSTILE, 0), HOSTILE],
                "reason": HOSTILE,
                "facts": {HOSTILE: HOSTILE},
                "escape": "\x1b[31m",
            },
        )
    finally:
        logger.removeHandler(heard)
    (line,) = heard.lines
    assert_harmless(line)
    assert "escape=\\x1b[31m" in line


@pytest.fixture
def level_of_root_logger() -> Iterator[None]:
    """What a command sets lasts until the end of the test."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)


@pytest.mark.usefixtures("level_of_root_logger")
@pytest.mark.parametrize("name", ["aiokafka.of_test", "asyncrevoke.of_test", "application"])
def test_a_command_logs_no_escape_sequence_of_others(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    try:
        LogOutput(LogLevel.INFO, LogFormat.CONSOLE).install()
        text = HOSTILE.replace("\ud800", "")
        try:
            raise ValueError(text)
        except ValueError:
            logging.getLogger(name).exception("rejected: %s", text)
    finally:
        structlog.reset_defaults()
        logging.captureWarnings(capture=False)
    told = capsys.readouterr().err
    assert printable_lines(told) == told
    lines = told.splitlines()
    assert ("\\n" in lines[0]) == (name != "application")


@pytest.mark.usefixtures("level_of_root_logger")
def test_a_line_of_json_has_the_same_text_in_printable_characters(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    text = HOSTILE.replace("\ud800", "") + "Köln"
    try:
        LogOutput(LogLevel.INFO, LogFormat.JSON).install()
        logging.getLogger("application").warning("%s", text)
    finally:
        structlog.reset_defaults()
        logging.captureWarnings(capture=False)
    (line,) = capsys.readouterr().err.splitlines()
    assert_harmless(line)
    assert "Köln" in line
    assert json.loads(line)["event"] == text


def console() -> Console:
    return Console(file=io.StringIO(), width=400, force_terminal=False)


def shown(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def hostile_group() -> GroupFacts:
    member = MemberFacts(
        member_id=HOSTILE,
        client_id="[/x]",
        host=HOSTILE,
        topics=(HOSTILE,),
        assigned=(TopicPartition(HOSTILE, 0),),
        releasing=(TopicPartition("[red]", 1),),
        unreadable=HOSTILE,
    )
    return GroupFacts(
        group=HOSTILE,
        type="classic",
        state="[bold]Stable",
        assignor=HOSTILE,
        coordinator=HOSTILE,
        epoch=None,
        rebalance=RebalanceFacts(in_progress=False, known=True, held_up_by=(), says=HOSTILE),
        members=(member,),
        partitions=(PartitionFacts(topic=HOSTILE, partition=0, member_id=HOSTILE),),
    )


def hostile_share_group() -> ShareGroupFacts:
    return ShareGroupFacts(
        group=HOSTILE,
        type="share",
        state="[bold]Stable",
        assignor=HOSTILE,
        coordinator=HOSTILE,
        epoch=7,
        members=hostile_group().members,
        partitions=(
            SharePartitionFacts(
                topic=HOSTILE, partition=0, start=9, lag=0, skipped=5, member_ids=(HOSTILE,)
            ),
        ),
    )


def test_groups_shows_a_client_id_that_looks_like_markup_as_it_is() -> None:
    terminal = console()
    show_group(terminal, hostile_group())
    show_share_group(terminal, hostile_share_group())
    show_groups(terminal, [GroupSummary(group=HOSTILE, type="[/x]", state="[red]x")])
    lines = shown(terminal)
    for line in lines:
        assert_harmless(line)
    assert sum("[/x]" in line for line in lines) >= 7
    assert any("[red]x" in line for line in lines)


def test_groups_prints_json_that_a_terminal_can_show(monkeypatch: pytest.MonkeyPatch) -> None:
    async def respond(*_: object) -> Sequence[GroupSummary]:
        return [GroupSummary(group=HOSTILE.replace("\ud800", ""))]

    monkeypatch.setattr(command, "_ask", respond)
    result = CliRunner().invoke(app, ["groups", "--json"])
    assert_harmless(result.output.rstrip("\n"))
    assert json.loads(result.output)[0]["group"] == HOSTILE.replace("\ud800", "")


def test_cells_lines_and_errors_of_commands_are_plain_text() -> None:
    terminal = console()
    table = Table("one", "two")
    add_row(table, HOSTILE, "[/x]")
    terminal.print(table)
    print_line(terminal, HOSTILE)
    for line in shown(terminal):
        assert_harmless(line)
    errors = console()
    print_error(ConfigError(HOSTILE), errors)
    (line,) = shown(errors)
    assert line.startswith("error: [/x] [bold]a\\nERROR forged\\r\\x1b[2J")


def test_the_dashboard_shows_untrusted_names_in_printable_text() -> None:
    history = History(HOSTILE, clock=lambda: 1000.0)
    evil = TopicPartition(HOSTILE, 0)
    owner = history.join(HOSTILE)
    history.hold(evil, owner, "draining")
    history.pending[owner] = (Pending(evil, owner, "draining", 990.0, HOSTILE),)
    history.places[owner] = (Place(evil, owner, 1, 2, 3, 4),)
    history.sample(owner, Sample(1000.0, state=HOSTILE))
    history.note(owner, HOSTILE)
    history.note(owner, "x" * 100_000)
    for html in parts(history, 0).values():
        assert_harmless(html)
        assert "<b>&" not in html
        assert len(html) < 20_000


@pytest.mark.usefixtures("level_of_root_logger")
@pytest.mark.parametrize("log_format", list(LogFormat))
def test_a_command_logs_at_most_64_kib_of_a_traceback(
    log_format: LogFormat, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    try:
        LogOutput(LogLevel.INFO, log_format).install()
        logging.getLogger("application").error("failed", exc_info=ValueError("x" * 5_000_000))
    finally:
        structlog.reset_defaults()
        logging.captureWarnings(capture=False)
    told = capsys.readouterr().err
    assert "ValueError: xxx" in told
    assert len(told) < 70_000
