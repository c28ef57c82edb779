"""The port of ``asyncrevoke run --health-port``: what it answers, and to whom it does not."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import httpx
import pytest
from unit.scripted_source import until

from asyncrevoke.cli import health_server
from asyncrevoke.cli.health_server import HealthAnswer, HealthServer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


@asynccontextmanager
async def serving(answer: HealthAnswer) -> AsyncGenerator[int]:
    async with HealthServer("127.0.0.1", 0, lambda: answer) as server:
        assert server._server is not None
        yield server._server.sockets[0].getsockname()[1]


async def get(port: int, path: str, method: str = "GET") -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.request(method, f"http://127.0.0.1:{port}{path}")


@pytest.mark.parametrize(
    ("live", "ready", "livez", "readyz"),
    [(True, True, 200, 200), (True, False, 200, 503), (False, False, 503, 503)],
)
async def test_it_answers_with_200_or_503(live: bool, ready: bool, livez: int, readyz: int) -> None:
    async with serving(HealthAnswer(live, ready, [{"group": "billing"}])) as port:
        for path, status in ("/livez", livez), ("/readyz?verbose", readyz):
            answer = await get(port, path)
            assert answer.status_code == status
            assert answer.json() == {"ok": status == 200, "consumers": [{"group": "billing"}]}
            assert (await get(port, path, "HEAD")).status_code == status


async def test_what_is_no_probe_is_refused() -> None:
    async with serving(HealthAnswer(True, True, [])) as port:
        assert (await get(port, "/")).status_code == 404
        assert (await get(port, "/livez", "POST")).status_code == 405


@pytest.mark.parametrize("sent", [b"", b"GET /livez HTTP/1.1\r\n", b"x" * 100_000, b"\x00\r\n\r\n"])
async def test_a_client_that_does_not_ask_properly_is_cut_off(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_server, "PATIENCE", 0.1)
    async with serving(HealthAnswer(True, True, [])) as port, asyncio.timeout(5):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        with suppress(ConnectionError):
            assert b" 200 " not in await reader.read()
        writer.close()
        assert (await get(port, "/livez")).status_code == 200


async def test_a_client_that_never_reads_is_cut_off_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_server, "PATIENCE", 0.1)
    large: list[dict[str, object]] = [{"group": "x" * 1000}] * 20_000  # more than sockets buffer
    async with HealthServer("127.0.0.1", 0, lambda: HealthAnswer(True, True, list(large))) as one:
        assert one._server is not None
        port = one._server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(b"GET /livez HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(10):
            await until(lambda: one._clients > 0)
            await until(lambda: one._clients == 0)
        writer.close()


async def test_above_the_most_clients_the_next_is_cut_off_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(health_server, "_MOST_CLIENTS", 3)
    async with serving(HealthAnswer(True, True, [])) as port, asyncio.timeout(4):
        waiting = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with pytest.raises((ConnectionError, AssertionError)):
            assert await reader.read(1)
        for _, each in [*waiting, (reader, writer)]:
            each.close()
