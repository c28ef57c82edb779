"""The limits of one handler: how many of its calls run at once, and begin within a time."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.handlers.policy.rate_limit import RateLimit
    from asyncrevoke.handlers.scheduling.clock import Clock, Timer

# What is let through: among others an item, and its turn.
E = TypeVar("E", bound="tuple[Any, Any, int] | tuple[Any, Any, int, Any]")
Place: TypeAlias = Literal["first", "turn", "last"]

# A timer that goes off a rounding error too early is set again by no less than this.
_LEAST_WAIT = 1e-6


class Gate(Generic[E]):
    """Lets entries through to where workers take them, and holds the others in their order.

    An entry is inside from when it was let through until it has ``left``, and whoever is inside
    counts for ``concurrency``. For ``rate``, what counts are those that have begun within the last
    ``per`` seconds, and those inside that may begin at any moment; so however long workers are
    busy elsewhere, no more than ``calls`` begin within any such time.

    While it holds anything, and only then, something will open it: the end of a call, or a timer,
    after which ``on_time`` is called.
    """

    def __init__(
        self,
        clock: Clock,
        concurrency: int | None,
        rate: RateLimit | None,
        on_time: Callable[[Gate[E]], None],
    ) -> None:
        self._clock = clock
        self._concurrency = concurrency
        self._rate = rate
        self._on_time = on_time
        self._timer: Timer | None = None
        # Whether each has begun.
        self._inside: dict[object, bool] = {}
        self._waiting_inside = 0
        # When the calls of the last ``per`` seconds have begun.
        self._began: deque[float] = deque()
        self.held: deque[E] = deque()

    def enter(self, entry: E, place: Place = "last") -> bool:
        """Let an entry through now, or hold it, and say which; ``place``: among those held.

        ``"turn"`` is before all that were put with it or later.
        """
        if self._is_open():
            self._let_in(entry[1])
            return True
        if place == "first" or (place == "turn" and self.held and entry[2] <= self.held[0][2]):
            self.held.appendleft(entry)
        else:
            self.held.append(entry)
        self._set_timer()
        return False

    def next(self) -> E | None:
        """Let the next of those through that are held; None if there is none, or it must wait."""
        entry = None
        if self.held and self._is_open():
            entry = self.held.popleft()
            self._let_in(entry[1])
        self._set_timer()
        return entry

    def started(self, item: object) -> None:
        """Its call begins. Nothing happens for one that did not come through here."""
        if self._inside.get(item) is False:
            self._inside[item] = True
            self._waiting_inside -= 1
            if self._rate is not None:
                self._began.append(self._clock.time())
                self._set_timer()

    def left(self, item: object) -> None:
        """It is not inside any more, if it was."""
        if self._inside.pop(item, None) is False:
            self._waiting_inside -= 1

    def drop(self, unwanted: Callable[[E], bool]) -> list[E]:
        """Take out those that are held and unwanted."""
        dropped = [entry for entry in self.held if unwanted(entry)]
        if dropped:
            self.held = deque(entry for entry in self.held if not unwanted(entry))
            self._set_timer()
        return dropped

    def _let_in(self, item: object) -> None:
        self._inside[item] = False
        self._waiting_inside += 1

    def _is_open(self) -> bool:
        if self._concurrency is not None and len(self._inside) >= self._concurrency:
            return False
        return self._rate is None or self._may_begin(self._rate)

    def _may_begin(self, rate: RateLimit) -> bool:
        began, now = self._began, self._clock.time()
        while began and began[0] + rate.per <= now:
            began.popleft()
        return len(began) + self._waiting_inside < rate.calls

    def _set_timer(self) -> None:
        if not self.held:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            return
        rate = self._rate
        if self._timer is None and rate is not None and not self._may_begin(rate) and self._began:
            wait = self._began[0] + rate.per - self._clock.time()
            self._timer = self._clock.call_later(max(wait, _LEAST_WAIT), self._time_has_come)

    def _time_has_come(self) -> None:
        self._timer = None
        self._on_time(self)
