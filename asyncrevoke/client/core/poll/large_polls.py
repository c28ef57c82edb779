"""Polls that return many records at once, for columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.model import Value
from asyncrevoke.client.record_parts import size_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from asyncrevoke.client.core.fetch.fetcher import Fetcher
    from asyncrevoke.client.core.io.outbox import Outbox
    from asyncrevoke.client.model import Record

_TIMER = "large-poll"
# The first records, by which the size of others is estimated.
_FIRST = 512


class LargePoll(Value, frozen=True):
    """Return up to ``records``, of ``size`` bytes together or a little more; wait for them up to
    ``wait`` seconds after the first are buffered."""

    records: int
    wait: float
    size: int


class LargePolls:
    """Decides how long a poll waits for more records, and how many it takes at once."""

    def __init__(self, outbox: Outbox, fetcher: Fetcher) -> None:
        self._outbox = outbox
        self._fetcher = fetcher
        # When the present step ends waiting; None while no record is buffered.
        self._until: float | None = None
        self._is_over = False

    def begin(self) -> None:
        """A step begins."""
        self._until = None
        self._is_over = False

    def end(self) -> None:
        """The step returns a result."""
        if self._until is not None:
            self._outbox.cancel_timer(_TIMER)

    def waits(self, now: float, poll: LargePoll) -> bool:
        """Whether to return no records yet, because more are being fetched."""
        memory = self._fetcher.memory
        if self._is_over or not poll.wait or not memory.records:
            return False
        if memory.records >= poll.records or self._fetcher.collector.has_full_buffer:
            return False
        if self._until is None:
            self._until = now + poll.wait
            self._outbox.set_timer(_TIMER, self._until, self._over)
        return now < self._until

    def _over(self, _now: float) -> None:
        # Not compared with the clock again: a timer may fire too early by a rounding error.
        self._is_over = True
        self._outbox.wake()

    @staticmethod
    def at_once(poll: LargePoll, taken: Iterable[Sequence[Record]]) -> int:
        """How many records to take next, after these; 0 if these are enough."""
        count = size = 0
        for records in taken:
            count += len(records)
            size += size_of(records)
        left = poll.records - count
        if not size:
            return min(left, max(_FIRST, count))
        return min(left, (poll.size - size) * count // size) if size < poll.size else 0
