"""Viewers and scrapers that hang, in dozens: the consumer that they look at continues."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import ExitStack, asynccontextmanager
from typing import TYPE_CHECKING, cast

import httpx
import pytest
import uvicorn
from aiokafka import AIOKafkaProducer
from prometheus_client import (
    CollectorRegistry,
    make_asgi_app,  # pyright: ignore[reportUnknownVariableType]
    start_http_server,
)
from starlette.applications import Starlette
from starlette.routing import Mount

from asyncrevoke import Consumer
from asyncrevoke.integrations.prometheus import PrometheusMetrics
from asyncrevoke.integrations.starlette import dashboard_routes, health_routes

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.types import ASGIApp

    from asyncrevoke.broker import RunningBroker

RECORDS = 3000
CLIENTS = 20

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


@asynccontextmanager
async def serving(app: Starlette) -> AsyncGenerator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve([listening]))
        try:
            yield int(listening.getsockname()[1])
        finally:
            server.should_exit = True
            await task


def hang(stack: ExitStack, port: int, request: bytes) -> None:
    """Connect, ask, and never read; what the kernel takes meanwhile is little."""
    client = stack.enter_context(socket.socket())
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    client.connect(("127.0.0.1", port))
    client.send(request)


async def test_http_clients_that_never_read_do_not_slow_the_consumer(
    kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    address = kafka_broker.bootstrap_servers
    registry = CollectorRegistry()
    consumer = Consumer(bootstrap_servers=address, group_id=kafka_topic)
    consumer.observe(PrometheusMetrics(registry))
    handled = 0

    @consumer.handler(kafka_topic)
    async def bill(order: bytes) -> None:
        nonlocal handled
        handled += 1

    routes = [*dashboard_routes(consumer), *health_routes(consumer)]
    app = Starlette(routes=[*routes, Mount("/metrics", cast("ASGIApp", make_asgi_app(registry)))])
    scraped, thread = start_http_server(0, "127.0.0.1", registry)

    async def cpu_of_records(producer: AIOKafkaProducer) -> float:
        """What so many records cost this process, viewers and scrapers included."""
        until = handled + RECORDS
        began = time.process_time()
        for number in range(RECORDS):
            await producer.send(kafka_topic, b"order %d" % number)
        async with asyncio.timeout(40):
            while handled < until:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.05)
        return time.process_time() - began

    try:
        async with (
            serving(app) as port,
            consumer,
            AIOKafkaProducer(bootstrap_servers=address) as producer,
        ):
            await cpu_of_records(producer)  # to warm up
            alone = await cpu_of_records(producer)
            with ExitStack() as stack:
                for _ in range(CLIENTS):
                    hang(stack, port, b"GET /dashboard/live HTTP/1.1\r\nHost: x\r\n\r\n")
                    hang(stack, port, b"GET /metrics/ HTTP/1.1\r\nHost: x\r\n\r\n")
                    hang(stack, port, b"GET /metrics/ HTTP/1.1\r\nHo")
                    hang(stack, scraped.server_port, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
                    hang(stack, scraped.server_port, b"GET /metr")
                among_them = await cpu_of_records(producer)
                # And those who read get a response.
                async with httpx.AsyncClient(timeout=20) as client:
                    base = f"http://127.0.0.1:{port}"
                    for path in "/readyz", "/dashboard/view", "/metrics/":
                        assert (await client.get(base + path)).status_code == 200
                    url = f"http://127.0.0.1:{scraped.server_port}/metrics"
                    assert "messaging_process_duration" in (await client.get(url)).text
    finally:
        await asyncio.to_thread(scraped.shutdown)
        scraped.server_close()
        thread.join()
    # A hundred hanging clients cost what they ask for, once.
    assert among_them < 3 * alone + 1, (alone, among_them)
