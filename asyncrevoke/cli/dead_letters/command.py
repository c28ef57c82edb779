"""``asyncrevoke dead-letters``: lists, shows and replays dead letters."""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from asyncrevoke.cli.dead_letters.shown import (
    no_such_error,
    print_letter,
    print_listing,
    print_reprocessed,
    print_result,
)
from asyncrevoke.cli.options.connection_options import ConnectionOptions, connects
from asyncrevoke.cli.options.option_groups import ErrorsName, TargetArgument, takes
from asyncrevoke.cli.terminal import (
    FAILED,
    INCONCLUSIVE,
    exit_on_errors,
    failed_with,
    print_line,
    print_value,
)
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import counted
from asyncrevoke.dead_letters.dead_letter_filter import DeadLetterFilter
from asyncrevoke.dead_letters.stored_dead_letter import NoDeadLetter, StoredDeadLetter
from asyncrevoke.replays.ranges.times import to_optional_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.consumer import Consumer
    from asyncrevoke.dead_letters.dead_letter_topic import DeadLetterTopic
    from asyncrevoke.dead_letters.listing import Listing
    from asyncrevoke.dead_letters.replay import Replay, ReplayOptions, ReplayResult
    from asyncrevoke.dead_letters.reprocessing import ReprocessResult

_CLIENT_ID = "asyncrevoke-dead-letters"
# Seconds in which a broker must respond before anything is read.
_RESPONSE_TIMEOUT = 10.0

dead_letters = typer.Typer(
    help="List, show and replay dead letters: records that could not be handled.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

_Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The dead letter topic.")]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON value.")]


class ProcessingName(StrEnum):
    """How often readers see a replayed record if the replay is killed and started again."""

    AT_LEAST_ONCE = "at_least_once"
    EXACTLY_ONCE = "exactly_once"


class TimestampsName(StrEnum):
    """The timestamps of replayed records."""

    NOW = "now"
    ORIGINAL = "original"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterOptions:
    """The options that select dead letters."""

    origin_topic: Annotated[
        list[str] | None, typer.Option(help="Only records of this topic; may be repeated.")
    ] = None
    partition: Annotated[
        list[int] | None, typer.Option(help="Only records of this partition of their topic.")
    ] = None
    error: Annotated[
        list[str] | None, typer.Option(help="Only errors of this type, with or without its module.")
    ] = None
    since: Annotated[
        str | None,
        typer.Option(help="Only records from this time on, 2026-11-01T08:00, or so long ago, 1d."),
    ] = None
    until: Annotated[str | None, typer.Option(help="Only records before this time.")] = None

    def chosen(self) -> DeadLetterFilter:
        """These options as a filter. Raises ConfigError."""
        now = datetime.now(UTC)
        return DeadLetterFilter(
            origin_topics=frozenset(self.origin_topic or ()),
            origin_partitions=frozenset(self.partition or ()),
            errors=frozenset(self.error or ()),
            since=to_optional_time("--since", self.since, now),
            until=to_optional_time("--until", self.until, now),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SendingOptions:
    """The options that say what a replay sends, where to, and how fast."""

    to: Annotated[str | None, typer.Option(help="Write to this topic instead of the origin's.")] = (
        None
    )
    timestamps: Annotated[
        TimestampsName,
        typer.Option(help="The timestamps of written records: the time of writing, or their own."),
    ] = TimestampsName.NOW
    processing: Annotated[
        ProcessingName,
        typer.Option(
            help="exactly_once writes in transactions: a killed replay can be started again."
        ),
    ] = ProcessingName.AT_LEAST_ONCE
    no_idempotence: Annotated[
        bool,
        typer.Option(
            "--no-idempotence",
            help="For brokers that give no producer id. A lost response may double a record.",
        ),
    ] = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list and count what would be sent.")
    ] = False
    limit: Annotated[int | None, typer.Option(help="Send at most this many.")] = None
    rate: Annotated[float | None, typer.Option(help="Send at most this many per second.")] = None
    max_attempts: Annotated[
        int, typer.Option(help="Skip dead letters that have failed after this many replays.")
    ] = 3
    journal: Annotated[
        Path | None,
        typer.Option(
            help="The file that lists sent dead letters. "
            "Default: TOPIC.replay.jsonl in the current folder."
        ),
    ] = None
    resend_in_doubt: Annotated[
        bool,
        typer.Option("--resend-in-doubt", help="Send again what a killed replay may have sent."),
    ] = False

    def options(self, chosen: DeadLetterFilter) -> ReplayOptions:
        """The options of a replay of these dead letters. Raises ConfigError."""
        from asyncrevoke.dead_letters.replay import ReplayOptions

        return ReplayOptions(
            chosen=chosen,
            to=self.to,
            timestamps=self.timestamps.value,
            limit=self.limit,
            rate=self.rate,
            max_attempts=self.max_attempts,
            dry_run=self.dry_run,
            journal=self.journal,
            resend_in_doubt=self.resend_in_doubt,
            processing=self.processing.value,
        )


filters = takes("filtered", FilterOptions)


@dead_letters.command("list")
@connects
@filters
def list_(
    topic: _Topic, *, filtered: FilterOptions, connection: ConnectionOptions, as_json: _Json = False
) -> None:
    """Count dead letters by origin and error, with the times of their records.

    Times without an offset from UTC are in this machine's time zone. The exit code is 0 if the
    topic is read, 1 if that fails or all errors have other names than --error, 2 if an option is
    wrong.

    Example: `asyncrevoke dead-letters list orders.dlq --error ValueError --since 2026-11-01`
    """
    with exit_on_errors():
        chosen = filtered.chosen()
        listing = asyncio.run(_counts(_opened(topic, connection), chosen))
        if as_json:
            print_value(listing)
        else:
            print_listing(listing)
        if not listing.count:
            _check_errors(topic, connection, chosen)


@dead_letters.command()
@connects
@filters
def show(
    topic: _Topic,
    place: Annotated[
        str | None,
        typer.Argument(metavar="[PARTITION:OFFSET]", help="One dead letter of the topic."),
    ] = None,
    *,
    filtered: FilterOptions,
    connection: ConnectionOptions,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many.")] = 10,
    value: Annotated[bool, typer.Option("--value", help="Show key and value, too.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line.")
    ] = False,
) -> None:
    """Show where dead letters come from, why they failed, and their headers.

    Shows the dead letter at PARTITION:OFFSET of the topic, or the first ones that match the
    options, and whether there are more. The exit code is 1 if there is none.

    Example: `asyncrevoke dead-letters show orders.dlq 0:42 --value`
    """
    with exit_on_errors():
        chosen, wanted = filtered.chosen(), None if place is None else _place(place)
        found = asyncio.run(_find(_opened(topic, connection), wanted, chosen, limit + 1))
        if not found:
            _check_errors(topic, connection, chosen)
    if not found:
        raise failed_with(f"{topic} has no dead letters that match", FAILED)
    for letter in found[:limit]:
        print_letter(letter, value=value, as_json=as_json)
    if len(found) > limit:
        more = f"more than {counted(limit, 'dead letter')}: --limit {10 * limit} shows further ones"
        print_line(Console(stderr=True), more)


@dead_letters.command()
@connects
@takes("sending", SendingOptions)
@filters
def replay(
    topic: _Topic,
    *,
    filtered: FilterOptions,
    connection: ConnectionOptions,
    sending: SendingOptions,
    as_json: _Json = False,
) -> None:
    """Write dead letters back to the topics of their records, with key, value and headers.

    Records go to the topic that TOPIC is named after (`orders` of `orders.dlq`), or to those that
    `--origin-topic` names. They get the time of writing as their timestamp, or with
    `--timestamps original` their own one, if the topic accepts and keeps it.

    To continue an interrupted replay, start it again with its journal, which lists what was sent;
    with another journal, all is sent again. With `--processing exactly_once` it also finds out what
    a killed replay has sent. SIGINT ends a replay after the records in flight are acknowledged, a
    second SIGINT ends it at once. The exit code is 0 if all selected dead letters are sent, 1 if a
    broker or a file has failed or all errors have other names than --error, 2 if an option is
    wrong, 3 if some were not sent (the reasons are shown), or if it was interrupted.

    Example: `asyncrevoke dead-letters replay orders.dlq --error TimeoutError --rate 100`
    """
    with exit_on_errors():
        options = sending.options(filtered.chosen())
        letters = _opened(topic, connection, idempotent=not sending.no_idempotence)
        result = _run_replay(letters, options)
        if as_json:
            print_value(result)
        else:
            print_result(result, dry_run=sending.dry_run)
        if result.read == result.total and not result.selected:
            _check_errors(topic, connection, options.chosen)
    if result.error is not None:
        raise failed_with(result.error, FAILED)
    if result.not_sent or result.stopped:
        raise typer.Exit(INCONCLUSIVE)


@dead_letters.command()
@connects
@filters
def reprocess(
    topic: _Topic,
    target: TargetArgument,
    *,
    filtered: FilterOptions,
    connection: ConnectionOptions,
    errors: Annotated[
        ErrorsName,
        typer.Option(
            help="Failed records: counted and listed, the handlers' policy, or the command ends."
        ),
    ] = ErrorsName.RECORD,
    drop_results: Annotated[
        bool,
        typer.Option("--drop-results", help="Call handlers whose results are not written, too."),
    ] = False,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Call handlers for at most this many: the first ones.")
    ] = None,
    as_json: _Json = False,
) -> None:
    """Call the handlers of a consumer for the records of dead letters, in this process.

    A handler gets the record with the topic, partition, offset, key and value that it had when it
    failed. Nothing is written to that topic, and dead letters stay where they are: a second
    `reprocess` calls the handlers again. A record of a topic whose handlers do not write their dead
    letters to TOPIC is listed, unless `--origin-topic` names its topic. What handlers publish is
    not written: no handler is called if one has `publish_to`, unless you add `--drop-results`. To
    have results, write the dead letters back with `replay`. The exit code is 0 if all records were
    handled, 1 if a broker has failed, a handler has failed with `--errors fail`, or all errors have
    other names than `--error`, 2 if an option is wrong, 3 if some records were not handled.

    Example: `asyncrevoke dead-letters reprocess orders.dlq app:consumer --error TimeoutError`
    """
    from asyncrevoke.dead_letters.reprocessing import Reprocessing, topics_without_results
    from asyncrevoke.replays.target import TargetError, find_consumer

    async def run(consumer: Consumer, letters: DeadLetterTopic) -> ReprocessResult:
        chosen = filtered.chosen()
        async with letters:
            running = Reprocessing(letters, consumer, chosen, errors=errors.value, limit=limit)
            return await running.run()

    with exit_on_errors(TargetError):
        consumer = find_consumer(target)
        topics = topics_without_results(consumer)
        if topics and not drop_results:
            raise ConfigError(
                f"results for {', '.join(topics)} would not be written: write the dead letters "
                "back with replay, or add --drop-results"
            )
        result = asyncio.run(run(consumer, _opened(topic, connection)))
        if as_json:
            print_value(result)
        else:
            print_reprocessed(result)
        if not result.selected:
            _check_errors(topic, connection, filtered.chosen())
    if result.failed:
        raise typer.Exit(INCONCLUSIVE)


# --- what is read and sent -----------------------------------------------------------------------


def _opened(
    topic: str, connection: ConnectionOptions, *, idempotent: bool = True
) -> DeadLetterTopic:
    from asyncrevoke.client.groups.cluster import GroupsClient
    from asyncrevoke.dead_letters.dead_letter_topic import DeadLetterTopic

    async def wait_for_broker() -> None:
        config = connection.config(request_timeout=_RESPONSE_TIMEOUT, client_id=_CLIENT_ID)
        async with GroupsClient(config):
            pass

    logging.getLogger("asyncrevoke").addHandler(logging.NullHandler())
    options = connection.consumer_options(client_id=_CLIENT_ID, idempotent=idempotent)
    letters = DeadLetterTopic(topic, **options)
    # Reading waits longer for brokers, which may be restarting: if none responds, say so first.
    asyncio.run(wait_for_broker())
    return letters


async def _counts(letters: DeadLetterTopic, chosen: DeadLetterFilter) -> Listing:
    async with letters:
        return await letters.counts(chosen)


def _check_errors(topic: str, connection: ConnectionOptions, chosen: DeadLetterFilter) -> None:
    """Nothing was selected: end the command if only the names of errors do not match."""
    if chosen.errors:
        others = asyncio.run(
            _counts(_opened(topic, connection), replace(chosen, errors=frozenset()))
        )
        if others.count:
            raise failed_with(no_such_error(topic, chosen.errors, others), FAILED)


async def _find(
    letters: DeadLetterTopic, place: tuple[int, int] | None, chosen: DeadLetterFilter, limit: int
) -> Sequence[StoredDeadLetter | NoDeadLetter]:
    found: list[StoredDeadLetter | NoDeadLetter] = []
    async with letters:
        if place is not None:
            return [await letters.letter(*place)]
        async for letter in letters.letters(chosen):
            found.append(letter)
            if len(found) == limit:
                break
    return found


def _run_replay(letters: DeadLetterTopic, options: ReplayOptions) -> ReplayResult:
    from asyncrevoke.dead_letters.replay import Replay

    console = Console(stderr=True)
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("reading", total=None)

        def progress(now: ReplayResult) -> None:
            bar.update(task, total=now.total, completed=now.read, description=f"{now.sent} sent")

        def on_new_journal(path: Path) -> None:
            print_line(
                console,
                f"new journal {path}: nothing was sent with it before; what was sent with another "
                "journal counts as not sent",
            )

        running = Replay(letters, options, progress, on_new_journal=on_new_journal)
        with suppress(KeyboardInterrupt):
            return asyncio.run(_replay(letters, running))
    raise failed_with("interrupted: records in flight may have been sent", INCONCLUSIVE)


async def _replay(letters: DeadLetterTopic, running: Replay) -> ReplayResult:
    loop = asyncio.get_running_loop()
    # The second one is Python's: KeyboardInterrupt.
    with suppress(NotImplementedError):
        loop.add_signal_handler(signal.SIGINT, _stop_once, loop, running)
    async with letters:
        return await running.run()


def _stop_once(loop: asyncio.AbstractEventLoop, running: Replay) -> None:
    running.stop()
    loop.remove_signal_handler(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)


# --- what is typed -------------------------------------------------------------------


def _place(text: str) -> tuple[int, int]:
    partition, _, offset = text.partition(":")
    if not (partition.isdecimal() and offset.isdecimal() and len(text) <= 30):
        raise ConfigError(f"{text}: write PARTITION:OFFSET, 0:42 for example")
    return int(partition), int(offset)
