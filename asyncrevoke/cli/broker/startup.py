"""Shows progress on the terminal while a broker is downloaded and started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TransferSpeedColumn,
)

from asyncrevoke.broker.installation.jars import KAFKA_VERSION

if TYPE_CHECKING:
    from rich.console import Console

    from asyncrevoke.broker.installation.jars import Progress as Downloaded


class StartDisplay:
    """A context manager. Its :meth:`downloaded` is the ``on_progress`` of a broker."""

    def __init__(self, console: Console) -> None:
        self._start = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            console=console,
            transient=True,
        )
        self._task = self._start.add_task(f"Starting Apache Kafka {KAFKA_VERSION}", total=None)

    def __enter__(self) -> Self:
        self._start.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._start.stop()

    def downloaded(self, downloaded: Downloaded) -> None:
        """Show the progress of the download."""
        whole = downloaded.done >= downloaded.total
        self._start.update(
            self._task,
            description=(
                f"Starting Apache Kafka {KAFKA_VERSION}"
                if whole
                else f"Downloading Apache Kafka {KAFKA_VERSION} (once)"
            ),
            completed=downloaded.done,
            total=downloaded.total,
        )
