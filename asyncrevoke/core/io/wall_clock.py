"""The wall clock, as far as the core needs it: its own clock and the difference."""

from __future__ import annotations


class WallClock:
    """The core's ``now`` as wall-clock time. ``offset`` is the wall clock minus ``now``, in
    seconds."""

    def __init__(self, offset: float) -> None:
        self._offset = offset

    def set_offset(self, offset: float) -> None:
        """The difference from now on, in seconds."""
        self._offset = offset

    def seconds(self, now: float) -> float:
        """Seconds since the epoch."""
        return now + self._offset

    def milliseconds(self, now: float) -> int:
        """Milliseconds since the epoch, as in the timestamps of records."""
        return int((now + self._offset) * 1000)
