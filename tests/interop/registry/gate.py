"""Forwards connections to a port, refuses them, or lets them wait."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from typing import Self

HOST = "127.0.0.1"


class Gate:
    """Connections to ``port`` are refused until :meth:`listen`, and wait until :meth:`open`."""

    def __init__(self, port: int, to_port: int) -> None:
        self.port = port
        self._to_port = to_port
        self._opened = asyncio.Event()
        self._exits = AsyncExitStack()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._exits.aclose()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def listen(self) -> None:
        """Accept connections."""
        server = await asyncio.start_server(self._accepted, HOST, self.port)
        self._exits.callback(server.close)

    def open(self) -> None:
        """Forward what connections send, and sent before."""
        self._opened.set()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._opened.wait()
            further = await asyncio.open_connection(HOST, self._to_port)
            await asyncio.gather(_pipe(reader, further[1]), _pipe(further[0], writer))
        finally:
            self._tasks.discard(task)
            writer.close()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with suppress(ConnectionError):
            while content := await reader.read(65536):
                writer.write(content)
                await writer.drain()
    finally:
        writer.close()
