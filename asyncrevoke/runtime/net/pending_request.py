"""A request that was sent over a connection and has no response yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.core.io.link_silence import may_hold

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from asyncrevoke.core.io.link_silence import RoundTripTime
    from asyncrevoke.protocol.messages import Request, Response
    from asyncrevoke.runtime.net.fatal_errors import RequestFailed

    # What gets a response, or why there is none.
    Done: TypeAlias = "Callable[[Response | RequestFailed], object]"


class PendingRequest:
    """A request that was sent at ``now`` and has no response yet.

    ``within`` and ``silence_timeout`` are seconds, see :meth:`Connection.begin`. ``done`` is None
    once the response is not wanted any more.
    """

    def __init__(
        self,
        correlation: int,
        version: int,
        message: Request,
        done: Done,
        *,
        now: float,
        within: float,
        silence_timeout: float,
        link: RoundTripTime,
        was_alone: bool,
    ) -> None:
        self.correlation = correlation
        self.version = version
        self.message = message
        self.within = within
        self.silence_timeout = silence_timeout
        # Seconds that the broker may wait before it responds.
        self.broker_wait = may_hold(message)
        self.sent_at = now
        self.deadline = now + link.silence_timeout(within)
        # Whether no other request awaited its response when it was sent.
        self.was_alone = was_alone
        self.done: Done | None = done

    def cancel(self) -> None:
        """Drop the response when it comes."""
        self.done = None

    def silent_at(self, since: float, link: RoundTripTime) -> float:
        """When the connection counts as silent if nothing is received after ``since``."""
        return since + self.broker_wait + link.silence_timeout(self.silence_timeout)

    def dead_at(self, since: float, link: RoundTripTime) -> float:
        """When the request fails with SILENT if nothing is received after ``since``."""
        return since + self.broker_wait + 2 * link.silence_timeout(self.silence_timeout)
