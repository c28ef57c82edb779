"""The connections of one client to a simulated cluster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from asyncrevoke.client.core.io.effects import (
    BrokerProbed,
    Channel,
    ConnectionReport,
    DropSilentConnections,
    Failed,
    FailureKind,
    Node,
    ProbeBroker,
    Replied,
    Send,
)
from asyncrevoke.client.protocol.messages import MetadataRequest, Response

if TYPE_CHECKING:
    from asyncrevoke.testing.cluster import Cluster


class _Channel:
    __slots__ = ("alive", "pending", "turn")

    def __init__(self) -> None:
        self.alive = True
        self.turn = asyncio.Lock()
        self.pending: set[asyncio.Future[Response | None]] = set()


class Connections:
    """The connections of one client to the cluster; requests and responses take no time.

    A broker processes one request at a time on a connection, so requests wait while a JoinGroup on
    their connection is delayed.
    """

    def __init__(self, cluster: Cluster, client: int) -> None:
        self._cluster = cluster
        self._client = client
        self._channels: dict[tuple[int, Channel], _Channel] = {}
        self._cut = False

    def begin(self, _send: Send, _then: object) -> bool:
        """Returns False: all requests are sent by :meth:`request`."""
        return False

    async def request(self, send: Send) -> Replied | Failed:
        """Send one request and wait for its response."""
        broker = self._cluster.resolve(send.node)
        if broker is None or self._cut:
            return Failed(send.request_id, FailureKind.UNREACHABLE, f"no broker at {send.node}")
        channel = self._channels.setdefault((broker, send.channel), _Channel())
        if send.channel is Channel.PRODUCE and isinstance(send.message, MetadataRequest):
            for topic in send.message.topics or ():
                self._cluster.have(topic)
        try:
            async with asyncio.timeout(send.timeout), channel.turn:
                response = await self._ask(broker, channel, send)
        except TimeoutError:
            self.reset(send.node, send.channel)
            return Failed(send.request_id, FailureKind.TIMEOUT, "no response in time")
        if response is None:
            return Failed(send.request_id, FailureKind.DISCONNECTED, "the connection was closed")
        return Replied(send.request_id, response)

    async def _ask(self, broker: int, channel: _Channel, send: Send) -> Response | None:
        if not channel.alive:
            return None
        future: asyncio.Future[Response | None] = asyncio.get_running_loop().create_future()

        def reply(response: Response) -> None:
            if not future.done():
                future.set_result(response)

        channel.pending.add(future)
        try:
            self._cluster.receive(broker, self._client, channel, send.message, reply)
            return await future
        finally:
            channel.pending.discard(future)

    def reset(self, node: Node, channel: Channel) -> None:
        """Drop one connection; requests in flight on it fail."""
        broker = self._cluster.resolve(node)
        found = None if broker is None else self._channels.pop((broker, channel), None)
        if found is not None:
            self._break(found)

    async def report(self) -> ConnectionReport:
        """Wait for ever: each request gets a response or times out."""
        silent: asyncio.Future[ConnectionReport] = asyncio.get_running_loop().create_future()
        return await silent

    async def probe(self, probe: ProbeBroker) -> BrokerProbed:
        """Whether a broker has this address."""
        reachable = self._cluster.resolve(probe.node) is not None and not self._cut
        return BrokerProbed(probe.node, asyncio.get_running_loop().time(), reachable)

    def drop_silent(self, drop: DropSilentConnections) -> None:
        """Does nothing: no connection is silent."""

    def disconnect(self) -> None:
        """Close all connections; requests open new ones."""
        channels = list(self._channels.values())
        self._channels.clear()
        for channel in channels:
            self._break(channel)

    def cut(self) -> None:
        """Close all connections, and open no new ones."""
        self._cut = True
        self.disconnect()

    async def close(self) -> None:
        """Close all connections."""
        self.cut()

    def _break(self, channel: _Channel) -> None:
        channel.alive = False
        self._cluster.connection_closed(channel)
        for future in channel.pending:
            if not future.done():
                future.set_result(None)
