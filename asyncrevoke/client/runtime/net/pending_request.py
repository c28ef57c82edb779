"""Requests of a connection that have no response yet, or wait for the end of a throttle time."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeAlias

from asyncrevoke.client.core.io.link_silence import RoundTripTime, may_hold

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.client.protocol.messages import Request, Response
    from asyncrevoke.client.runtime.net.fatal_errors import RequestFailed

    # What gets a response, or why there is none.
    Done: TypeAlias = "Callable[[Response | RequestFailed], object]"


class PendingRequest:
    """A request that has no response yet.

    ``within`` and ``silence_timeout`` are seconds, see :meth:`Connection.begin`. ``done`` is None
    once the response is not wanted any more.
    """

    def __init__(
        self,
        correlation: int,
        version: int,
        message: Request,
        done: Done,
        within: float,
        silence_timeout: float,
    ) -> None:
        self.correlation = correlation
        self.version = version
        self.message = message
        self.within = within
        self.silence_timeout = silence_timeout
        # Seconds that the broker may wait before it responds.
        self.broker_wait = may_hold(message)
        self.sent_at = self.deadline = 0.0
        # Whether no other request awaited its response when it was sent.
        self.was_alone = False
        self.done: Done | None = done

    def sent(self, now: float, link: RoundTripTime, *, alone: bool) -> None:
        """It was sent; ``alone``: no other request awaits its response."""
        self.sent_at, self.was_alone = now, alone
        self.extend(now, link)

    def extend(self, begins: float, link: RoundTripTime) -> None:
        """The broker may not begin with it before this time."""
        self.deadline = max(self.deadline, begins + link.silence_timeout(self.within))

    def cancel(self) -> None:
        """Drop the response when it comes."""
        self.done = None

    def is_unheard(self, received_at: float) -> bool:
        """Whether nothing was received since it was sent, although the broker may not hold it."""
        may_wait = self.broker_wait > 0 or self.silence_timeout == float("inf")
        return received_at < self.sent_at and not may_wait

    def silent_at(self, since: float, link: RoundTripTime) -> float:
        """When the connection counts as silent if nothing is received after ``since``."""
        return since + self.broker_wait + link.silence_timeout(self.silence_timeout)

    def dead_at(self, since: float, link: RoundTripTime) -> float:
        """When the request fails with SILENT if nothing is received after ``since``."""
        return since + self.broker_wait + 2 * link.silence_timeout(self.silence_timeout)


class ThrottledRequests:
    """The requests that wait for the end of the throttle time of a connection (KIP-219).

    The broker responds at once and reads nothing before ``until``: what is sent meanwhile would
    wait there, and seem to be without a response.
    """

    def __init__(self) -> None:
        self.until = float("-inf")
        self._waiting: deque[tuple[PendingRequest, bytes]] = deque()

    @property
    def next_at(self) -> float:
        """When the first of them is due; infinite if none waits."""
        return self.until if self._waiting else float("inf")

    def begin(self, until: float) -> None:
        """Nothing may be sent before ``until``."""
        self.until = max(self.until, until)

    def must_wait(self, now: float) -> bool:
        """Whether a request has to wait, for the time to end or behind others."""
        return now < self.until or bool(self._waiting)

    def put(self, request: PendingRequest, data: bytes) -> None:
        """Let a request wait, whose frame is ``data``."""
        self._waiting.append((request, data))

    def take(self, now: float) -> tuple[PendingRequest, bytes] | None:
        """The next one to send now; None if there is none."""
        return self._waiting.popleft() if self._waiting and now >= self.until else None

    def discard(self, request: PendingRequest) -> bool:
        """Forget a request that is not wanted any more. Returns whether it has waited here."""
        count = len(self._waiting)
        self._waiting = deque(waiting for waiting in self._waiting if waiting[0] is not request)
        return len(self._waiting) < count

    def clear(self) -> list[PendingRequest]:
        """Forget all, and return them."""
        requests = [request for request, _ in self._waiting]
        self._waiting.clear()
        return requests
