"""Shows progress on the terminal while a broker is downloaded and started."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

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
from asyncrevoke.cli.terminal import print_line

if TYPE_CHECKING:
    from collections.abc import Generator

    from rich.console import Console


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
