"""The interface through which the driver sends requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.client.core.io.effects import (
        BrokerProbed,
        Channel,
        ConnectionReport,
        DropSilentConnections,
        Failed,
        Node,
        ProbeBroker,
        Replied,
        Send,
    )


class Requests(Protocol):
    """Sends requests over connections. Implemented by :class:`Channels`."""

    def begin(self, send: Send, on_reply: Callable[[Replied | Failed], object], /) -> bool:
        """Send a request at once if its connection is open; ``on_reply`` gets the response,
        never before this returns. Returns False if it is not open: then await :meth:`request`."""
        ...

    async def request(self, send: Send) -> Replied | Failed:
        """Send a request and wait for the response. Failures are returned, not raised."""
        ...

    def reset(self, node: Node, channel: Channel) -> None:
        """Close one connection; its requests in flight fail."""

    async def report(self) -> ConnectionReport:
        """Wait for the next connection that receives nothing although a request is in flight, or
        that a broker throttles."""
        ...

    async def probe(self, probe: ProbeBroker) -> BrokerProbed:
        """Find out whether a broker responds on a new connection. Raises nothing."""
        ...

    def drop_silent(self, drop: DropSilentConnections) -> None:
        """Close connections that receive nothing; their requests in flight fail."""

    async def close(self) -> None:
        """Close all connections."""


class ForwardedRequests:
    """Forwards to other requests; a base class for those that change some of them."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def begin(self, send: Send, on_reply: Callable[[Replied | Failed], object], /) -> bool:
        """Send one request at once, if the connection for it is open."""
        return self._requests.begin(send, on_reply)

    async def request(self, send: Send) -> Replied | Failed:
        """Send a request and wait for the response."""
        return await self._requests.request(send)

    async def report(self) -> ConnectionReport:
        """Wait for the next connection that is silent or throttled."""
        return await self._requests.report()

    async def probe(self, probe: ProbeBroker) -> BrokerProbed:
        """Find out whether a broker responds."""
        return await self._requests.probe(probe)

    def drop_silent(self, drop: DropSilentConnections) -> None:
        """Close connections that receive nothing."""
        self._requests.drop_silent(drop)

    def reset(self, node: Node, channel: Channel) -> None:
        """Close one connection."""
        self._requests.reset(node, channel)

    async def close(self) -> None:
        """Close all connections."""
        await self._requests.close()
