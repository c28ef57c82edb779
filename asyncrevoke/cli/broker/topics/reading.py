"""``asyncrevoke topics read``: shows the records of a topic."""

from __future__ import annotations

import asyncio
import base64
import sys
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console

from asyncrevoke.cli.options.connection_options import ConnectionOptions, connects
from asyncrevoke.cli.options.option_groups import takes
from asyncrevoke.cli.terminal import exit_on_errors, print_line, print_value
from asyncrevoke.client.errors import ConfigError, PartitionLostError, RequestTimeoutError
from asyncrevoke.client.printable import counted, printable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.model import Record, TopicPartition

# Records of one step.
_STEP: Final = 500
# Without --max-records and --follow.
_SHOWN: Final = 100
# Characters of a key, a value or a header in a line of text.
_LONGEST: Final = 10_000
_NO_PROGRESS: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingOptions:
    """The options that select the records to show."""

    start: Annotated[
        str,
        typer.Option(
            "--from",
            "--since",
            help="A time, how long ago (1h), an offset, earliest, latest, or offsets as JSON.",
        ),
    ] = "earliest"
    end: Annotated[
        str | None,
        typer.Option(
            "--to",
            "--until",
            help="now, a time, how long ago (1h), an offset, or offsets as JSON.",
        ),
    ] = None
    partition: Annotated[
        list[int] | None, typer.Option(min=0, help="Only this partition; may be repeated.")
    ] = None
    max_records: Annotated[
        int | None, typer.Option(min=1, help="Stop after so many. Default: 100; --follow: none.")
    ] = None
    follow: Annotated[
        bool, typer.Option("--follow", help="Wait for further records, until Ctrl-C.")
    ] = False
    read_uncommitted: Annotated[
        bool,
        typer.Option(
            "--read-uncommitted", help="Show records of open and of aborted transactions, too."
        ),
    ] = False

    async def ranges(self, config: ConsumerConfig, topic: str) -> dict[TopicPartition, range]:
        """The offsets to read; with --follow without an end. Raises ConfigError, and the errors of
        the brokers."""
        from asyncrevoke.spark.reading.offsets import find_ranges
        from asyncrevoke.spark.reading.places import LARGEST
        from asyncrevoke.spark.reading.topic_selection import TopicSelection
        from asyncrevoke.spark.source.option_values import to_place

        if self.follow and self.end is not None:
            raise ConfigError("--follow reads without an end: leave --to out")
        now = datetime.now(UTC)
        start, end = to_place("--from", self.start, now), to_place("--to", self.end or "now", now)
        partitions = {topic: tuple(sorted(set(self.partition)))} if self.partition else None
        selection = TopicSelection((topic,), partitions=partitions)
        found = await find_ranges(config, selection, start, end, missing="clip")
        return {
            each.topic_partition: range(each.start, LARGEST if self.follow else each.end)
            for each in found
        }

    @property
    def limit(self) -> int | None:
        """How many records are shown at most."""
        return _SHOWN if self.max_records is None and not self.follow else self.max_records


@connects
@takes("reading", ReadingOptions)
def read(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    *,
    reading: ReadingOptions,
    connection: ConnectionOptions,
    timeout: Annotated[float, typer.Option(help="Seconds for each response.")] = 10.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for each record.")
    ] = False,
) -> None:
    """Show the records of a topic, without a group: nothing is committed.

    Each record is a line with partition, offset, time, key and value, followed by its headers.
    Records of a partition are shown in their order. Bytes that are not UTF-8 are shown as base64,
    and long values are cut; --json prints them whole. Times without an offset from UTC are in this
    machine's time zone. The exit code is 0 if the records were shown, also after Ctrl-C with
    --follow, 1 if the topic cannot be read, 2 if an option is wrong.

    Example: `asyncrevoke topics read orders --from 2026-11-01T08:00 --max-records 20`
    """
    with exit_on_errors():
        config = connection.config(
            request_timeout=timeout,
            client_id="asyncrevoke-topics",
            isolation_level="read_uncommitted" if reading.read_uncommitted else "read_committed",
        )
        stopped = asyncio.run(_show(config, topic, reading, as_json=as_json))
    if stopped:
        more = f"stopped after {counted(reading.limit or 0, 'record')}: --max-records shows more"
        print_line(Console(stderr=True), more)


async def _show(
    config: ConsumerConfig, topic: str, reading: ReadingOptions, *, as_json: bool
) -> bool:
    """Print the records. Returns whether there are more than may be shown."""
    ranges = await reading.ranges(config, topic)
    limit, shown = reading.limit, 0
    # Ctrl-C cancels the task: that is how following ends.
    with suppress(*((asyncio.CancelledError,) if reading.follow else ())):
        async with aclosing(_records(config, ranges, follow=reading.follow)) as steps:
            async for records in steps:
                for record in records:
                    if shown == limit:
                        return True
                    (_print_json if as_json else _print)(record)
                    shown += 1
                sys.stdout.flush()
                if reading.follow and shown == limit:
                    break
    return False


async def _records(
    config: ConsumerConfig, ranges: dict[TopicPartition, range], *, follow: bool
) -> AsyncGenerator[list[Record]]:
    from asyncrevoke.replays.ranges.range_consumer import consumer_of
    from asyncrevoke.replays.ranges.reader import Reader

    async with consumer_of(config) as consumer:
        reader = Reader(consumer, ranges, _NO_PROGRESS)
        reader.begin()
        while reader.left:
            step = await reader.next(_STEP)
            if step is None:
                if follow:
                    continue
                raise RequestTimeoutError(reader.no_progress())
            if step.lost:
                raise PartitionLostError(step.lost)
            yield [
                record
                for record in step.records
                if record.offset < ranges[record.topic_partition].stop
            ]


def _print(record: Record) -> None:
    place = f"{record.partition}:{record.offset} {_time(record.timestamp)}"
    print(f"{place} {_text(record.key)} {_text(record.value)}")
    for name, value in record.headers:
        print(f"  {printable(name, _LONGEST)}: {_text(value)}")


def _text(content: bytes | None) -> str:
    shown = _shown(content)
    if isinstance(shown, dict):
        return printable(f"base64:{shown['base64']}", _LONGEST)
    return "null" if shown is None else printable(shown, _LONGEST)


def _print_json(record: Record) -> None:
    facts = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _shown(record.key),
        "value": _shown(record.value),
        "headers": [[name, _shown(value)] for name, value in record.headers],
    }
    print_value(facts)


def _shown(content: bytes | None) -> str | dict[str, str] | None:
    """Text, or the base64 of what is not UTF-8."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def _time(milliseconds: int) -> str:
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
        return moment.isoformat(timespec="milliseconds") if milliseconds >= 0 else "no time"
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"
