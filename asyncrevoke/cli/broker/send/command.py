"""``asyncrevoke send``: writes records by hand."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer
from rich.console import Console

from asyncrevoke.cli.broker.send.record_options import RecordOptions
from asyncrevoke.cli.options.connection_options import ConnectionOptions, connects
from asyncrevoke.cli.options.option_groups import takes
from asyncrevoke.cli.terminal import (
    FAILED,
    exit_on_errors,
    failed_with,
    print_line,
    print_value,
)
from asyncrevoke.client.errors import ConfigError, PublishError
from asyncrevoke.client.printable import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.cli.broker.send.record_lines import RecordLine
    from asyncrevoke.client.config.consumer_options import ProducerOptions
    from asyncrevoke.client.producing.message import Published
    from asyncrevoke.client.producing.publishing.acknowledgement import Acknowledgement
    from asyncrevoke.client.producing.publishing.producer import Producer

_CLIENT_ID: Final = "asyncrevoke-send"
# Seconds that closing takes when nothing is left to wait for.
_CLOSE: Final = 1.0


class CompressionName(StrEnum):
    """How records are compressed."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


@dataclass(frozen=True, slots=True, kw_only=True)
class WritingOptions:
    """The options that say how records are written and shown."""

    compression: Annotated[CompressionName, typer.Option(help="How records are compressed.")] = (
        CompressionName.NONE
    )
    no_idempotence: Annotated[
        bool,
        typer.Option(
            "--no-idempotence",
            help="For brokers that give no producer id. A lost response may double a record.",
        ),
    ] = False
    timeout: Annotated[
        float, typer.Option(help="Seconds for each response; records fail after three times that.")
    ] = 10.0
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON value for each record.")
    ] = False


@connects
@takes("writing", WritingOptions)
@takes("records", RecordOptions)
def send(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to write to.")],
    *,
    records: RecordOptions,
    writing: WritingOptions,
    connection: ConnectionOptions,
) -> None:
    """Write records: one of options, or one for each line of a file or of standard input.

    Keys and values are written as they are given, without their line ends. Each line is sent when
    it is read, and the command ends when all are acknowledged. It stops at the first line that
    cannot be written; lines that were read with it may be written. The exit code is 0 if all
    records are acknowledged, 1 if one is not, 2 if an option or a line is wrong or there is none.

    Example: `asyncrevoke send orders --key c1 --value '{"id": 1}'`
    """
    # The list of commands imports no client.
    from asyncrevoke.client.producing.publishing.producer import Producer

    with exit_on_errors(OSError):
        options = connection.consumer_options(
            client_id=_CLIENT_ID,
            compression=writing.compression.value,
            idempotent=not writing.no_idempotence,
            request_timeout=writing.timeout,
        )
        producer = Producer(**cast("ProducerOptions", options))
        headers = records.headers()
        with records.opened() as batches, asyncio.Runner() as runner:
            runner.run(producer.start())
            sent = 0
            try:
                # Reading blocks, so it is outside of the event loop: Ctrl-C ends it at once.
                for lines in batches:
                    sent += runner.run(_send(producer, topic, lines, headers, records, writing))
            finally:
                runner.run(_close(producer))
        if not sent:
            raise ConfigError(f"{records.source} has no lines: nothing was sent")
        if not writing.as_json and not records.is_one_record:
            print_line(Console(), f"{counted(sent, 'record')} sent to {topic}")


async def _send(
    producer: Producer,
    topic: str,
    lines: Sequence[RecordLine],
    headers: Sequence[tuple[str, bytes]],
    records: RecordOptions,
    writing: WritingOptions,
) -> int:
    """Write these lines, and wait for all. Returns how many there are."""
    acknowledgements: list[Acknowledgement] = []
    for line in lines:
        try:
            acknowledgement = await producer.publish_soon(
                topic,
                line.value,
                key=line.key,
                headers=headers,
                partition=records.partition,
                timestamp=records.timestamp,
            )
        except PublishError as error:
            raise _failed(line, error, records) from error
        acknowledgements.append(acknowledgement)
    failed: list[tuple[RecordLine, PublishError]] = []
    for line, acknowledgement in zip(lines, acknowledgements, strict=True):
        try:
            published = await acknowledgement
        except PublishError as error:
            failed.append((line, error))
        else:
            _show(published, records, writing)
    if failed:
        raise _failed(*failed[0], records, others=len(failed) - 1)
    return len(lines)


def _failed(
    line: RecordLine, error: PublishError, records: RecordOptions, others: int = 0
) -> typer.Exit:
    where = "" if records.is_one_record else f"line {line.number}: "
    more = f" ({counted(others, 'other line')} failed)" if others else ""
    return failed_with(f"{where}{error}{more}", FAILED)


def _show(published: Published, records: RecordOptions, writing: WritingOptions) -> None:
    if writing.as_json:
        print_value(published._asdict())
    elif records.is_one_record:
        offset = "an unknown offset" if published.offset < 0 else f"offset {published.offset}"
        print_line(
            Console(), f"sent to {published.topic}, partition {published.partition}, {offset}"
        )


async def _close(producer: Producer) -> None:
    # The command has shown the first error, or Ctrl-C has ended it.
    with suppress(PublishError):
        await producer.aclose(_CLOSE)
