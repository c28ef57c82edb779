"""Limits of what a record batch contains: the headers of a record, and frames and blocks of
compressed data.

A frame or block costs about as much time to decompress as kilobytes of data do, and an empty one
takes 3 bytes.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

# A record with more headers is rejected: a header takes 2 bytes in the log and 100 in memory.
MAX_RECORD_HEADERS: Final = 10_000
# Beyond these, a record may have so many headers that this library has added: to a dead letter or a
# retry of a record that could be read.
MAX_ADDED_HEADERS: Final = 100
ADDED_PREFIX: Final = "asyncrevoke-"
TOO_MANY_HEADERS: Final = f"the record has more than {MAX_RECORD_HEADERS} headers"
# Producers write blocks of 32 KiB and more unless they are configured otherwise (KIP-390); a block
# of 1 KiB that compresses best has about 50 bytes.
_ALWAYS_ALLOWED: Final = 4096
_SHORTEST_ON_AVERAGE: Final = 32
# Blocks of 1 KiB in the largest batch that is allowed by default.
_MOST: Final = 2**18


class PartCount:
    """Counts the frames and blocks of a batch of ``size`` bytes."""

    def __init__(self, size: int) -> None:
        self._most = min(_ALWAYS_ALLOWED + size // _SHORTEST_ON_AVERAGE, _MOST)
        self._left = self._most

    def add(self) -> None:
        """One more. Raises ValueError beyond the limit."""
        self._left -= 1
        if self._left < 0:
            raise ValueError(f"it has more than {self._most} compressed frames and blocks")


def too_many_headers() -> NoReturn:
    """Raise ValueError for a record with more than ``MAX_RECORD_HEADERS``."""
    raise ValueError(TOO_MANY_HEADERS)


def has_too_many_headers(names: Sequence[str]) -> bool:
    """Whether a record with headers of these names has more than ``MAX_RECORD_HEADERS``, without
    the ones that this library adds."""
    excess = len(names) - MAX_RECORD_HEADERS
    if not 0 < excess <= MAX_ADDED_HEADERS:
        return excess > 0
    return sum(map(str.startswith, names, repeat(ADDED_PREFIX))) < excess


def checked_headers(
    headers: Sequence[tuple[str, bytes | None]],
) -> tuple[tuple[str, bytes | None], ...]:
    """The headers of a record. Raises ValueError if there are too many."""
    if has_too_many_headers([name for name, _ in headers]):
        too_many_headers()
    return tuple(headers)
