"""The port of ``asyncrevoke run --health-port``: its responses, and who gets none."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import httpx
import pytest
from prometheus_client import CONTENT_TYPE_LATEST
from prometheus_client.parser import text_string_to_metric_families
from unit.handlers.scripted_source import until

from asyncrevoke import Consumer
from asyncrevoke.cli.run.command import _health
from asyncrevoke.cli.run.health_server import HealthResponse, HealthServer, metrics_of_process
from asyncrevoke.cli.run.log_output import LogFormat, LogLevel
from asyncrevoke.cli.run.settings import WorkerSettings
from asyncrevoke.integrations.prometheus import PrometheusMetrics
from asyncrevoke.web.http_port import PortLimits

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping


IMPATIENT = PortLimits(request_seconds=0.1, response_seconds=0.1)


@asynccontextmanager
async def serving(
    response: HealthResponse, limits: PortLimits | None = None
) -> AsyncGenerator[int]:
    async with HealthServer("127.0.0.1", 0, lambda: response, limits) as health:
        yield health.port


async def get(port: int, path: str, method: str = "GET") -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.request(method, f"http://127.0.0.1:{port}{path}")


@pytest.mark.parametrize(
    ("live", "ready", "livez", "readyz"),
    [(True, True, 200, 200), (True, False, 200, 503), (False, False, 503, 503)],
)
async def test_it_responds_with_200_or_503(
    live: bool, ready: bool, livez: int, readyz: int
) -> None:
    async with serving(HealthResponse(live, ready, [{"group": "billing"}])) as port:
        for path, status in ("/livez", livez), ("/readyz?verbose", readyz):
            response = await get(port, path)
            assert response.status_code == status
            assert response.json() == {"ok": status == 200, "consumers": [{"group": "billing"}]}
            assert (await get(port, path, "HEAD")).status_code == status


async def test_readyz_of_a_run_names_the_topics_and_brokers_that_it_cannot_read_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = Consumer("orders", bootstrap_servers="localhost:1", group_id="billing")
    other = Consumer("orders", bootstrap_servers="localhost:1", group_id="audit")
    settings = WorkerSettings(
        ("app:consumer",),
        None,
        False,
        30.0,
        LogLevel.INFO,
        LogFormat.CONSOLE,
        "127.0.0.1",
        0,
        False,
    )
    async with consumer:
        health = consumer.health()._replace(
            heartbeat_age=0.0,
            rejected_topics=frozenset({"payments"}),
            missing_topics=frozenset({"refunds"}),
            unreachable_brokers=("kafka-2:9092",),
        )
        monkeypatch.setattr(consumer, "health", lambda: health)
        async with _health([consumer, other], settings) as served:
            assert isinstance(served, HealthServer)
            readyz = await get(served.port, "/readyz")
            livez = await get(served.port, "/livez")
    assert (readyz.status_code, livez.status_code) == (503, 200)
    assert [each["group"] for each in readyz.json()["consumers"]] == ["billing", "audit"]
    assert readyz.json()["consumers"][0]["reasons"] == [
        "brokers do not respond: kafka-2:9092",
        "topics do not exist: refunds",
        "the brokers reject requests for topics: payments",
    ]


async def test_what_is_no_probe_is_rejected() -> None:
    async with serving(HealthResponse(True, True, [])) as port:
        assert (await get(port, "/")).status_code == 404
        assert (await get(port, "/livez", "POST")).status_code == 405


async def test_metrics_are_served_beside_the_probes_and_only_if_they_are_wanted() -> None:
    consumer = Consumer(bootstrap_servers="localhost:1", group_id="billing", client_id="till")
    response = HealthResponse(True, True, [])
    async with serving(response) as port:
        assert (await get(port, "/metrics")).status_code == 404
    metrics = metrics_of_process([consumer])
    async with consumer, HealthServer("127.0.0.1", 0, lambda: response, metrics=metrics) as health:
        scraped = await get(health.port, "/metrics")
        assert (await get(health.port, "/livez")).status_code == 200
        assert (await get(health.port, "/metrics/")).status_code == 404
    assert scraped.headers["content-type"] == CONTENT_TYPE_LATEST
    families = {family.name: family for family in text_string_to_metric_families(scraped.text)}
    (assigned,) = families["asyncrevoke_partitions_assigned"].samples
    assert (assigned.labels["messaging_client_id"], assigned.value) == ("till", 0)


async def test_an_application_that_observes_its_consumer_itself_has_its_metrics_once() -> None:
    consumer = Consumer(bootstrap_servers="localhost:1", group_id="billing", client_id="till-2")
    consumer.observe(PrometheusMetrics())
    metrics = metrics_of_process([consumer])
    async with consumer:
        text = (await metrics.read()).decode()
    assigned = [line for line in text.splitlines() if line.startswith("asyncrevoke_partitions_ass")]
    assert sum('"till-2"' in line for line in assigned) == 1


async def test_clients_that_scrape_at_once_share_one_collection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collected: list[int] = []
    go_on = threading.Event()

    def slow() -> bytes:
        collected.append(1)
        assert go_on.wait(10)
        return b"text"

    monkeypatch.setattr("prometheus_client.generate_latest", slow)
    metrics = metrics_of_process([Consumer(bootstrap_servers="localhost:1", group_id="billing")])
    reading = [asyncio.create_task(metrics.read()) for _ in range(20)]
    await until(lambda: bool(collected))
    reading[0].cancel()  # a client that has gone
    go_on.set()
    assert await asyncio.gather(*reading[1:]) == [b"text"] * 19
    assert collected == [1]


@pytest.mark.parametrize("sent", [b"", b"GET /livez HTTP/1.1\r\n", b"x" * 100_000, b"\x00\r\n\r\n"])
async def test_a_client_that_does_not_ask_properly_is_cut_off(sent: bytes) -> None:
    async with serving(HealthResponse(True, True, []), IMPATIENT) as port, asyncio.timeout(5):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        with suppress(ConnectionError):
            assert b" 200 " not in await reader.read()
        writer.close()
        assert (await _first_response(port)).status_code == 200


async def _first_response(port: int) -> httpx.Response:
    """The response to a probe; a server without patience may cut off some before."""
    while True:
        with suppress(httpx.TransportError):
            return await get(port, "/livez")


async def test_a_client_that_never_reads_is_cut_off_too() -> None:
    large: list[Mapping[str, object]] = [{"group": "x" * 1000}] * 20_000  # more than sockets buffer
    response = HealthResponse(True, True, large)
    async with HealthServer("127.0.0.1", 0, lambda: response, IMPATIENT) as one:
        _, writer = await asyncio.open_connection("127.0.0.1", one.port, limit=1024)
        writer.write(b"GET /livez HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(10):
            await until(lambda: one.clients > 0)
            await until(lambda: one.clients == 0)
        writer.close()


async def test_a_probe_gets_a_response_while_200_clients_send_nothing() -> None:
    async with serving(HealthResponse(True, True, [])) as port, asyncio.timeout(4):
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]
        assert (await get(port, "/livez")).status_code == 200
        for _, writer in idle:
            writer.close()


async def test_when_too_many_clients_wait_the_oldest_is_dropped_and_a_probe_gets_a_response() -> (
    None
):
    limits = PortLimits(waiting=3)
    async with serving(HealthResponse(True, True, []), limits) as port, asyncio.timeout(4):
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
    limits = PortLimits(responding=2)
    responses = iter([large, large, large])

    def respond() -> HealthResponse:
        return HealthResponse(True, True, next(responses, facts))

    async with HealthServer("127.0.0.1", 0, respond, limits) as one, asyncio.timeout(4):
        stuck: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        for _ in range(3):
            stuck.append(await asyncio.open_connection("127.0.0.1", one.port, limit=1024))
            stuck[-1][1].write(b"GET /livez HTTP/1.1\r\n\r\n")
            await until(lambda: len(one._responding) > min(1, len(stuck) - 1))
        assert (await get(one.port, "/livez")).status_code == 200
        assert one.clients <= 2
        for _, writer in stuck:
            writer.close()


async def test_closing_the_port_ends_its_connections() -> None:
    async with serving(HealthResponse(True, True, [])) as port, asyncio.timeout(4):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(0)
    async with asyncio.timeout(4):
        with suppress(ConnectionError):
            assert await reader.read() == b""
    writer.close()
