"""A request that was sent over a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asyncrevoke.core.io.link_silence import may_hold

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from asyncrevoke.core.io.link_silence import RoundTripTime
    from asyncrevoke.protocol.messages import Request, Response
    from asyncrevoke.runtime.net.fatal_errors import RequestFailed

    # What gets a response, or why there is none.
    Done: TypeAlias = "Callable[[Response | RequestFailed], object]"

__all__ = ["PendingRequest"]

_NEVER: Final = float("inf")


class PendingRequest:
    """A request without its response. ``done`` is None when nobody wants that any more."""

    __slots__ = (
        "alone",
        "correlation",
        "deadline",
        "done",
        "held",
        "message",
        "patience",
        "sent_at",
        "version",
        "within",
    )

    def __init__(
        self, correlation: int, version: int, message: Request, within: float, patience: float
    ) -> None:
        self.correlation = correlation
        self.version = version
        self.message = message
        self.within = within
        self.patience = patience
        # Seconds that the broker may hold it before it answers.
        self.held = may_hold(message)
        self.sent_at = 0.0
        self.deadline = _NEVER
        # Whether no other one stood before it.
        self.alone = False
        self.done: Done | None = None

    def silent_at(self, since: float, link: RoundTripTime) -> float:
        """When the connection counts as silent if nothing is received after ``since``."""
        return since + self.held + link.patience(self.patience)

    def dead_at(self, since: float, link: RoundTripTime) -> float:
        """When it is taken for dead."""
        return since + self.held + 2 * link.patience(self.patience)
