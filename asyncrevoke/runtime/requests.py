"""What the driver sends requests with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from asyncrevoke.core.effects import Channel, Failed, Node, Replied, Send


class Requests(Protocol):
    """What sends requests over connections."""

    async def request(self, send: Send) -> Replied | Failed:
        """Send one request and wait for its answer; never raises for what a broker does."""
        ...

    def reset(self, node: Node, channel: Channel) -> None:
        """Drop one connection; requests in flight on it fail."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...
