"""Limits the frames and blocks of compressed data.

Each costs about as much time to decompress as kilobytes of data do, and an empty one takes 3 bytes.
"""

from __future__ import annotations

from typing import Final

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
