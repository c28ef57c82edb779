"""``asyncrevoke broker``: runs a real Apache Kafka until Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TransferSpeedColumn,
)

from asyncrevoke.broker.installation.jars import KAFKA_VERSION, OnProgress
from asyncrevoke.broker.installation.jars import Progress as Downloaded
from asyncrevoke.cli.terminal import print_error, print_line
from asyncrevoke.client.errors import AsyncRevokeError

if TYPE_CHECKING:
    from collections.abc import Generator

    from asyncrevoke.broker import KafkaBroker

LIFE_CHECK = 0.5


def topic_argument(text: str) -> tuple[str, int | None]:
    """Parse ``NAME`` or ``NAME:PARTITIONS``. Partitions are None for the former."""
    name, colon, partitions = text.partition(":")
    if not name or (colon and not (partitions.isdecimal() and int(partitions))):
        raise typer.BadParameter(f"{text}: use NAME:PARTITIONS, for example orders:12")
    return name, int(partitions) if colon else None


def broker(
    *,
    port: Annotated[int, typer.Option(help="The port on 127.0.0.1; 0 chooses a free one.")] = 9092,
    topic: Annotated[
        list[str] | None, typer.Option(metavar="NAME:PARTITIONS", help="A topic to create.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Keep the data in this folder. Default: a temporary folder.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Run a real Apache Kafka on this machine, without Docker, until Ctrl-C.

    If another client requests a topic that does not exist, the broker creates it with 4 partitions.
    asyncrevoke's consumers create no topics: name topics with --topic, or run `asyncrevoke topics
    create`.

    Example: `asyncrevoke broker --topic orders:12`
    """
    from asyncrevoke.broker import BrokerStartError, KafkaBroker

    named = map(topic_argument, topic or [])
    topics = {name: partitions or 1 for name, partitions in named}
    messages = Console(stderr=True)
    try:
        with contextlib.ExitStack() as stack:
            with start_display(messages) as on_progress:
                started = stack.enter_context(
                    KafkaBroker(
                        port=port or None,
                        folder=folder,
                        properties={"auto.create.topics.enable": "true", "num.partitions": "4"},
                        on_progress=on_progress,
                    )
                )
            stop = _stop_on_signals()
            for name, partitions in topics.items():
                started.create_topic(name, partitions)
            _print_addresses(started, topics, messages, as_json=as_json)
            while started.running and not stop.wait(LIFE_CHECK):
                pass
            if not started.running:
                raise BrokerStartError(
                    "Apache Kafka ended; the end of its log:", started.log_tail()
                )
    except AsyncRevokeError as error:
        print_error(error, messages)
        raise typer.Exit(1) from error


def _stop_on_signals() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: stop.set())
    return stop


def _print_addresses(
    started: KafkaBroker, topics: dict[str, int], messages: Console, *, as_json: bool
) -> None:
    if as_json:
        facts = {
            "bootstrap_servers": started.bootstrap_servers,
            "pid": started.pid,
            "log": str(started.log_path),
            "topics": topics,
        }
        print(json.dumps(facts), flush=True)
        return
    print(started.bootstrap_servers, flush=True)
    print_line(
        messages, f"Apache Kafka is running; its log is {started.log_path}. Ctrl-C stops it."
    )


@contextmanager
def start_display(console: Console) -> Generator[OnProgress]:
    """Show that a broker starts. Yields its ``on_progress``."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    starting = f"Starting Apache Kafka {KAFKA_VERSION}"
    loading = f"Downloading Apache Kafka {KAFKA_VERSION} (once)"
    if not console.is_terminal:
        yield _lines(console, starting, loading)
        return
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(starting, total=None)

        def show(now: Downloaded) -> None:
            description = starting if now.done >= now.total else loading
            progress.update(task, description=description, completed=now.done, total=now.total)

        yield show


def _lines(console: Console, starting: str, loading: str) -> OnProgress:
    """Print what happens in lines, as a log file has them."""
    printed = [starting]
    print_line(console, starting)

    def show(now: Downloaded) -> None:
        if now.done < now.total and loading not in printed:
            printed.append(loading)
            print_line(console, loading)

    return show
