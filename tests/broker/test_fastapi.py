"""A consumer in a FastAPI application, served by uvicorn, against a real Apache Kafka."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import httpx
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient

from asyncrevoke import Consumer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from asyncrevoke.broker import RunningBroker

ROOT = Path(__file__).parents[2]
DEADLINE = 30.0

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]

# What the lifespan alone does: no producer, and a handler that the test holds and lets go.
PLAIN = """
import asyncio
import functools
import logging
import os

from fastapi import FastAPI

from asyncrevoke import Consumer

TOPIC = os.environ["TOPIC"]
logging.basicConfig(level="INFO")
consumer = Consumer(bootstrap_servers=os.environ["BOOTSTRAP"], group_id=TOPIC)


@consumer.handler(TOPIC)
async def handle(value: bytes) -> None:
    print("started", value.decode(), flush=True)
    if value == b"bad":
        raise ValueError("no such account")
    await asyncio.to_thread(input)
    print("ended", value.decode(), flush=True)


app = FastAPI(lifespan=consumer.lifespan)
reporting = FastAPI(lifespan=functools.partial(consumer.lifespan, on_failure="report"))


@app.get("/")
@reporting.get("/")
async def root() -> str:
    return "here"
"""


class Server:
    """uvicorn as a process, on a port of its own choice."""

    def __init__(self, folder: Path, broker: RunningBroker, topic: str) -> None:
        self._output = folder / "output"
        self._folder = folder
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "BOOTSTRAP": broker.bootstrap_servers,
            "TOPIC": topic,
            "GROUP": topic,
        }
        self._process: subprocess.Popen[str] | None = None

    @property
    def process(self) -> subprocess.Popen[str]:
        assert self._process is not None
        return self._process

    @property
    def output(self) -> str:
        return self._output.read_text()

    async def start(self, application: str, folder: Path) -> str:
        """Its address, once it takes requests."""
        words = ["--app-dir", str(folder), "--port", "0", application]
        with self._output.open("w") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "uvicorn", *words],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
            )
        await self.until(lambda: "Uvicorn running on" in self.output)
        match = re.search(r"running on (http://[\d.:]+)", self.output)
        assert match, self.output
        return match[1]

    async def start_plain(self, application: str) -> str:
        (self._folder / "plain.py").write_text(PLAIN)
        return await self.start(f"plain:{application}", self._folder)

    async def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE
        while not condition():
            assert self.process.poll() is None, self.output
            assert time.monotonic() < deadline, self.output
            await asyncio.sleep(0.02)

    def let_go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go on\n")
        self.process.stdin.flush()

    async def ended(self) -> int:
        return await asyncio.to_thread(self.process.wait, DEADLINE)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(DEADLINE)
            assert self._process.stdin is not None
            self._process.stdin.close()


@pytest.fixture
def server(tmp_path: Path, kafka_broker: RunningBroker, kafka_topic: str) -> Iterator[Server]:
    process = Server(tmp_path, kafka_broker, kafka_topic)
    yield process
    process.kill()


async def produce(broker: RunningBroker, topic: str, value: bytes) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        await producer.send_and_wait(topic, value)


async def group(broker: RunningBroker, name: str) -> tuple[int, int]:
    """The sum of what is committed, and how many members there are."""
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await admin.start()
    try:
        offsets = await admin.list_consumer_group_offsets(name)
        (answer,) = cast("list[Any]", await admin.describe_consumer_groups([name]))
        return sum(item.offset for item in offsets.values()), len(answer.groups[0][5])
    finally:
        await admin.close()


async def test_the_example_bills_the_orders_that_were_posted_to_it(
    server: Server, kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    address = await server.start("fastapi_app:app", ROOT / "examples")
    async with httpx.AsyncClient(base_url=address) as client:
        for number in range(20):
            order = {"customer": f"customer {number % 2}", "amount": number}
            assert (await client.post("/orders", json=order)).status_code == 202
        sums: list[int] = []
        deadline = time.monotonic() + DEADLINE
        while sums != [90, 100]:
            assert time.monotonic() < deadline, (sums, server.output)
            sums = [(await client.get(f"/billed/customer {number}")).json() for number in (0, 1)]
            await asyncio.sleep(0.02)
    server.process.send_signal(signal.SIGTERM)
    await server.ended()
    assert "Application shutdown complete" in server.output
    assert await group(kafka_broker, kafka_topic) == (20, 0)


async def test_an_order_that_cannot_be_billed_ends_the_example_and_does_not_count(
    server: Server, kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    address = await server.start("fastapi_app:app", ROOT / "examples")
    async with httpx.AsyncClient(base_url=address) as client:
        for amount in 10, -10:
            await client.post("/orders", json={"customer": "one", "amount": amount})
    assert await server.ended() != 0, server.output
    assert "an order of -10" in server.output
    assert await group(kafka_broker, kafka_topic) == (1, 0)


async def test_a_shutdown_waits_for_the_running_handler_and_commits_it(
    server: Server, kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    await produce(kafka_broker, kafka_topic, b"slow")
    await server.start_plain("app")
    await server.until(lambda: "started slow" in server.output)
    server.process.send_signal(signal.SIGTERM)
    await server.until(lambda: "Waiting for application shutdown" in server.output)
    assert "ended slow" not in server.output
    server.let_go()
    await server.ended()
    assert "ended slow" in server.output
    assert "Application shutdown complete" in server.output
    assert await group(kafka_broker, kafka_topic) == (1, 0)


async def test_a_failing_handler_shuts_the_server_down(
    server: Server, kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    await server.start_plain("app")
    await produce(kafka_broker, kafka_topic, b"bad")
    assert await server.ended() == -signal.SIGTERM, server.output
    assert "handlers have stopped the consumer" in server.output
    assert "ValueError: no such account" in server.output
    assert "Application shutdown failed" in server.output
    assert await group(kafka_broker, kafka_topic) == (0, 0)


async def test_with_report_the_server_goes_on_after_a_handler_failed(
    server: Server, kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    address = await server.start_plain("reporting")
    await produce(kafka_broker, kafka_topic, b"bad")
    await server.until(lambda: "handlers have stopped the consumer" in server.output)
    async with httpx.AsyncClient(base_url=address) as client:
        assert (await client.get("/")).json() == "here"
    server.process.send_signal(signal.SIGTERM)
    await server.ended()
    assert "ValueError: no such account" in server.output
    assert await group(kafka_broker, kafka_topic) == (0, 0)


async def test_a_handler_that_fails_while_the_lifespan_ends_sends_no_second_signal(
    kafka_broker: RunningBroker, kafka_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await produce(kafka_broker, kafka_topic, b"value")
    started, go_on = asyncio.Event(), asyncio.Event()
    consumer = Consumer(bootstrap_servers=kafka_broker.bootstrap_servers, group_id=kafka_topic)

    @consumer.handler(kafka_topic)
    async def handle(value: bytes) -> None:
        started.set()
        await go_on.wait()
        raise ValueError("no such account")

    signals: list[int] = []
    monkeypatch.setattr(signal, "raise_signal", signals.append)
    with pytest.raises(ValueError, match="no such account"):
        async with asyncio.timeout(DEADLINE), consumer.lifespan():
            await started.wait()
            asyncio.get_running_loop().call_soon(go_on.set)
    assert signals == []
