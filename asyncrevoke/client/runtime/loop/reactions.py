"""What the driver reports to the session that it works for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from asyncrevoke.client.core.io.effects import Emit, Notify


class DriverReactions(Protocol):
    """Implemented by the session; every method is called on the event loop and returns at once.

    Implemented by :class:`SessionReactions`.
    """

    def core_reported(self, event: Emit) -> None:
        """The core has reported an event."""

    def partitions_changed(self, notify: Notify) -> None:
        """Partitions were assigned, revoked or lost; the listener is called after this."""

    def transaction_due(self) -> None:
        """A transaction is to be begun."""

    def ticked(self, late: float) -> None:
        """A second or less has passed; the event loop ran this ``late`` seconds after it was due.

        What this gives the listener to do is begun after it.
        """

    def driver_ended(self) -> None:
        """All timers and requests have ended, and the connections are closed."""
