"""When the calls of one iteration of the event loop began and ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from asyncrevoke.model import Record

# Workers start no call this long after the beginning of an iteration (microseconds).
_LONG_TURN = 50_000


class TurnTimes:
    """The time at which calls of one iteration are recorded as begun, without a clock for each.

    Ordinarily that is the end of the iteration, a few milliseconds later. If it took long, because
    a call blocked the event loop or the process was frozen, calls began before that, and other
    members may have handled the same records since: their time is that of the beginning. One call
    alone can have taken the time, the last one; those that it had to wait for had ended.
    """

    def __init__(self) -> None:
        self._began_at: int | None = None
        self._busy: Collection[object] = ()
        self._last: Record | None = None

    def turn_began(self, now: int) -> None:
        """An iteration begins, in which calls may begin."""
        self._began_at = now

    def calls_began(self, began: Sequence[Record], now: int) -> int:
        """When these calls began, in order; they are all that did since the last time."""
        self._busy, self._last = (), None
        began_at = self._began_at
        if not began or began_at is None or now - began_at < _LONG_TURN:
            return now
        self._busy, self._last = {record.topic_partition for record in began}, began[-1]
        return began_at

    def ended_early(self, ended: Sequence[Record]) -> list[Record]:
        """Those of these calls that ended when the iteration began, for all that is known."""
        if not self._busy:
            return []
        return [
            record
            for record in ended
            if record is not self._last and record.topic_partition in self._busy
        ]
