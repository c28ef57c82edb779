"""The limits of one handler: how many calls run at once, and how many begin within a time."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.handlers.policy.limits import RateLimit
    from asyncrevoke.handlers.scheduling.clock import HandlerClock, Timer

# An entry of a lane: its second element is the item, its third the number of its put.
E = TypeVar("E", bound="tuple[Any, Any, int] | tuple[Any, Any, int, Any]")
Place: TypeAlias = Literal["first", "put_order", "last"]

# Seconds for which a timer that fired a rounding error too early is at least set again.
_LEAST_WAIT = 1e-6


class LimiterReactions(Protocol[E]):
    """Reacts when a rate limit permits further calls. Implemented by :class:`HandlerPipeline`."""

    def limiter_permits(self, limiter: HandlerLimiter[E]) -> None:
        """Start entries that wait in this limiter."""


class HandlerLimiter(Generic[E]):
    """Permits entries to start, or keeps them waiting in order.

    ``concurrency`` limits the permitted entries whose calls have not ended. ``rate`` limits the sum
    of the calls that began within the last ``per`` seconds and of the permitted entries whose calls
    have not begun. So no more than ``calls`` begin within ``per`` seconds, even if permitted
    entries waited long for a worker.

    The end of a call, or a timer, permits waiting entries.
    """

    def __init__(
        self,
        clock: HandlerClock,
        concurrency: int | None,
        rate: RateLimit | None,
        reactions: LimiterReactions[E],
    ) -> None:
        self._clock = clock
        self._concurrency = concurrency
        self._rate = rate
        self._reactions = reactions
        self._timer: Timer | None = None
        # Permitted items, and whether the call of each has begun.
        self._permitted: dict[object, bool] = {}
        self._not_begun = 0
        # When the calls of the last ``per`` seconds began.
        self._began: deque[float] = deque()
        self.waiting: deque[E] = deque()

    def try_start(self, entry: E, place: Place = "last") -> bool:
        """Return whether the entry is permitted; otherwise it waits.

        ``place`` is its place among the waiting entries: ``"put_order"`` is before those that were
        put at the same time or later.
        """
        if self._has_capacity():
            self._permit(entry[1])
            return True
        waiting = self.waiting
        if place == "first" or (place == "put_order" and waiting and entry[2] <= waiting[0][2]):
            waiting.appendleft(entry)
        else:
            waiting.append(entry)
        self._set_timer()
        return False

    def next_permitted(self) -> E | None:
        """Permit and return the first waiting entry; None if none waits, or a limit is reached."""
        entry = None
        if self.waiting and self._has_capacity():
            entry = self.waiting.popleft()
            self._permit(entry[1])
        self._set_timer()
        return entry

    def call_started(self, item: object) -> None:
        """The call of an item begins. Ignored for an item that was not permitted here."""
        if self._permitted.get(item) is False:
            self._permitted[item] = True
            self._not_begun -= 1
            if self._rate is not None:
                self._began.append(self._clock.time())
                self._set_timer()

    def call_ended(self, item: object) -> None:
        """An item no longer counts, whether its call has begun or not. Idempotent."""
        if self._permitted.pop(item, None) is False:
            self._not_begun -= 1

    def drop(self, unwanted: Callable[[E], bool]) -> list[E]:
        """Remove and return the waiting entries for which ``unwanted`` is true."""
        dropped = [entry for entry in self.waiting if unwanted(entry)]
        if dropped:
            self.waiting = deque(entry for entry in self.waiting if not unwanted(entry))
            self._set_timer()
        return dropped

    def _permit(self, item: object) -> None:
        self._permitted[item] = False
        self._not_begun += 1

    def _has_capacity(self) -> bool:
        if self._concurrency is not None and len(self._permitted) >= self._concurrency:
            return False
        return self._rate is None or self._rate_permits(self._rate)

    def _rate_permits(self, rate: RateLimit) -> bool:
        began, now = self._began, self._clock.time()
        while began and began[0] + rate.per <= now:
            began.popleft()
        return len(began) + self._not_begun < rate.calls

    def _set_timer(self) -> None:
        if not self.waiting:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            return
        rate = self._rate
        if (
            self._timer is None
            and rate is not None
            and not self._rate_permits(rate)
            and self._began
        ):
            wait = self._began[0] + rate.per - self._clock.time()
            self._timer = self._clock.call_later(max(wait, _LEAST_WAIT), self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self._reactions.limiter_permits(self)
