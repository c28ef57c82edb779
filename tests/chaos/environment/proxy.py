"""A proxy in front of one broker that behaves like a network with faults.

``wire/faulty_proxy.py`` changes single responses of the protocol; this proxy changes what happens
to connections. The broker's advertised listener must be the proxy's port.
"""

from __future__ import annotations

import asyncio
import enum
import socket
import struct
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pathlib import Path

HOST = "127.0.0.1"
# Frames that wait in one direction of a connection; then the sender's TCP window closes.
_FRAMES = 64
# How often a throttled direction writes, in seconds.
_TICK = 0.05
_BROKEN = (asyncio.IncompleteReadError, OSError)


class Direction(enum.Enum):
    """Which way bytes travel."""

    TO_BROKER = "to broker"
    TO_CLIENT = "to client"


BOTH = (Direction.TO_BROKER, Direction.TO_CLIENT)


@dataclass
class DirectionFaults:
    """What the network does to the bytes of one direction; ``delay`` in seconds, ``rate`` in bytes
    per second (None: unlimited), of each connection."""

    delay: float = 0.0
    rate: float | None = None
    open: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.open.set()


class Link:
    """One connection of a client, and the one to the broker that belongs to it."""

    def __init__(
        self,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        broker: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        faults: dict[Direction, DirectionFaults],
    ) -> None:
        self.dead = False
        self.cut_next = False
        self._client = client
        self._broker = broker
        self._faults = faults

    async def run(self) -> None:
        """Forward in both directions until both have ended; always closes both connections."""
        (from_client, to_client), (from_broker, to_broker) = self._client, self._broker
        pumps = [
            asyncio.create_task(self._pump(Direction.TO_BROKER, from_client, to_broker)),
            asyncio.create_task(self._pump(Direction.TO_CLIENT, from_broker, to_client)),
        ]
        try:
            # A connection that one side has ended is ended for the other, too.
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for writer in (to_client, to_broker):
                reset(writer)

    async def _pump(
        self, direction: Direction, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        frames: asyncio.Queue[tuple[float, bytes | None]] = asyncio.Queue(_FRAMES)
        receiving = asyncio.create_task(self._receive(reader, frames))
        try:
            await self._send(direction, frames, writer)
        except _BROKEN:
            pass  # the other side has ended the connection: so does this one
        finally:
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)

    async def _receive(
        self, reader: asyncio.StreamReader, frames: asyncio.Queue[tuple[float, bytes | None]]
    ) -> None:
        frame: bytes | None = b""
        while frame is not None:
            try:
                frame = await _frame(reader)
            except _BROKEN:
                frame = None
            if not self.dead:
                await frames.put((time.monotonic(), frame))

    async def _send(
        self,
        direction: Direction,
        frames: asyncio.Queue[tuple[float, bytes | None]],
        writer: asyncio.StreamWriter,
    ) -> None:
        faults = self._faults[direction]
        while True:
            arrived, frame = await frames.get()
            # A delay may be changed while a frame waits.
            while (wait := arrived + faults.delay - time.monotonic()) > 0:  # noqa: ASYNC110
                await asyncio.sleep(min(wait, _TICK))
            await faults.open.wait()
            if self.dead:
                continue
            if frame is None:
                writer.close()
                await writer.wait_closed()
                return
            if self.cut_next and direction is Direction.TO_CLIENT:
                writer.write(frame[: len(frame) // 2])
                await writer.drain()
                return
            await self._write(faults, frame, writer)

    async def _write(
        self, faults: DirectionFaults, frame: bytes, writer: asyncio.StreamWriter
    ) -> None:
        view = memoryview(frame)
        while view:
            rate = faults.rate
            part = view if rate is None else view[: max(1, int(rate * _TICK))]
            writer.write(part)
            await writer.drain()
            view = view[len(part) :]
            if rate is not None:
                await asyncio.sleep(_TICK)
                await faults.open.wait()
            if self.dead:
                return


class Proxy:
    """Forwards connections to the broker, and does to them what the faults of a network do.

    ``connections`` counts those that were accepted. Enter it to accept connections; leaving ends
    all of them.
    """

    def __init__(self, port: int, broker_port: int, log: Path | None = None) -> None:
        self.port = port
        self.connections = 0
        self._broker_port = broker_port
        self._faults = {direction: DirectionFaults() for direction in BOTH}
        self._links: set[Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._log = log

    @property
    def address(self) -> str:
        """``host:port`` for clients."""
        return f"{HOST}:{self.port}"

    async def __aenter__(self) -> Self:
        await self._accept()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.refuse()

    # -- faults

    def hold(self, *directions: Direction) -> None:
        """Nothing passes in these directions, on any connection, until :meth:`heal`: then what was
        sent meanwhile arrives, as TCP's retransmissions do."""
        self._note(f"hold {', '.join(direction.value for direction in directions)}")
        for direction in directions:
            self._faults[direction].open.clear()

    def black_hole(self) -> None:
        """What is sent on any present connection vanishes for ever, without RST or FIN, as behind a
        firewall that has forgotten them. New connections work."""
        self._note(f"black-hole {len(self._links)} connections")
        for link in self._links:
            link.dead = True

    def delay(self, seconds: float, *directions: Direction) -> None:
        """Everything in these directions arrives ``seconds`` later."""
        self._note(f"delay {seconds:g} s")
        for direction in directions:
            self._faults[direction].delay = seconds

    def throttle(self, rate: float, *directions: Direction) -> None:
        """Each connection carries so many bytes per second in these directions."""
        self._note(f"throttle to {rate:g} B/s")
        for direction in directions:
            self._faults[direction].rate = rate

    def cut(self) -> None:
        """Each present connection ends in the middle of its next response."""
        self._note(f"cut {len(self._links)} connections in mid-frame")
        for link in self._links:
            link.cut_next = True

    async def refuse(self) -> None:
        """End all connections with RST, and refuse new ones until :meth:`heal`."""
        self._note("refuse")
        if self._server is not None:
            self._server.close()
            self._server = None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def heal(self) -> None:
        """No faults any more; connections that were black-holed stay so."""
        self._note("heal")
        for faults in self._faults.values():
            faults.delay, faults.rate = 0.0, None
            faults.open.set()
        for link in self._links:
            link.cut_next = False
        if self._server is None:
            await self._accept()

    # -- connections

    async def _accept(self) -> None:
        self._server = await asyncio.start_server(self._serve, HOST, self.port)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        link: Link | None = None
        try:
            broker = await asyncio.open_connection(HOST, self._broker_port)
            link = Link((reader, writer), broker, self._faults)
            self._links.add(link)
            await link.run()
        except OSError as error:
            self._note(f"the broker cannot be reached: {error}")
        except asyncio.CancelledError:
            pass  # by refuse(); asyncio's streams would log it
        finally:
            if link is not None:
                self._links.discard(link)
            self._tasks.discard(task)
            reset(writer)

    def _note(self, what: str) -> None:
        if self._log is not None:
            with self._log.open("a", encoding="utf-8") as file:
                file.write(f"{time.time():.3f} {self.address} {what}\n")


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection with RST."""
    end: socket.socket | None = writer.get_extra_info("socket")
    if end is not None and end.fileno() >= 0:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(4)
    (size,) = struct.unpack(">i", head)
    return head + await reader.readexactly(size)
