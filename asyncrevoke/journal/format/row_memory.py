"""The memory that the rows of a journal take while it is read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from asyncrevoke.errors import ConfigError
from asyncrevoke.journal.format.schema import COLUMNS

if TYPE_CHECKING:
    from pathlib import Path

    from asyncrevoke.journal.format.arrow import RecordBatch

# If the system does not say how much memory there is.
_UNKNOWN: Final = 4 * 2**30
# Of a row, without the bytes of its texts, each of which is stored once.
ROW_BYTES: Final = sum(8 if column.type == "long" else 4 for column in COLUMNS)


class RowMemory:
    """Counts the memory of all rows that are read, and rejects those beyond the maximum.

    A few bytes of a file can be millions of rows. Those with a value in each column take about 130
    bytes each.
    """

    def __init__(self, most: int | None = None) -> None:
        """``most``: in bytes; not given, half of the machine's memory."""
        self._most = _half_of_memory() if most is None else most
        self._taken = 0

    def check(self, size: int, path: Path) -> None:
        """ConfigError, which names the file, if ``size`` more bytes would be too many."""
        if self._taken + size > self._most:
            raise ConfigError(
                f"{path}: with its rows, this journal takes more than the {self._most:,} bytes of "
                "memory that it may. Read fewer sessions at a time, or audit on Spark"
            )

    def add(self, batch: RecordBatch, path: Path) -> None:
        """Count rows that were read. ConfigError, which names the file, if they are too many."""
        size = sum(column.nbytes for column in batch.columns if column.null_count < len(column))
        self.check(size, path)
        self._taken += size


def _half_of_memory() -> int:
    names = getattr(os, "sysconf_names", {})  # Windows has none
    if not {"SC_PHYS_PAGES", "SC_PAGE_SIZE"} <= set(names):
        return _UNKNOWN
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
