"""What the driver sends requests with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.core.io.effects import (
        BrokerProbed,
        Channel,
        ConnectionSilent,
        DropSilentConnections,
        Failed,
        Node,
        ProbeBroker,
        Replied,
        Send,
    )


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

    async def silence(self) -> ConnectionSilent:
        """Wait for the next connection that is silent although something is asked on it."""
        ...

    async def probe(self, probe: ProbeBroker) -> BrokerProbed:
        """Find out whether a broker answers on a new connection; raises nothing."""
        ...

    def drop_silent(self, drop: DropSilentConnections) -> None:
        """Drop connections on which nothing is received; requests in flight on them fail."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class ForwardedRequests:
    """Requests that others send; to be derived from where some of them need more than that."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def begin(self, send: Send, then: Callable[[Replied | Failed], object], /) -> bool:
        """Send one request at once, if the connection for it is open."""
        return self._requests.begin(send, then)

    async def request(self, send: Send) -> Replied | Failed:
        """Send one request and wait for its answer."""
        return await self._requests.request(send)

    async def silence(self) -> ConnectionSilent:
        """Wait for the next connection that is silent."""
        return await self._requests.silence()

    async def probe(self, probe: ProbeBroker) -> BrokerProbed:
        """Find out whether a broker answers."""
        return await self._requests.probe(probe)

    def drop_silent(self, drop: DropSilentConnections) -> None:
        """Drop connections on which nothing is received."""
        self._requests.drop_silent(drop)

    def reset(self, node: Node, channel: Channel) -> None:
        """Drop one connection."""
        self._requests.reset(node, channel)

    async def close(self) -> None:
        """Close all connections."""
        await self._requests.close()
