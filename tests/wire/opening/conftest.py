"""Starts a server, and closes it and the connections to it after the test."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from wire.opening.opening_server import LONG, Opening, Server

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.protocol.receive_buffers import ReceiveBuffers
from asyncrevoke.client.runtime.net import handshake
from asyncrevoke.client.runtime.net.handshake import (
    AnsweredVersions,
    OpenedConnection,
    open_connection,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture(autouse=True)
def nothing_was_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "ANSWERED_VERSIONS", AnsweredVersions())


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    running = Server()
    yield running
    await running.stop()


@pytest.fixture
async def opening(server: Server) -> AsyncIterator[Opening]:
    node = await server.start()
    opened: list[OpenedConnection] = []

    async def open_one(**options: Any) -> OpenedConnection:
        config = ConsumerConfig(**options)
        async with asyncio.timeout(LONG):
            opened.append(await open_connection(node, config, ReceiveBuffers(0)))
        return opened[-1]

    yield open_one
    for each in opened:
        each.transport.abort()
        await each.frames.closed.wait()
