"""Brokers behind tunnels, which carry bytes: late, or not at all without telling anybody."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from asyncrevoke.broker import KafkaBroker
from asyncrevoke.broker.listeners.ports import free_ports
from asyncrevoke.broker.process.properties import BrokerNode, new_cluster_id

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from typing import Self

HOST = "127.0.0.1"
_CHUNK = 64 * 1024


class _Passage:
    """One connection through a tunnel."""

    def __init__(self) -> None:
        self.swallows = False


class Tunnel:
    """Carries every connection to ``port`` on to a broker. ``delay``: seconds that bytes take, each
    way."""

    def __init__(self, port: int, broker_port: int) -> None:
        self.port = port
        self.delay = 0.0
        self._broker_port = broker_port
        self._passages: set[_Passage] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    def black_hole(self) -> int:
        """From now on nothing passes on the connections that there are, and none is closed; new
        ones work. Returns how many there are."""
        for passage in self._passages:
            passage.swallows = True
        return len(self._passages)

    async def open(self) -> None:
        """Accept connections."""
        self._server = await asyncio.start_server(self._accepted, HOST, self.port)

    async def close(self) -> None:
        """Accept none any more, and end those that there are."""
        if self._server is not None:
            self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        passage = _Passage()
        self._passages.add(passage)
        try:
            with suppress(ConnectionError, asyncio.CancelledError):
                await self._carry(passage, reader, writer)
        finally:
            self._passages.discard(passage)
            self._tasks.discard(task)
            writer.transport.abort()

    async def _carry(
        self, passage: _Passage, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        from_broker, to_broker = await asyncio.open_connection(HOST, self._broker_port)
        ways = [
            asyncio.ensure_future(self._pump(passage, reader, to_broker)),
            asyncio.ensure_future(self._pump(passage, from_broker, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            to_broker.transport.abort()

    async def _pump(
        self, passage: _Passage, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        loop = asyncio.get_running_loop()
        on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def arrive() -> None:
            while True:
                due, data = await on_the_way.get()
                await asyncio.sleep(due - loop.time())
                if not passage.swallows:
                    writer.write(data)
                    await writer.drain()

        arriving = asyncio.ensure_future(arrive())
        try:
            while data := await reader.read(_CHUNK):
                on_the_way.put_nowait((loop.time() + self.delay, data))
        finally:
            arriving.cancel()


class TunnelledCluster:
    """Brokers that tell their clients to come by tunnels, one for each; a context manager."""

    def __init__(self, size: int, properties: Mapping[str, str] | None = None) -> None:
        ports = free_ports()
        nodes = tuple(BrokerNode.choose(ports, node_id) for node_id in range(1, size + 1))
        cluster_id = new_cluster_id()
        self.ways: dict[int, int] = {}
        self.brokers: list[KafkaBroker] = []
        for node in nodes:
            self.ways[node.clients_port] = port = next(ports)
            advertised = f"CLIENTS://{HOST}:{port},BROKERS://{HOST}:{node.brokers_port}"
            broker = KafkaBroker(
                properties={**(properties or {}), "advertised.listeners": advertised},
                heap="384m",
            )
            broker.join_cluster(node.node_id, nodes, cluster_id)
            self.brokers.append(broker)

    def __enter__(self) -> Self:
        for broker in self.brokers:
            broker.launch()
        everyone = {broker.node_id for broker in self.brokers}
        for broker in self.brokers:
            broker.wait_until_ready(everyone)
        return self

    def __exit__(self, *_error: object) -> None:
        for broker in self.brokers:
            broker.close()

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of the tunnels."""
        return ",".join(f"{HOST}:{port}" for port in self.ways.values())

    def around(self, without: KafkaBroker | None = None) -> str:
        """Addresses that no tunnel stands before, of all brokers but one."""
        return ",".join(
            broker.admin_addresses[0] for broker in self.brokers if broker is not without
        )

    @asynccontextmanager
    async def tunnels(self) -> AsyncGenerator[list[Tunnel]]:
        """Inside, the tunnels are open."""
        tunnels = [Tunnel(way, port) for port, way in self.ways.items()]
        for tunnel in tunnels:
            await tunnel.open()
        try:
            yield tunnels
        finally:
            for tunnel in tunnels:
                await tunnel.close()
