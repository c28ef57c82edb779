"""Shows on stderr how far a sink is."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final, Self

from asyncrevoke.client.printable import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.cli.sink.store import Closed
    from asyncrevoke.client.model import TopicPartition

# Seconds between two lines: on a terminal the line is replaced.
_ON_TERMINALS: Final = 0.2
_IN_FILES: Final = 10.0


class Progress:
    """Counts what was read and stored, and prints it at the end of ``with``. After an error it is
    printed only if a file was stored or a line was shown before."""

    def __init__(self, folder: object) -> None:
        self._folder = folder
        self._began = self._shown = time.monotonic()
        self._replaces = sys.stderr.isatty()
        self._read = self._rows = self._files = self._bytes = 0

    def read(self, rows: int) -> None:
        """So many rows more were read."""
        self._read += rows

    def stored(self, closed: Closed) -> None:
        """A file was stored."""
        self._rows += closed.rows
        self._files += 1
        self._bytes += closed.size

    def say(self, line: str) -> None:
        """Print a line that stays."""
        print(f"\r{line}\x1b[K" if self._replaces else line, file=sys.stderr, flush=True)

    def show(self, lag: Mapping[TopicPartition, int]) -> None:
        """Print how far the sink is, if that is due."""
        now = time.monotonic()
        if now - self._shown < (_ON_TERMINALS if self._replaces else _IN_FILES):
            return
        self._shown = now
        line = f"{self._line()}, {counted(self._read - self._rows, 'row')} open"
        line += f", lag {sum(lag.values()):,}"
        if self._replaces:
            print(f"\r{line}\x1b[K", end="", file=sys.stderr, flush=True)
        else:
            self.say(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None or self._files or self._shown > self._began:
            self.say(f"{self._line()} in {time.monotonic() - self._began:.1f} s")

    def _line(self) -> str:
        return (
            f"{self._folder}: {counted(self._rows, 'row')} in {counted(self._files, 'file')} "
            f"({self._bytes / 1e6:.1f} MB)"
        )
