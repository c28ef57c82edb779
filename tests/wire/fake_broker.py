"""A server that speaks just enough of the Kafka protocol to misbehave on demand."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from asyncrevoke.client.core.io.effects import Node
from asyncrevoke.client.protocol import codec

if TYPE_CHECKING:
    import ssl

API_VERSIONS = 18
# What a handler gets: the correlation id of the request, and where to write.
Respond: TypeAlias = Callable[[int, asyncio.StreamWriter], Awaitable[None]]


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def heartbeat_response(correlation: int, error: int = 0, *, throttle_ms: int = 0) -> bytes:
    """A frame of a HeartbeatResponse, version 3."""
    return framed(struct.pack(">iih", correlation, throttle_ms, error))


def api_versions_response(
    correlation: int,
    versions: dict[int, tuple[int, int]],
    version: int = 0,
    *,
    error: int = 0,
    throttle_ms: int = 0,
) -> bytes:
    """A frame of an ApiVersionsResponse of at most 126 requests, versions 0 to 4."""
    flexible = version >= 3
    tags = b"\0" if flexible else b""
    entries = b"".join(struct.pack(">hhh", key, *limits) + tags for key, limits in versions.items())
    count = bytes((len(versions) + 1,)) if flexible else struct.pack(">i", len(versions))
    throttle = struct.pack(">i", throttle_ms) if version >= 1 else b""
    return framed(struct.pack(">ih", correlation, error) + count + entries + throttle + tags)


class FakeBroker:
    """Responds to the version lookup by itself, and to every other request with ``respond``.

    ``silent`` leaves the version lookup without a response, too.
    """

    def __init__(self, respond: Respond, *, silent: bool = False) -> None:
        self._respond = respond
        self._silent = silent
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.versions: dict[int, tuple[int, int]] = {
            codec.api_key(kind): (0, 99) for kind in codec.REQUESTS
        }
        self.connections = 0
        self.open = 0
        self.requests = 0
        self.changed = asyncio.Condition()

    async def start(self, tls: ssl.SSLContext | None = None) -> Node:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls)
        return Node(1, "127.0.0.1", self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something to be true of this broker, ten seconds at most."""
        async with asyncio.timeout(10), self.changed:
            await self.changed.wait_for(condition)

    async def _note(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.open += 1
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    await self._note()
                    await self._one(reader, writer)
        finally:
            self.open -= 1
            self._tasks.discard(task)
            writer.close()
            with suppress(asyncio.CancelledError):
                await self._note()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        data = await reader.readexactly(size)
        api, version, correlation = struct.unpack_from(">hhi", data)
        if api == API_VERSIONS:
            if not self._silent:
                writer.write(api_versions_response(correlation, self.versions, version))
            return
        self.requests += 1
        await self._note()
        await self._respond(correlation, writer)
