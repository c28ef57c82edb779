"""What the driver sends requests with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.core.effects import Channel, Failed, Node, Replied, Send


class Requests(Protocol):
    """What sends requests over connections."""

    def begin(self, send: Send, then: Callable[[Replied | Failed], object], /) -> bool:
        """Send one request at once, if the connection for it is open; ``then`` gets its answer,
        never before this returns. If not, False: then :meth:`request` is to be awaited."""
        ...

    async def request(self, send: Send) -> Replied | Failed:
        """Send one request and wait for its answer; never raises for what a broker does."""
        ...

    def reset(self, node: Node, channel: Channel) -> None:
        """Drop one connection; requests in flight on it fail."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...
