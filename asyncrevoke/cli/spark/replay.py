"""``asyncrevoke replay``: runs handlers on records of the past, on Spark."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress, TextColumn

from asyncrevoke.cli.options.connection_options import Servers
from asyncrevoke.cli.options.option_groups import ErrorsName, TargetArgument, as_flags, takes
from asyncrevoke.cli.terminal import FAILED, USAGE, failed_with, print_line
from asyncrevoke.client.config.inherit import INHERIT
from asyncrevoke.client.errors import AsyncRevokeError, ConfigError
from asyncrevoke.client.printable import counted, printable
from asyncrevoke.replays.target import TargetError, find_consumer

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.replays.opened_handlers import ReplayOrder
    from asyncrevoke.spark.reading.offsets import OffsetRange
    from asyncrevoke.spark.reading.places import Place
    from asyncrevoke.spark.replays.progress import ReplayProgress
    from asyncrevoke.spark.replays.report import ReplayReport


class EngineName(StrEnum):
    """What reads the records."""

    DIRECT = "direct"
    SOURCE = "source"
    JVM = "jvm"


class OrderName(StrEnum):
    """Which records are handled in order."""

    KEY = "key"
    PARTITION = "partition"
    NONE = "none"


class MissingName(StrEnum):
    """What to do if records at the start were deleted."""

    ERROR = "error"
    CLIP = "clip"


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeOptions:
    """The options that select the records to replay."""

    topic: Annotated[str, typer.Option(help="The topic to read.")]
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            "--since",
            help="A time, how long ago (1h), an offset, earliest, or offsets as JSON.",
        ),
    ] = None
    from_group: Annotated[
        str | None, typer.Option(help="Begin at the offsets that this consumer group committed.")
    ] = None
    end: Annotated[
        str,
        typer.Option(
            "--to",
            "--until",
            help="now, a time, how long ago (1h), an offset, or offsets as JSON.",
        ),
    ] = "now"
    missing: Annotated[
        MissingName, typer.Option(help="If the start was deleted: fail, or read the rest.")
    ] = MissingName.ERROR
    bootstrap_servers: Servers = None

    def plan(self, config: ConsumerConfig, messages: Console) -> list[OffsetRange]:
        """The ranges of offsets. Raises ConfigError, and the errors of the brokers."""
        if self.start is not None and self.from_group is not None:
            raise ConfigError("--from and --from-group both set the start: leave one out")
        begin = f"group:{self.from_group}" if self.from_group is not None else self.start
        from asyncrevoke.spark.reading.offsets import resolve_ranges
        from asyncrevoke.spark.session import check_spark
        from asyncrevoke.spark.source.option_values import to_place

        check_spark()
        now = datetime.now(UTC)
        start = to_place("--from", begin or "earliest", now)
        end = to_place("--to", self.end, now)
        _say_time(messages, "from", start)
        _say_time(messages, "to", end)
        return resolve_ranges(
            config if self.bootstrap_servers is None else self.bootstrap_servers,
            self.topic,
            start=start,
            end=end,
            missing=self.missing.value,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options that configure the replay."""

    out: Annotated[str, typer.Option(help="The folder for rows and the report.")]
    run_id: Annotated[str | None, typer.Option(help="The run to resume, or to create.")] = None
    engine: Annotated[EngineName, typer.Option(help="What reads the records.")] = EngineName.DIRECT
    errors: Annotated[
        ErrorsName,
        typer.Option(
            help="Failed records: a row with the error, the handlers' policy, or the replay fails."
        ),
    ] = ErrorsName.RECORD
    max_errors: Annotated[int | None, typer.Option(help="Stop if more records have failed.")] = None
    dead_letters: Annotated[
        bool,
        typer.Option(
            "--dead-letters", help="The topic has dead letters: replay their original records."
        ),
    ] = False
    concurrency: Annotated[
        int | None, typer.Option(help="Concurrent handlers per task. Default: the consumer's.")
    ] = None
    order_by: Annotated[
        OrderName | None, typer.Option(help="What is handled in order. Default: the consumer's.")
    ] = None
    master: Annotated[
        str | None,
        typer.Option(help="Spark's master: local[4], spark://..., k8s://..., or sc://host."),
    ] = None
    py_files: Annotated[
        list[str] | None, typer.Option(help="Files and archives that workers need.")
    ] = None

    def run(
        self, target: str, ranges: list[OffsetRange], servers: str | None, messages: Console
    ) -> ReplayReport:
        """Replay these ranges. ``servers`` replaces the consumer's bootstrap servers. Raises the
        errors of :func:`asyncrevoke.spark.replay`."""
        from asyncrevoke.dead_letters.dead_letter_filter import DeadLetterFilter
        from asyncrevoke.spark.replays.run import new_run_id, replay
        from asyncrevoke.spark.session import is_connected, open_session

        name = self.run_id or new_run_id()
        size = sum(offset_range.size for offset_range in ranges)
        print_line(
            messages,
            f"run {name}: {counted(size, 'offset')} of {counted(len(ranges), 'partition')}",
        )
        spark = open_session(self.master)
        try:
            if not is_connected(spark):
                spark.sparkContext.setLogLevel("ERROR")
            with _shown(messages) as on_progress:
                return replay(
                    spark,
                    target,
                    ranges,
                    sink=self.out if "://" in self.out else str(Path(self.out).absolute()),
                    run_id=name,
                    concurrency=self.concurrency,
                    order_by=self._order(),
                    errors=self.errors.value,
                    max_errors=self.max_errors,
                    dead_letters=DeadLetterFilter() if self.dead_letters else None,
                    engine=self.engine.value,
                    bootstrap_servers=servers,
                    py_files=self.py_files or [],
                    on_progress=on_progress,
                )
        except KeyboardInterrupt:
            print_line(messages, f"interrupted; resume it with --run-id {name}")
            raise typer.Exit(FAILED) from None
        finally:
            spark.stop()

    def _order(self) -> ReplayOrder:
        if self.order_by is OrderName.KEY:
            return "key"
        if self.order_by is OrderName.PARTITION:
            return "partition"
        return INHERIT if self.order_by is None else None


@takes("running", RunOptions)
@takes("reading", RangeOptions)
def replay(
    target: TargetArgument,
    *,
    reading: RangeOptions,
    running: RunOptions,
    report: Annotated[
        Path | None, typer.Option(help="The path of the report. Default: in --out.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run a consumer's handlers again on a part of a topic, on a Spark cluster.

    Without --master it runs on this machine, or on the master of spark-submit. Times without an
    offset from UTC are in this machine's time zone. Nothing is committed. The exit code is 0 if all
    records were handled, 1 if the replay or a record has failed, 2 if an option is wrong.

    Example: `asyncrevoke replay app:consumer --topic orders --from 2026-11-01T00:00 --out replayed`
    """
    messages = Console(stderr=True)
    logging.basicConfig(level=logging.WARNING)
    try:
        ranges = reading.plan(find_consumer(target).config, messages)
    except (ConfigError, TargetError) as error:
        raise failed_with(error, USAGE, messages) from error
    except AsyncRevokeError as error:
        raise failed_with(as_flags(error), FAILED, messages) from error
    try:
        result = running.run(target, ranges, reading.bootstrap_servers, messages)
    except AsyncRevokeError as error:
        raise failed_with(as_flags(error), FAILED, messages) from error
    _print_report(result, running.out, report, as_json=as_json)
    if result.failed:
        raise typer.Exit(FAILED)


@contextlib.contextmanager
def _shown(console: Console) -> Generator[Callable[[ReplayProgress], None]]:
    columns = [TextColumn("{task.description}")]
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=None)

        def show(now: ReplayProgress) -> None:
            left = now.seconds_left
            progress.update(
                task,
                description=(
                    f"{now.records} of {now.total}, {now.rate:,.0f}/s, {now.errors} errors, "
                    + ("time left unknown" if left is None else f"{left:,.0f} s left")
                ),
            )

        yield show


def _print_report(result: ReplayReport, out: str, report: Path | None, *, as_json: bool) -> None:
    from asyncrevoke.spark.replays.report_page import report_page
    from asyncrevoke.web.pages.report_file import write_report_file

    if report is None and "://" not in out:
        report = Path(out) / f"report-{result.run_id}.html"
    if report is not None:
        report.parent.mkdir(parents=True, exist_ok=True)
        write_report_file(report, report_page(result))
    if as_json:
        print(as_json_text(result, report))
        return
    outcomes = ", ".join(f"{count} {name}" for name, count in sorted(result.outcomes.items()))
    print(
        printable(
            f"run {result.run_id}: {result.records} records in {result.seconds:.1f} s: {outcomes}"
        )
    )
    for name, count in sorted(result.errors.items(), key=lambda error: -error[1]):
        print(printable(f"  {name}: {count}"))
    for percent, seconds in result.latency.items():
        print(f"  {percent:.0%} of calls within {seconds * 1000:.1f} ms")
    print(printable(f"rows: {result.results}"))
    if report is not None:
        print(printable(f"report: {report}"))


def as_json_text(result: ReplayReport, report: Path | None) -> str:
    """The report of a run as one line of JSON."""
    facts = {
        "run_id": result.run_id,
        "results": result.results,
        "report": None if report is None else str(report),
        "ranges": [offset_range._asdict() for offset_range in result.ranges],
        "records": result.records,
        "outcomes": dict(result.outcomes),
        "errors": dict(result.errors),
        "latency": {str(percent): seconds for percent, seconds in result.latency.items()},
        "seconds": result.seconds,
        "resumed": result.resumed,
    }
    return json.dumps(facts)


def _say_time(console: Console, name: str, place: Place) -> None:
    if isinstance(place, datetime):
        console.print(f"{name} {place.isoformat()}", highlight=False)
