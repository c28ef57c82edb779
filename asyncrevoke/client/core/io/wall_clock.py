"""The wall clock as the core knows it: its own clock and the difference."""

from __future__ import annotations


class WallClock:
    """Converts ``now`` to wall-clock time. ``offset``: the wall clock minus ``now`` in seconds."""

    def __init__(self, offset: float) -> None:
        self._offset = offset

    def set_offset(self, offset: float) -> None:
        """Set the difference in seconds."""
        self._offset = offset

    def seconds(self, now: float) -> float:
        """Seconds since the epoch."""
        return now + self._offset

    def milliseconds(self, now: float) -> int:
        """Milliseconds since the epoch, as in the timestamps of records."""
        return int((now + self._offset) * 1000)
