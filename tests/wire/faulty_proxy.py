"""A proxy before a real broker that knows Kafka's frames, and damages them when a test says so.

The broker's advertised listener must be the proxy's port, or clients would go round it.
"""

from __future__ import annotations

import asyncio
import enum
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

HOST = "127.0.0.1"
_BROKEN = (asyncio.IncompleteReadError, ConnectionError)
_CHUNK_SECONDS = 0.02


class Api(enum.IntEnum):
    """The requests of a consumer, by their keys in the protocol."""

    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    API_VERSIONS = 18
    OFFSETS_FOR_LEADER_EPOCH = 23


class ProxiedResponse:
    """What the broker has responded, on its way to the client. ``frame`` begins with its size."""

    def __init__(self, frame: bytes, writer: asyncio.StreamWriter, proxy: FaultyProxy) -> None:
        self.frame = frame
        self._writer = writer
        self._proxy = proxy

    async def send(self, data: bytes) -> None:
        """Let these bytes through, as fast as the proxy's ``bandwidth`` allows."""
        view = memoryview(data)
        while view:
            speed = self._proxy.bandwidth
            part = view if speed is None else view[: max(1, int(speed * _CHUNK_SECONDS))]
            self._writer.write(part)
            await self._writer.drain()
            view = view[len(part) :]
            if speed is not None:
                await asyncio.sleep(_CHUNK_SECONDS)


Fault: TypeAlias = Callable[[ProxiedResponse], Awaitable[None]]


async def let_through(response: ProxiedResponse) -> None:
    """Nothing happens."""
    await response.send(response.frame)


async def cut_in_mid_frame(response: ProxiedResponse) -> None:
    """Half of the response, then the end of the connection."""
    await response.send(response.frame[: len(response.frame) // 2])
    raise ConnectionAbortedError


async def withhold(response: ProxiedResponse) -> None:
    """The response never comes, nor any behind it, until the client gives the connection up."""
    del response
    await asyncio.get_running_loop().create_future()


def delayed(seconds: float) -> Fault:
    """The response comes late."""

    async def fault(response: ProxiedResponse) -> None:
        await asyncio.sleep(seconds)
        await response.send(response.frame)

    return fault


def altered(old: bytes, new: bytes) -> Fault:
    """The response comes with other bytes in it."""
    assert len(old) == len(new)

    async def fault(response: ProxiedResponse) -> None:
        await response.send(response.frame.replace(old, new))

    return fault


class FaultyProxy:
    """Forwards every connection to the broker, until told otherwise.

    ``requests`` counts what clients have sent, ``struck`` how often a fault has, and
    ``connections`` how many were accepted. ``bandwidth`` (bytes per second, None: any) is that of
    responses.
    """

    def __init__(self, port: int, broker_port: int) -> None:
        self.port = port
        self.broker_port = broker_port
        self.bandwidth: float | None = None
        self.requests: Counter[Api] = Counter()
        self.struck: Counter[Api] = Counter()
        self.connections = 0
        self._deaf = False
        self._curt = False
        self._faults: dict[Api, tuple[Fault, int | None]] = {}
        self._lost: Counter[Api] = Counter()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    # -- what goes wrong

    def strike(self, api: Api, fault: Fault, times: int | None = 1) -> None:
        """Do this to the next responses of a kind; None: to all of them from now on."""
        self._faults[api] = (fault, times)

    def lose(self, api: Api, times: int = 1) -> None:
        """End the connection instead of passing the next requests of a kind on."""
        self._lost[api] = times

    def heal(self) -> None:
        """No further faults; connections that hang stay so."""
        self._faults.clear()
        self._lost.clear()
        self._deaf = self._curt = False
        self.bandwidth = None

    def go_deaf(self) -> None:
        """Accept connections, old ones included, and never respond."""
        self._deaf = True

    async def hang_up(self) -> None:
        """Drop all connections, and each new one as soon as it is accepted."""
        self._curt = True
        await self.drop()

    async def refuse(self) -> None:
        """Drop all connections and accept no others."""
        if self._server is not None:
            self._server.close()
            self._server = None
        await self.drop()

    async def drop(self) -> None:
        """Drop all connections."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def accept(self) -> None:
        """Accept connections (again)."""
        self._server = await asyncio.start_server(self._serve, HOST, self.port)

    # -- what goes through

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            with suppress(*_BROKEN, asyncio.CancelledError):
                if not self._curt:
                    await self._join(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_broker, to_broker = await asyncio.open_connection(HOST, self.broker_port)
        asked: dict[int, Api] = {}
        pumps = {
            asyncio.ensure_future(self._requests(reader, to_broker, asked)),
            asyncio.ensure_future(self._responses(from_broker, writer, asked)),
        }
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            to_broker.transport.abort()

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: dict[int, Api]
    ) -> None:
        while True:
            frame = await _frame(reader)
            key, _version, correlation = struct.unpack_from(">hhi", frame, 4)
            asked[correlation] = api = Api(key)
            self.requests[api] += 1
            if self._deaf:
                continue
            if self._lost[api]:
                self._lost[api] -= 1
                self.struck[api] += 1
                return
            writer.write(frame)
            await writer.drain()

    async def _responses(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: dict[int, Api]
    ) -> None:
        while True:
            frame = await _frame(reader)
            if self._deaf:  # asked before that
                continue
            (correlation,) = struct.unpack_from(">i", frame, 4)
            await self._fault(asked.pop(correlation))(ProxiedResponse(frame, writer, self))

    def _fault(self, api: Api) -> Fault:
        fault, times = self._faults.get(api, (let_through, 0))
        if fault is not let_through:
            self.struck[api] += 1
        if times is not None:
            if times > 1:
                self._faults[api] = (fault, times - 1)
            else:
                self._faults.pop(api, None)
        return fault


async def _frame(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(4)
    (size,) = struct.unpack(">i", head)
    return head + await reader.readexactly(size)
