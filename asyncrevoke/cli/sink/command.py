"""``asyncrevoke sink``: commands that write a topic to a lake."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from asyncrevoke.cli.options.connection_options import ConnectionOptions, connects
from asyncrevoke.cli.options.option_groups import takes
from asyncrevoke.cli.terminal import exit_on_errors
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.runtime.arrow.arrow_options import COLUMNS, ArrowOptions
from asyncrevoke.replays.ranges.times import to_optional_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncrevoke.cli.sink.store import Store

    OpenStore: TypeAlias = Callable[[Path, str, Sequence[str]], Store]

sink = typer.Typer(
    help="Write a topic to a lake: each record once, also through rebalances and kills.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

_Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to read.")]
_Folder = Annotated[str, typer.Argument(metavar="FOLDER", help="A local folder, for this topic.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The options of all sinks."""

    group: Annotated[
        str, typer.Option(help="The consumer group. Its members share a topic and a folder.")
    ]
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Stop at the present end of the topic.")
    ] = False
    since: Annotated[
        str | None,
        typer.Option(
            help="Begin at this time, or so long ago, 1d, where nothing of a partition is stored."
        ),
    ] = None
    until: Annotated[
        str | None,
        typer.Option(help="Stop before this time (now), or at the present end of the topic."),
    ] = None
    max_bytes: Annotated[
        int, typer.Option(min=1, help="The size at which a file is complete, in bytes.")
    ] = 128 * 1024 * 1024
    max_wait: Annotated[
        float, typer.Option(min=0.1, help="The age at which a file is complete, in seconds.")
    ] = 60.0
    columns: Annotated[
        str, typer.Option(help="The columns of the files, in this order, separated by commas.")
    ] = ",".join(COLUMNS)

    def run(
        self, topic: str, folder: str, connection: ConnectionOptions, open_store: OpenStore
    ) -> None:
        """Write a topic to a lake. Raises ConfigError, StorageError and the errors of a loop."""
        if find_spec("pyarrow") is None:
            raise ConfigError(
                'a sink needs the package pyarrow: pip install "asyncrevoke[cli,arrow]"'
            )
        from asyncrevoke.cli.sink.plan import SinkPlan
        from asyncrevoke.cli.sink.progress import Progress
        from asyncrevoke.cli.sink.running import Period, Sink

        columns = ArrowOptions(self.columns.split(","), None, 0.0).columns
        if "://" in folder:
            raise ConfigError(f"{folder} is no local folder: only those are supported")
        now = datetime.now(UTC)
        period = Period(
            to_optional_time("--since", self.since, now),
            to_optional_time("--until", self.until, now),
        )
        store = open_store(Path(folder), topic, columns)
        options = connection.consumer_options(group_id=self.group)
        plan = SinkPlan(self.max_bytes, self.max_wait, together=store.together)
        with Progress(folder) as progress:
            running = Sink(topic, columns, store, plan, progress, options, period)
            asyncio.run(running.run(until_end=self.until_end or period.until is not None))


def _run(
    topic: str,
    folder: str,
    running: SinkOptions,
    connection: ConnectionOptions,
    open_store: OpenStore,
) -> None:
    logging.basicConfig(level=logging.WARNING)
    with exit_on_errors():
        running.run(topic, folder, connection, open_store)


@sink.command()
@takes("running", SinkOptions)
@connects
def parquet(
    topic: _Topic, folder: _Folder, *, running: SinkOptions, connection: ConnectionOptions
) -> None:
    """Write a topic to Parquet files, each with an interval of offsets of one partition.

    Runs until Ctrl-C, or with --until-end up to the present end of the topic. It begins where the
    files in the folder end. The exit code is 0 if all that was read is stored, 1 if it failed,
    2 if an option or the folder is wrong.

    Example: `asyncrevoke sink parquet orders /data/orders --group lake --until-end`
    """

    def open_store(folder: Path, topic: str, columns: Sequence[str]) -> Store:
        from asyncrevoke.cli.sink.parquet_folder import ParquetFolder

        return ParquetFolder(folder, topic, columns)

    _run(topic, folder, running, connection, open_store)


@sink.command()
@takes("running", SinkOptions)
@connects
def delta(
    topic: _Topic, folder: _Folder, *, running: SinkOptions, connection: ConnectionOptions
) -> None:
    """Write a topic to a Delta table. Needs the extra delta.

    Runs until Ctrl-C, or with --until-end up to the present end of the topic. It begins where the
    table ends. The exit code is 0 if all that was read is stored, 1 if it failed, 2 if an option
    or the folder is wrong.

    Example: `asyncrevoke sink delta orders /data/orders --group lake --until-end`
    """

    def open_store(folder: Path, topic: str, columns: Sequence[str]) -> Store:
        from asyncrevoke.cli.sink.delta_table import DeltaFolder

        return DeltaFolder(folder, topic, columns)

    _run(topic, folder, running, connection, open_store)
