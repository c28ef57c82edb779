"""The columns and sizes of Arrow batches."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from asyncrevoke.client.core.poll.large_polls import LargePoll
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option

if TYPE_CHECKING:
    from collections.abc import Sequence

COLUMNS = (
    "key",
    "value",
    "headers",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
)
"""The columns that a batch has by default, and those that may be chosen."""
DEFAULT_RECORDS = 65_536
_MOST_RECORDS = 2**24
_MOST_BYTES = 256 * 1024 * 1024


def check_packages(what: str) -> None:
    """Raise ConfigError if what these need is not installed."""
    for package in ("pyarrow", "numpy"):
        if find_spec(package) is None:
            raise ConfigError(f'{what} need {package}: pip install "asyncrevoke[arrow]"')


class ArrowOptions:
    """The columns and sizes of Arrow batches. Raises ConfigError, also without pyarrow."""

    def __init__(
        self, columns: Sequence[str] | None, max_records: int | None, max_wait: float
    ) -> None:
        names = COLUMNS if columns is None else columns
        if isinstance(names, str) or not names:
            raise ConfigError(f"columns={shown_option(columns)}: a list of names of columns")
        for name in names:
            if name not in COLUMNS:
                raise ConfigError(
                    f"there is no column {shown_option(name)}: choose from {', '.join(COLUMNS)}"
                )
        if len(set(names)) < len(names):
            raise ConfigError(f"columns={shown_option(columns)} has a column twice")
        records = DEFAULT_RECORDS if max_records is None else max_records
        if not 0 < records <= _MOST_RECORDS:
            raise ConfigError(
                f"max_records={max_records}: from 1 to {_MOST_RECORDS:,}; a batch ends earlier at "
                f"{_MOST_BYTES >> 20} MiB"
            )
        if not 0 <= max_wait < float("inf"):
            raise ConfigError(f"max_wait={max_wait}: how many seconds to wait for more records")
        check_packages("Arrow batches")
        self.columns = tuple(names)
        self.poll = LargePoll(records, max_wait, _MOST_BYTES)
