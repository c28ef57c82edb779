"""Calls of each handler over the last minute."""

from __future__ import annotations

import math
from asyncio import CancelledError
from collections import Counter, deque
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.model import RunningHandler

# Seconds.
WINDOW: Final = 60.0
# A bucket ends 5 % above the one before it.
_BUCKETS_PER_E: Final = 1 / math.log(1.05)
_SHORTEST: Final = 1e-6


class HandlerFigures(NamedTuple):
    """Figures of one handler over the last minute, or since the consumer was entered.

    ``rate``: completed calls per second. ``errors``: calls that raised. ``p99``: seconds within
    which 99 % of the completed calls returned, at most 5 % too high; None without a call.
    ``running``: calls that have not ended; ``longest``: seconds that the first of them has run.
    """

    owner: str
    handler: str
    rate: float
    errors: int
    p99: float | None
    running: int
    longest: float | None


class HandlerCalls:
    """Counts the calls of one handler. Times are seconds of any one clock."""

    def __init__(self, began: float) -> None:
        self._began = began
        # Completed calls by bucket, and errors: of this second, of each second, and of their sum.
        self._new: Counter[int] = Counter()
        self._errors = 0
        self._seconds: deque[tuple[float, Counter[int], int]] = deque()
        self._calls: Counter[int] = Counter()
        self._all_errors = 0

    def completed(self, seconds: Sequence[float]) -> None:
        """Calls have returned after these seconds."""
        self._new.update(map(_bucket, seconds))

    def failed(self, error: BaseException) -> None:
        """A call has raised. Cancelled calls, of a revocation for example, are not counted."""
        self._errors += not isinstance(error, CancelledError)

    def figures(
        self, now: float, owner: str, handler: str, running: Sequence[RunningHandler]
    ) -> HandlerFigures:
        """The figures at ``now``. ``running``: the calls of this handler that have not ended."""
        self._seconds.append((now, self._new, self._errors))
        self._calls += self._new
        self._all_errors += self._errors
        self._new, self._errors = Counter(), 0
        while self._seconds[0][0] <= now - WINDOW:
            _, calls, errors = self._seconds.popleft()
            self._calls -= calls
            self._all_errors -= errors
        return HandlerFigures(
            owner,
            handler,
            self._calls.total() / max(1.0, min(WINDOW, now - self._began)),
            self._all_errors,
            self._p99(),
            len(running),
            max((call.seconds for call in running), default=None),
        )

    def _p99(self) -> float | None:
        left = math.ceil(0.99 * self._calls.total())
        for bucket in sorted(self._calls):
            left -= self._calls[bucket]
            if left <= 0:
                return math.exp(bucket / _BUCKETS_PER_E)
        return None


def _bucket(seconds: float) -> int:
    return math.ceil(math.log(max(seconds, _SHORTEST)) * _BUCKETS_PER_E)
