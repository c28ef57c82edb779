"""When the calls of one iteration of the event loop began and ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.model import Record

# Workers start no call this long after the beginning of an iteration (microseconds).
_LONG_TURN = 50_000


class TurnTimes:
    """The time at which calls of one iteration are recorded as begun, without a clock for each.

    Ordinarily that is the end of the iteration, a few milliseconds later. If it took long, because
    a call blocked the event loop or the process was frozen, calls began before that, and other
    members may have handled the same records since: their time is that of the beginning.
    """

    def __init__(self) -> None:
        self._began_at: int | None = None

    def turn_began(self, now: int) -> None:
        """An iteration begins, in which calls may begin."""
        self._began_at = now

    def start_of_calls(self, now: int) -> int:
        """When the calls began that are recorded ``now``: earlier only if the iteration is long."""
        began_at = self._began_at
        return now if began_at is None or now - began_at < _LONG_TURN else began_at


def ended_early(began: Sequence[Record], ended: Sequence[Record]) -> list[Record]:
    """Those of the ``ended`` calls that had ended when the calls of a long iteration began.

    One call alone can have taken the time, the last of those that ``began``, in order. Those that
    it had to wait for had ended.
    """
    if not began:
        return []
    busy = {record.topic_partition for record in began}
    return [
        record for record in ended if record is not began[-1] and record.topic_partition in busy
    ]
