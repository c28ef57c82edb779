"""Limits the memory for reading the rows of a journal."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.journal.format.schema import COLUMNS

if TYPE_CHECKING:
    from pathlib import Path

    from asyncrevoke.journal.format.arrow import RecordBatch

# The limit if the system does not report the size of its memory.
_UNKNOWN: Final = 4 * 2**30
# Bytes of a row without its texts, each of which is stored once.
ROW_BYTES: Final = sum(8 if column.type == "long" else 4 for column in COLUMNS)


class RowMemory:
    """Counts the memory of all rows that are read, and rejects rows beyond the limit.

    A few bytes of a file can declare millions of rows. A row with a value in each column takes
    about 130 bytes.
    """

    def __init__(self, most: int | None = None) -> None:
        """``most`` is in bytes; the default is half of the machine's memory."""
        self._most = _half_of_memory() if most is None else most
        self._taken = 0

    def check(self, size: int, path: Path) -> None:
        """Raise ConfigError, which names the file, if ``size`` more bytes exceed the limit."""
        if self._taken + size > self._most:
            raise ConfigError(
                f"{path}: the rows of this journal exceed the limit of {self._most:,} bytes. "
                "Read fewer sessions at a time, or audit on Spark"
            )

    def add(self, batch: RecordBatch, path: Path) -> None:
        """Count rows that were read. Raises ConfigError, which names the file, beyond the limit."""
        size = sum(column.nbytes for column in batch.columns if column.null_count < len(column))
        self.check(size, path)
        self._taken += size


def _half_of_memory() -> int:
    names = getattr(os, "sysconf_names", {})  # Windows has none
    if not {"SC_PHYS_PAGES", "SC_PAGE_SIZE"} <= set(names):
        return _UNKNOWN
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
