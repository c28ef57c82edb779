"""``asyncrevoke audit``: compares journals with the topic."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from asyncrevoke.cli.options.connection_options import ConnectionOptions, connects
from asyncrevoke.cli.options.option_groups import takes
from asyncrevoke.cli.terminal import (
    USAGE,
    add_row,
    exit_on_errors,
    failed_with,
    print_line,
    table_console,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.audit.audited_group import AuditSettings
    from asyncrevoke.audit.offsets import AuditedGroupOffsets
    from asyncrevoke.audit.results.audit_result import AuditResult
    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.journal.session_list import SessionList

_NEEDED = ("duckdb", "filelock", "jinja2", "numpy", "pyarrow", "xxhash")
_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingOptions:
    """How an audit reads."""

    sessions: Annotated[
        Path | None,
        typer.Option(
            help="A file that lists all sessions that the group has had: sessions.json of "
            "`asyncrevoke journal collect`, or an id in each line. Committed records that no "
            "journal names are then lost, and a missing journal fails the audit."
        ),
    ] = None
    patience: Annotated[
        float, typer.Option(help="Seconds without progress after which reading a topic fails.")
    ] = 30.0
    memory_limit: Annotated[
        int | None,
        typer.Option(
            min=256,
            help="MiB of memory for the journal's rows (at most half) and the comparison. The rest"
            " goes to a temporary folder. Default: most of the machine's memory.",
        ),
    ] = None

    @property
    def listed(self) -> SessionList | None:
        """The list of sessions. Raises ConfigError."""
        from asyncrevoke.journal.session_list import SessionList

        return None if self.sessions is None else SessionList.read(self.sessions)

    @property
    def limit(self) -> int | None:
        """The memory limit in bytes."""
        return None if self.memory_limit is None else self.memory_limit * 2**20


@connects
@takes("reading", ReadingOptions)
def audit(
    path: Annotated[Path, typer.Argument(metavar="JOURNAL", help="The folder of Journal().")],
    *,
    topic: Annotated[str, typer.Option(help="The topic to audit.")],
    group: Annotated[
        str | None, typer.Option(help="Required if several groups share the journal.")
    ] = None,
    results: Annotated[
        list[str] | None,
        typer.Option(
            help="A topic of results of consumers with exactly_once: compare its visible records, "
            "too. May be repeated."
        ),
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Compare every record, even if there are many.")
    ] = False,
    skew_ms: Annotated[
        float, typer.Option(help="The largest difference between the clocks of machines.")
    ] = 50.0,
    stall_seconds: Annotated[
        float, typer.Option(help="Report handovers for which records waited longer.")
    ] = 10.0,
    reading: ReadingOptions,
    connection: ConnectionOptions,
    out: Annotated[
        Path | None, typer.Option(help="A folder for report.html and report.json.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON value.")] = False,
) -> None:
    """Check whether records were lost, repeated or reordered, by comparing journals with the topic.

    The exit code is 0 for PASS, 1 for FAIL or if the topic cannot be read, 2 if an option is wrong,
    and 3 for INCONCLUSIVE (rows of the journal are or may be missing).

    Example: `asyncrevoke audit /var/lib/billing/journal --topic orders --out report`
    """
    if missing := missing_packages():
        raise failed_with(f"an audit needs {missing}: pip install 'asyncrevoke[audit,cli]'", USAGE)
    from asyncrevoke.audit.audited_group import AuditSettings

    settings = AuditSettings(skew_ms / 1000, stall_seconds, exact)
    with exit_on_errors():
        config = connection.config()
        patience, limit, topics = reading.patience, reading.limit, results or ()
        audited = asyncio.run(
            audit_topic(
                path, topic, config, group, settings, patience, limit, topics, reading.listed
            )
        )
    _print_result(audited, out, as_json=as_json)
    raise typer.Exit(audited.status.exit_code)


async def audit_topic(
    path: Path,
    topic: str,
    config: ConsumerConfig,
    group: str | None,
    settings: AuditSettings,
    patience: float,
    memory_limit: int | None = None,
    results: Sequence[str] = (),
    listed: SessionList | None = None,
) -> AuditResult:
    """Read and compare the journal, the topic and those of ``results``. ``memory_limit``: bytes for
    the journal's rows, at most half of it, and the comparison. ``listed``: all sessions of the
    group. Raises AsyncRevokeError."""
    from asyncrevoke.audit import local_engine
    from asyncrevoke.audit.audited_group import isolation_level_of
    from asyncrevoke.audit.topic.topic import Topic
    from asyncrevoke.journal.reading import read_journal

    rows_limit = None if memory_limit is None else memory_limit // 2
    content = read_journal(path, rows_limit)
    name, sessions = local_engine.group_and_sessions(content, topic, group)
    offsets = None if name is None else await _group_offsets(path, config, name, topic, listed)
    if offsets is not None and any(state.live for state in sessions):
        # Read again: live sessions write rows to disk before they commit, so the rows of each
        # commit read above exist now.
        content = read_journal(path, rows_limit)
    level = isolation_level_of(sessions, offsets)
    source = await Topic.of(topic, config, isolation_level=level, no_progress_timeout=patience)
    published = [
        await Topic.of(name, config, isolation_level="read_committed", no_progress_timeout=patience)
        for name in dict.fromkeys(results)
    ]
    auditing = local_engine.audit(
        content,
        source,
        topic,
        group=name,
        group_offsets=offsets,
        settings=settings,
        memory_limit=memory_limit,
        results=published,
        listed=listed,
    )
    # The audit copies the rows, and then needs the memory of these.
    del content
    return await auditing


async def _group_offsets(
    path: Path, config: ConsumerConfig, group: str, topic: str, listed: SessionList | None
) -> AuditedGroupOffsets | None:
    """The broker's committed offsets, or those of a collected journal's snapshot. None, after a
    line on stderr, if neither has any."""
    from asyncrevoke.audit.offsets import is_of, known_offsets, read_group_offsets
    from asyncrevoke.client.groups.errors import GroupsError
    from asyncrevoke.journal.topic.offsets_snapshot import read_snapshot

    snapshot = read_snapshot(path, group, topic)
    if is_of(snapshot, listed):
        return known_offsets(None, snapshot)
    try:
        return known_offsets(await read_group_offsets(config, group, topic), snapshot)
    except GroupsError as error:
        what = "committed offsets are not audited" if snapshot is None else "using the snapshot"
        print_line(Console(stderr=True), f"{what}: {error}")
        return known_offsets(None, snapshot)


def missing_packages() -> str:
    """The packages of the extra that are not installed, separated by commas."""
    return ", ".join(name for name in _NEEDED if find_spec(name) is None)


def _print_result(audited: AuditResult, out: Path | None, *, as_json: bool) -> None:
    from asyncrevoke.audit.results.report import for_machines, write_report

    if out is not None:
        write_report(audited, out)
    if as_json:
        print(json.dumps(for_machines(audited), default=str))
        return
    console = table_console(160)
    print_audit(audited, console)
    if out is not None:
        print_line(console, f"see {out / 'report.html'}")


def print_audit(audited: AuditResult, console: Console) -> None:
    """Print the status, and a line for each kind of anomaly."""
    from asyncrevoke.audit.anomalies import DESCRIPTIONS
    from asyncrevoke.audit.results.report import counts, coverage_lines

    print_line(
        console,
        f"{audited.status}: {audited.topic}, group {audited.group}: "
        f"{audited.attempts:,} attempts, "
        f"{audited.done:,} records done, {audited.read:,} read back",
    )
    for line in coverage_lines(audited):
        print_line(console, line)
    if not audited.anomalies:
        return
    table = Table("", "what", "records", "first", "meaning")
    for kind, count in counts(audited.anomalies).items():
        first = next(a for a in audited.anomalies if a.kind is kind)
        where = "" if first.partition is None else f"{first.partition}: {first.offset_lo}"
        meaning = DESCRIPTIONS[kind]
        add_row(table, meaning.severity, kind, f"{count:,}", where, meaning.text)
    console.print(table)
