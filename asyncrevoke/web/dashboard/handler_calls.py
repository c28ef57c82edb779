"""Statistics of each handler's calls over the last minute."""

from __future__ import annotations

import math
from asyncio import CancelledError
from collections import Counter, deque
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.model import RunningHandler

# The period of the statistics, in seconds.
WINDOW: Final = 60.0
# The upper bound of a bucket is 5 % above that of the previous bucket.
_BUCKETS_PER_E: Final = 1 / math.log(1.05)
_SHORTEST: Final = 1e-6


class HandlerFigures(NamedTuple):
    """Figures of one handler over the last minute, or since the consumer was entered.

    ``rate``: completed calls per second. ``errors``: calls that raised. ``p99``: the 99th
    percentile of the duration of completed calls in seconds, at most 5 % too high; None without a
    call. ``running``: the number of running calls; ``longest``: the age of the oldest of them in
    seconds.
    """

    owner: str
    handler: str
    rate: float
    errors: int
    p99: float | None
    running: int
    longest: float | None


class HandlerCalls:
    """Counts the calls of one handler. Times are in seconds, of any clock."""

    def __init__(self, began: float) -> None:
        self._began = began
        # Completed calls by bucket, and errors: of the current second, of each second, and their
        # sums.
        self._new: Counter[int] = Counter()
        self._errors = 0
        self._seconds: deque[tuple[float, Counter[int], int]] = deque()
        self._calls: Counter[int] = Counter()
        self._all_errors = 0

    def completed(self, seconds: Sequence[float]) -> None:
        """Calls have returned after these seconds."""
        self._new.update(map(_bucket, seconds))

    def failed(self, error: BaseException) -> None:
        """A call has raised. Cancelled calls, for example in a revocation, do not count."""
        self._errors += not isinstance(error, CancelledError)

    def figures(
        self, now: float, owner: str, handler: str, running: Sequence[RunningHandler]
    ) -> HandlerFigures:
        """The figures at ``now``. ``running`` are the running calls of this handler."""
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
