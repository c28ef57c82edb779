"""Consumers in FastAPI applications, served by uvicorn and hypercorn, on a real Apache Kafka."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
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

ROOT = Path(__file__).parents[3]
DEADLINE = 60.0

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
    while not os.path.exists("go"):  # hypercorn's workers have no stdin
        await asyncio.sleep(0.02)
    print("ended", value.decode(), flush=True)


app = FastAPI(lifespan=consumer.lifespan)
reporting = FastAPI(lifespan=functools.partial(consumer.lifespan, on_failure="report"))


@app.get("/")
@reporting.get("/")
async def root() -> str:
    return "here"
"""


# Two consumers, and a thing that must be open until both have ended.
COMPOSED = """
import asyncio
import logging
import os
from contextlib import asynccontextmanager

from fastapi import FastAPI

from asyncrevoke import Consumer
from asyncrevoke.integrations.fastapi import health_router

TOPIC = os.environ["TOPIC"]
logging.basicConfig(level="INFO")


@asynccontextmanager
async def resource():
    try:
        yield
    finally:
        print("closed the resource", flush=True)


def make_consumer(name):
    consumer = Consumer(bootstrap_servers=os.environ["BOOTSTRAP"], group_id=f"{TOPIC}-{name}")

    @consumer.handler(TOPIC)
    async def handle(value: bytes) -> None:
        print("started", name, flush=True)
        await asyncio.sleep(0.2)
        print("ended", name, flush=True)

    return consumer


first, second = make_consumer("first"), make_consumer("second")


@asynccontextmanager
async def lifespan(app):
    async with resource(), first.lifespan(app), second.lifespan(app):
        yield


app = FastAPI(lifespan=lifespan)
app.include_router(health_router(first, second))
"""


class Server:
    """uvicorn or hypercorn as a process, on a port of its own choice."""

    def __init__(
        self, folder: Path, broker: RunningBroker, topic: str, kind: str = "uvicorn"
    ) -> None:
        self._kind = kind
        self._output = folder / "output"
        self._folder = folder
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "BOOTSTRAP": broker.bootstrap_servers,
            "TOPIC": topic,
            "GROUP": topic,
            "DATABASE": str(folder / "billed.db"),
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
        if self._kind == "uvicorn":
            words = ["--app-dir", str(folder), "--port", "0", application]
        else:
            words = ["--bind", "127.0.0.1:0", application]
            self._environment["PYTHONPATH"] = os.pathsep.join([str(folder), str(ROOT)])
        with self._output.open("w") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._kind, *words],
                cwd=self._folder,
                env=self._environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
            )
        await self.until(lambda: "unning on http" in self.output)
        match = re.search(r"unning on (http://[\d.:]+)", self.output)
        assert match, self.output
        return match[1]

    async def start_plain(self, application: str) -> str:
        return await self.start_text(PLAIN, application)

    async def start_text(self, text: str, application: str) -> str:
        (self._folder / "plain.py").write_text(text)
        return await self.start(f"plain:{application}", self._folder)

    async def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE
        while not condition():
            assert self.process.poll() is None, self.output
            assert time.monotonic() < deadline, self.output
            await asyncio.sleep(0.02)

    def let_go(self) -> None:
        (self._folder / "go").touch()

    async def ended(self) -> int:
        return await asyncio.to_thread(self.process.wait, DEADLINE)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(DEADLINE)


@pytest.fixture
def server(
    tmp_path: Path,
    kafka_broker: RunningBroker,
    kafka_topic: str,
    request: pytest.FixtureRequest,
) -> Iterator[Server]:
    kind = cast("str", getattr(request, "param", "uvicorn"))
    process = Server(tmp_path, kafka_broker, kafka_topic, kind)
    yield process
    process.kill()


both_servers = pytest.mark.parametrize(
    "server", ["uvicorn", pytest.param("hypercorn", marks=pytest.mark.variant)], indirect=True
)


def takes_requests(address: str) -> bool:
    host, _, port = address.removeprefix("http://").partition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


async def produce(broker: RunningBroker, topic: str, value: bytes) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        await producer.send_and_wait(topic, value)


async def group(broker: RunningBroker, name: str) -> tuple[int, int]:
    """The sum of what is committed, and how many members there are."""
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await admin.start()
    try:
        offsets = await admin.list_consumer_group_offsets(name)
        (response,) = cast("list[Any]", await admin.describe_consumer_groups([name]))
        return sum(item.offset for item in offsets.values()), len(response.groups[0][5])
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


async def test_an_order_that_cannot_be_billed_ends_the_example_and_is_not_committed(
    server: Server, kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    address = await server.start("fastapi_app:app", ROOT / "examples")
    async with httpx.AsyncClient(base_url=address) as client:
        for amount in 10, -10:
            await client.post("/orders", json={"customer": "one", "amount": amount})
    assert await server.ended() != 0, server.output
    assert "an order of -10" in server.output
    assert await group(kafka_broker, kafka_topic) == (1, 0)


@both_servers
async def test_a_shutdown_waits_for_the_running_handler_and_commits_it(
    server: Server, kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    await produce(kafka_broker, kafka_topic, b"slow")
    address = await server.start_plain("app")
    await server.until(lambda: "started slow" in server.output)
    server.process.send_signal(signal.SIGTERM)
    await server.until(lambda: not takes_requests(address))
    assert "ended slow" not in server.output
    server.let_go()
    await server.ended()
    assert "ended slow" in server.output
    assert "Traceback" not in server.output
    assert await group(kafka_broker, kafka_topic) == (1, 0)


@both_servers
async def test_composed_lifespans_and_several_consumers_end_in_order(
    server: Server, kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    address = await server.start_text(COMPOSED, "app")
    async with httpx.AsyncClient(base_url=address) as client:
        deadline = time.monotonic() + DEADLINE
        while (response := await client.get("/readyz")).status_code != 200:
            assert time.monotonic() < deadline, response.text
            await asyncio.sleep(0.02)
        assert [each["group"] for each in response.json()["consumers"]] == [
            f"{kafka_topic}-first",
            f"{kafka_topic}-second",
        ]
        assert (await client.get("/livez")).status_code == 200
    await produce(kafka_broker, kafka_topic, b"value")
    await server.until(lambda: server.output.count("started") == 2)
    server.process.send_signal(signal.SIGTERM)
    await server.ended()
    words = [
        line
        for line in server.output.splitlines()
        if line.startswith(("ended", "closed the resource"))
    ]
    assert sorted(words[:2]) == ["ended first", "ended second"]
    assert words[2:] == ["closed the resource"]
    for name in "first", "second":
        assert await group(kafka_broker, f"{kafka_topic}-{name}") == (1, 0)


@both_servers
async def test_a_handler_that_never_ends_delays_shutdown_by_close_timeout_only(
    server: Server, kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    await produce(kafka_broker, kafka_topic, b"slow")
    text = PLAIN.replace("group_id=TOPIC)", "group_id=TOPIC, close_timeout=1)")
    await server.start_text(text, "app")
    await server.until(lambda: "started slow" in server.output)
    began = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    await server.ended()
    assert time.monotonic() - began < 8
    assert await group(kafka_broker, kafka_topic) == (0, 0)


async def test_a_failing_handler_shuts_the_server_down(
    server: Server, kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    await server.start_plain("app")
    await produce(kafka_broker, kafka_topic, b"bad")
    assert await server.ended() == -signal.SIGTERM, server.output
    assert "handler failed; consumer stopped" in server.output
    assert "ValueError: no such account" in server.output
    assert "Application shutdown failed" in server.output
    assert await group(kafka_broker, kafka_topic) == (0, 0)


async def test_with_report_the_server_keeps_running_after_a_handler_failed(
    server: Server, kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    address = await server.start_plain("reporting")
    await produce(kafka_broker, kafka_topic, b"bad")
    await server.until(lambda: "handler failed; consumer stopped" in server.output)
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
