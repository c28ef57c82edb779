"""The times at which calls of one event loop iteration began and ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.model import Record

# Handler workers start no call later than this after the beginning of an iteration (microseconds).
_LONG_TURN = 50_000


class TurnTimes:
    """Chooses the start time that is recorded for calls, without reading the clock for each.

    It is normally the end of the event loop iteration, a few milliseconds after the start. In a
    long iteration (a call blocked the event loop, or the process was frozen) it is the beginning,
    because other members may have handled the same records before the end.
    """

    def __init__(self) -> None:
        self._began_at: int | None = None

    def turn_began(self, now: int) -> None:
        """An iteration begins, in which calls may begin."""
        self._began_at = now

    def start_of_calls(self, now: int) -> int:
        """The start time of calls that are recorded ``now``: earlier than ``now`` only in a long
        iteration."""
        began_at = self._began_at
        return now if began_at is None or now - began_at < _LONG_TURN else began_at


def ended_early(began: Sequence[Record], ended: Sequence[Record]) -> list[Record]:
    """Those of the ``ended`` calls that ended before the calls of a long iteration began.

    ``began`` are the calls of the iteration in order; the last one has blocked the event loop. A
    call may have waited for earlier calls of its partition, so these count as ended before it.
    """
    if not began:
        return []
    busy = {record.topic_partition for record in began}
    return [
        record for record in ended if record is not began[-1] and record.topic_partition in busy
    ]
