"""``asyncrevoke journal``: commands for the journals of consumers."""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from asyncrevoke.cli.options.connection_options import ConnectionOptions, connects
from asyncrevoke.cli.terminal import (
    FAILED,
    INCONCLUSIVE,
    USAGE,
    add_row,
    exit_on_errors,
    failed_with,
    print_line,
    table_console,
)
from asyncrevoke.client.printable import printable

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.journal.reading import JournalContent, SessionState


journal = typer.Typer(
    help="Check, show and collect the journals of `Consumer(..., journal=Journal(path))`.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

_Path = Annotated[Path, typer.Argument(metavar="PATH", help="The path of Journal(path).")]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON value.")]


@journal.command()
def seal(path: _Path, *, as_json: _Json = False) -> None:
    """Convert the logs of ended and killed sessions to Parquet.

    The incomplete end of a log after a crash is left out: no commit covers it. Sessions that a
    process is writing are skipped.

    Example: `asyncrevoke journal seal /var/lib/billing/journal`
    """
    with _requires_extra():
        from asyncrevoke.journal.segments import seal_session, sessions

    found: dict[str, list[str] | None] = {}
    if not path.is_dir():
        raise failed_with(f"there is no folder {path}", USAGE)
    for session in sessions(path):
        segments = seal_session(session)
        names = None if segments is None else [segment.path.name for segment in segments]
        found[session.folder.name] = names
    if as_json:
        print(json.dumps(found))
        return
    for name, sealed in found.items():
        what = "is being written" if sealed is None else ", ".join(sealed) or "was sealed before"
        print(printable(f"{name}: {what}"))
    if not found:
        raise failed_with(f"{path} has no journal", USAGE)


@journal.command()
def check(path: _Path, *, as_json: _Json = False) -> None:
    """Report for each session whether its log is complete.

    The exit code is 0 if all logs are complete, 1 if rows were lost or changed, 2 if there is no
    journal, and 3 if a session has no end: its last calls may be missing if its process was killed.

    Example: `asyncrevoke journal check /var/lib/billing/journal --json`
    """
    states = _read(path).sessions
    if as_json:
        print(json.dumps([state._asdict() | {"gap": state.gap} for state in states]))
    else:
        table = Table("session", "group", "rows", "segments", "from", "to", "state")
        for state in states:
            torn = f"; {state.torn}" if state.torn else ""
            ended = _end_of(state)
            add_row(
                table,
                state.name,
                str(state.facts.get("group")),
                f"{state.rows:,}",
                f"{state.segments} ({state.sealed} sealed)",
                _time(state.began_us),
                _time(state.last_us),
                (state.gap or ended) + torn,
            )
        table_console(240).print(table)
    if any(state.begun and (state.missing or state.damaged or not state.facts) for state in states):
        raise typer.Exit(FAILED)
    if any(state.gap for state in states):
        raise typer.Exit(INCONCLUSIVE)


@journal.command()
def show(
    path: _Path,
    *,
    kind: Annotated[
        str | None, typer.Option(help="Only rows of this kind: ATTEMPT, COMMIT, ASSIGN, LOST ...")
    ] = None,
    limit: Annotated[int, typer.Option(help="Show at most this many rows.")] = 50,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line.")
    ] = False,
) -> None:
    """Show the latest rows of all sessions, in the order of time.

    Example: `asyncrevoke journal show /var/lib/billing/journal --kind COMMIT --limit 10`
    """
    rows = _read(path).table
    if kind is not None:
        from asyncrevoke.journal.format.arrow import pc
        from asyncrevoke.journal.format.schema import RowKind

        if kind.upper() not in set(RowKind):
            raise failed_with(f"--kind {kind}: use one of {', '.join(RowKind)}", USAGE)
        rows = rows.filter(pc.equal(rows["kind"], kind.upper()))
    from asyncrevoke.journal.reading import by_time

    for row in by_time(rows, limit).to_pylist():
        fields = {name: value for name, value in row.items() if value is not None}
        if as_json:
            print(json.dumps(fields))
        else:
            print(printable(_line(fields)))


@journal.command()
@connects
def collect(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A new folder.")],
    *,
    topic: Annotated[str, typer.Option(help="The topic of KafkaSink.")],
    connection: ConnectionOptions,
    max_sessions: Annotated[
        int, typer.Option(min=1, help="Reject a topic with more sessions.")
    ] = 10_000,
    as_json: _Json = False,
) -> None:
    """Write a journal's folder from the topic that members on many machines have written to.

    Invalid records, and records that repeat rows, are not written; if there are any, the exit code
    is 1. The command also writes the committed offsets of the journals' groups, if these brokers
    have them. An audit uses them when the brokers no longer have them.

    Example: `asyncrevoke journal collect collected --topic billing-journal`
    """
    with _requires_extra():
        from asyncrevoke.journal.topic.collecting import collect as collect_topic

    with exit_on_errors():
        config = connection.config()
        found = asyncio.run(
            collect_topic(
                topic,
                path,
                config,
                max_sessions=max_sessions,
                committed_by=partial(_committed, config),
            )
        )
    if as_json:
        print(json.dumps(found._asdict()))
    else:
        print(f"{found.sessions} sessions, {found.rows:,} rows")
    if found.invalid:
        raise failed_with(f"{found.invalid} records of {topic} are invalid, or repeat rows", FAILED)


async def _committed(config: ConsumerConfig, group: str) -> Mapping[TopicPartition, int]:
    """The committed offsets of the group. Empty, after a line on stderr, if they cannot be read."""
    from asyncrevoke.client.groups.cluster import GroupsClient
    from asyncrevoke.client.groups.errors import GroupsError
    from asyncrevoke.client.groups.observer import offsets_of_any_group

    try:
        async with GroupsClient(config) as brokers:
            return await offsets_of_any_group(brokers, group)
    except GroupsError as error:
        line = f"committed offsets of group {group} not collected: {error}"
        print_line(Console(stderr=True), line)
        return {}


def _end_of(state: SessionState) -> str:
    if state.live:
        return "being written"
    if state.ended:
        return "complete"
    return "killed; strict" if state.begun else "killed before anything was handled"


def _line(row: dict[str, Any]) -> str:
    at, session, kind = _time(row.pop("at_us")), row.pop("session_id"), row.pop("kind")
    where = ""
    if "topic" in row:
        number = f"-{row.pop('partition')}" if "partition" in row else ""
        where = f"{row.pop('topic')}{number}"
        if "offset" in row:
            where += f" at {row.pop('offset')}"
    for name in ("seq", "group", "key_hash", "record_hash"):
        row.pop(name, None)
    started = row.pop("started_us", None)
    if started is not None:
        row["since"] = _time(started)
    more = " ".join(f"{name}={value}" for name, value in row.items())
    return f"{at} {session} {kind} {where} {more}".rstrip()


def _time(us: int | None) -> str:
    if us is None:
        return ""
    return datetime.fromtimestamp(us / 1e6, UTC).isoformat(timespec="milliseconds")


def _read(path: Path) -> JournalContent:
    with _requires_extra():
        from asyncrevoke.journal.reading import read_journal

    with exit_on_errors():
        return read_journal(path)


@contextmanager
def _requires_extra() -> Generator[None]:
    """Exit with the extra to install if an import in this block finds no package."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise failed_with(
            f"journals need {error.name}: pip install 'asyncrevoke[cli,journal]'", USAGE
        ) from error
