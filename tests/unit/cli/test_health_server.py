"""The port of ``asyncrevoke run --health-port``: what it answers, and to whom it does not."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import httpx
import pytest
from unit.handlers.scripted_source import until

from asyncrevoke.cli.run.health_server import HealthAnswer, HealthServer
from asyncrevoke.http_port.server import PortLimits

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping


IMPATIENT = PortLimits(request_seconds=0.1, answer_seconds=0.1)


@asynccontextmanager
async def serving(answer: HealthAnswer, limits: PortLimits | None = None) -> AsyncGenerator[int]:
    async with HealthServer("127.0.0.1", 0, lambda: answer, limits) as health:
        yield health.server.port


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


async def test_what_is_no_probe_is_rejected() -> None:
    async with serving(HealthAnswer(True, True, [])) as port:
        assert (await get(port, "/")).status_code == 404
        assert (await get(port, "/livez", "POST")).status_code == 405


@pytest.mark.parametrize("sent", [b"", b"GET /livez HTTP/1.1\r\n", b"x" * 100_000, b"\x00\r\n\r\n"])
async def test_a_client_that_does_not_ask_properly_is_cut_off(sent: bytes) -> None:
    async with serving(HealthAnswer(True, True, []), IMPATIENT) as port, asyncio.timeout(5):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        with suppress(ConnectionError):
            assert b" 200 " not in await reader.read()
        writer.close()
        assert (await get(port, "/livez")).status_code == 200


async def test_a_client_that_never_reads_is_cut_off_too() -> None:
    large: list[Mapping[str, object]] = [{"group": "x" * 1000}] * 20_000  # more than sockets buffer
    answer = HealthAnswer(True, True, large)
    async with HealthServer("127.0.0.1", 0, lambda: answer, IMPATIENT) as one:
        _, writer = await asyncio.open_connection("127.0.0.1", one.server.port, limit=1024)
        writer.write(b"GET /livez HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(10):
            await until(lambda: one.server.clients > 0)
            await until(lambda: one.server.clients == 0)
        writer.close()


async def test_a_probe_is_answered_while_200_clients_send_nothing() -> None:
    async with serving(HealthAnswer(True, True, [])) as port, asyncio.timeout(4):
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]
        assert (await get(port, "/livez")).status_code == 200
        for _, writer in idle:
            writer.close()


async def test_when_too_many_clients_wait_the_oldest_is_dropped_and_a_probe_is_answered() -> None:
    limits = PortLimits(waiting=3)
    async with serving(HealthAnswer(True, True, []), limits) as port, asyncio.timeout(4):
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        assert (await get(port, "/livez")).status_code == 200
        with suppress(ConnectionError):
            assert await idle[0][0].read() == b""
        assert not idle[1][0].at_eof()
        for _, writer in idle:
            writer.close()


async def test_clients_that_do_not_read_leave_room_for_a_probe() -> None:
    large: list[Mapping[str, object]] = [{"group": "x" * 1000}] * 20_000
    facts: list[Mapping[str, object]] = []
    limits = PortLimits(answering=2)
    answers = iter([large, large, large])

    def answer() -> HealthAnswer:
        return HealthAnswer(True, True, next(answers, facts))

    async with HealthServer("127.0.0.1", 0, answer, limits) as one, asyncio.timeout(4):
        stuck: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        for _ in range(3):
            stuck.append(await asyncio.open_connection("127.0.0.1", one.server.port, limit=1024))
            stuck[-1][1].write(b"GET /livez HTTP/1.1\r\n\r\n")
            await until(lambda: len(one.server._answering) > min(1, len(stuck) - 1))
        assert (await get(one.server.port, "/livez")).status_code == 200
        assert one.server.clients <= 2
        for _, writer in stuck:
            writer.close()


async def test_closing_the_port_ends_its_connections() -> None:
    async with serving(HealthAnswer(True, True, [])) as port, asyncio.timeout(4):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(0)
    async with asyncio.timeout(4):
        with suppress(ConnectionError):
            assert await reader.read() == b""
    writer.close()
