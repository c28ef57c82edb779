"""``asyncrevoke run --workers``, ``--reload`` and ``--health-port`` on a real Apache Kafka."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from prometheus_client.parser import text_string_to_metric_families

from asyncrevoke import ConsumerConfig
from asyncrevoke.broker.listeners.ports import free_ports
from asyncrevoke.client.groups.cluster import GroupsClient
from asyncrevoke.client.groups.errors import GroupsError
from asyncrevoke.client.groups.observer import describe_group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.samples import Sample

    from asyncrevoke.broker import RunningBroker
    from asyncrevoke.client.groups.facts import MemberFacts

ROOT = Path(__file__).parents[3]
DEADLINE = 60.0

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

APP = """
import asyncio
import os

from asyncrevoke import Consumer, Record

TOPIC = os.environ["TOPIC"]
VERSION = 1
consumer = Consumer(
    bootstrap_servers=os.environ["BOOTSTRAP"], group_id=TOPIC, session_timeout=6, OPTIONS
)


def say(word: str, order: bytes) -> None:
    # In one write: print() writes each of its arguments by itself if stdout is not buffered.
    os.write(1, f"{word} {os.getpid()} {order.decode()} {VERSION}\\n".encode())


@consumer.handler(TOPIC)
async def bill(order: bytes, record: Record) -> None:
    say("started", order)
    if order == b"crash" and not os.path.exists("crashed"):
        open("crashed", "w").close()
        os._exit(3)
    while order == b"slow" and not os.path.exists("go"):
        await asyncio.sleep(0.02)
    say("ended", order)
"""


class App:
    """``asyncrevoke run`` as a process, its output in files."""

    def __init__(self, folder: Path, broker: RunningBroker, topic: str) -> None:
        self.folder = folder
        self.broker = broker
        self.topic = topic
        self._process: subprocess.Popen[str] | None = None

    def write(self, options: str = "") -> None:
        (self.folder / "app.py").write_text(APP.replace("OPTIONS", options))

    def start(self, *options: str) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "BOOTSTRAP": self.broker.bootstrap_servers,
            "TOPIC": self.topic,
        }
        with (self.folder / "out").open("w") as out, (self.folder / "log").open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "asyncrevoke", "run", "app:consumer", *options],
                cwd=self.folder,
                env=environment,
                stdout=out,
                stderr=log,
                text=True,
            )

    @property
    def process(self) -> subprocess.Popen[str]:
        assert self._process is not None
        return self._process

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def said(self, word: str) -> list[list[str]]:
        # Whole lines: a worker may be writing the last one.
        lines = (self.folder / "out").read_text().split("\n")[:-1]
        return [line.split()[1:] for line in lines if line.startswith(word)]

    def orders(self, word: str) -> list[str]:
        return [order for _, order, _ in self.said(word)]

    async def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + DEADLINE
        while not condition():
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            await asyncio.sleep(0.02)

    async def ended(self) -> int:
        return await asyncio.to_thread(self.process.wait, DEADLINE)

    async def produce(self, *values: bytes, partition: int | None = None) -> None:
        address = self.broker.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=address) as producer:
            for number, value in enumerate(values):
                where = number % 4 if partition is None else partition
                await producer.send_and_wait(self.topic, value, None, where)

    async def members(self) -> tuple[MemberFacts, ...]:
        config = ConsumerConfig(bootstrap_servers=self.broker.bootstrap_servers)
        async with GroupsClient(config) as cluster:
            try:
                return (await describe_group(cluster, self.topic)).members
            except GroupsError:  # there is none yet
                return ()

    async def until_members(self, number: int) -> tuple[MemberFacts, ...]:
        deadline = time.monotonic() + DEADLINE
        while len(found := await self.members()) != number:
            assert time.monotonic() < deadline, (found, self.log)
            await asyncio.sleep(0.05)
        return found

    async def committed(self) -> int:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.broker.bootstrap_servers)
        await admin.start()
        try:
            offsets = await admin.list_consumer_group_offsets(self.topic)
            return sum(item.offset for item in offsets.values())
        finally:
            await admin.close()

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(DEADLINE)


@pytest.fixture
def app(tmp_path: Path, kafka_broker: RunningBroker, kafka_topic: str) -> Iterator[App]:
    application = App(tmp_path, kafka_broker, kafka_topic)
    application.write()
    yield application
    application.kill()


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def status(port: int, path: str) -> tuple[int, dict[str, Any]] | None:
    try:
        async with httpx.AsyncClient() as client:
            response = await client.get(f"http://127.0.0.1:{port}{path}")
            return response.status_code, response.json()
    except httpx.TransportError:
        return None


async def scraped(port: int, sample: str) -> list[Sample]:
    async with httpx.AsyncClient(timeout=20) as client:
        response = await client.get(f"http://127.0.0.1:{port}/metrics")
    assert response.status_code == 200
    families = text_string_to_metric_families(response.text)
    return [each for family in families for each in family.samples if each.name == sample]


async def until_ready(app: App, port: int) -> dict[str, Any]:
    deadline = time.monotonic() + DEADLINE
    while (response := await status(port, "/readyz")) is None or response[0] != 200:
        assert app.process.poll() is None, app.log
        assert time.monotonic() < deadline, (response, app.log)
        await asyncio.sleep(0.05)
    return response[1]


async def until_shared(app: App, port: int) -> None:
    """Wait until each of two workers has two of the four partitions."""
    deadline = time.monotonic() + DEADLINE
    while True:
        body = await until_ready(app, port)
        assigned = [(each["worker"], each["assigned"]) for each in body["consumers"]]
        if assigned == [(1, 2), (2, 2)]:
            return
        assert time.monotonic() < deadline, (body, app.log)
        await asyncio.sleep(0.05)


async def test_workers_share_the_partitions_and_sigterm_drains_all_of_them(app: App) -> None:
    port = next(free_ports())
    app.start("--workers", "2", "--health-port", str(port))
    await until_shared(app, port)
    assert len(await app.members()) == 2
    await app.produce(*[b"slow"] * 8)
    await app.until(lambda: len({pid for pid, *_ in app.said("started")}) == 2)
    app.process.send_signal(signal.SIGTERM)
    await app.until(lambda: app.log.count("draining; a second signal") == 2)
    assert await status(port, "/livez") is not None
    response = await status(port, "/readyz")
    assert response is not None
    assert response[0] == 503
    assert app.orders("ended") == []
    (app.folder / "go").touch()
    assert await app.ended() == 0, app.log
    assert len(app.said("ended")) == len(app.said("started"))
    assert await app.committed() == len(app.said("ended"))
    assert await app.members() == ()
    assert not any(is_running(int(pid)) for pid, *_ in app.said("started"))


async def test_metrics_of_all_workers_are_served_and_a_frozen_worker_is_left_out(app: App) -> None:
    port = next(free_ports())
    app.start("--workers", "2", "--health-port", str(port), "--metrics")
    await until_shared(app, port)

    async def until_assigned(total: int, *workers: str) -> None:
        deadline = time.monotonic() + DEADLINE
        while True:
            assigned = {
                sample.labels["worker"]: sample.value
                for sample in await scraped(port, "asyncrevoke_partitions_assigned")
            }
            if sum(assigned.values()) == total and assigned.keys() == set(workers):
                return
            assert time.monotonic() < deadline, (assigned, app.log)
            await asyncio.sleep(0.05)

    await until_assigned(4, "1", "2")
    await app.produce(*[b"fine"] * 8)
    await app.until(lambda: len(app.said("ended")) == 8)
    consumed = await scraped(port, "messaging_client_consumed_messages_total")
    assert sum(sample.value for sample in consumed) == 8
    assert {sample.labels["worker"] for sample in consumed} == {"1", "2"}
    frozen, _ = sorted({int(pid) for pid, *_ in app.said("ended")})
    os.kill(frozen, signal.SIGSTOP)
    try:
        assert len({s.labels["worker"] for s in await scraped(port, "python_info")}) == 1
    finally:
        os.kill(frozen, signal.SIGCONT)
    app.process.send_signal(signal.SIGTERM)
    assert await app.ended() == 0, app.log


async def test_a_worker_that_dies_is_restarted_while_the_other_runs(app: App) -> None:
    await app.produce(b"crash", *[b"fine"] * 7)
    app.start("--workers", "2")
    await app.until(lambda: "worker exited with an error; restarting it" in app.log)
    assert "ended_by='exit code 3'" in app.log
    await app.until(lambda: {"crash", "fine"} <= set(app.orders("ended")))
    await app.until_members(2)
    await app.until(lambda: app.orders("ended").count("fine") >= 7)
    assert app.log.count("restarting it") == 1
    app.process.send_signal(signal.SIGTERM)
    assert await app.ended() == 0, app.log
    assert await app.committed() == 8


async def test_a_second_sigterm_ends_all_workers_immediately(app: App) -> None:
    await app.produce(*[b"slow"] * 4)
    app.start("--workers", "2")
    await app.until(lambda: app.said("started"))
    app.process.send_signal(signal.SIGTERM)
    await app.until(lambda: "draining; a second signal" in app.log)
    began = time.monotonic()
    app.process.send_signal(signal.SIGTERM)
    assert await app.ended() == -signal.SIGTERM
    assert time.monotonic() - began < 5
    for pid in {int(pid) for pid, *_ in app.said("started")}:
        while is_running(pid):
            assert time.monotonic() - began < 5
            await asyncio.sleep(0.02)


async def test_workers_that_have_not_drained_within_shutdown_timeout_are_killed(app: App) -> None:
    await app.produce(b"slow")
    app.start("--workers", "1", "--shutdown-timeout", "1")
    await app.until(lambda: app.said("started"))
    app.process.send_signal(signal.SIGTERM)
    assert await app.ended() == 1
    assert "worker did not stop in time" in app.log
    assert await app.committed() == 0


async def test_workers_drain_when_their_supervisor_was_killed(app: App) -> None:
    await app.produce(b"slow")
    app.start("--workers", "1")
    await app.until(lambda: app.said("started"))
    app.process.kill()
    await app.ended()
    (app.folder / "go").touch()
    ((pid, *_),) = app.said("started")
    deadline = time.monotonic() + DEADLINE
    while is_running(int(pid)):
        assert time.monotonic() < deadline, app.log
        await asyncio.sleep(0.02)
    assert app.orders("ended") == ["slow"]
    assert await app.committed() == 1


async def test_each_worker_has_a_static_id_of_its_own(app: App) -> None:
    app.write('group_instance_id="billing"')
    app.start("--workers", "2")
    found = await app.until_members(2)
    ids = sorted(str(candidate.group_instance_id) for candidate in found)
    assert ids == ["billing-1", "billing-2"]
    app.process.send_signal(signal.SIGTERM)
    assert await app.ended() == 0, app.log


async def test_a_fenced_worker_ends_all_workers(app: App, tmp_path: Path) -> None:
    app.write('group_instance_id="billing"')
    app.start("--workers", "1")
    await app.until_members(1)
    second = App(tmp_path, app.broker, app.topic)
    (tmp_path / "log").rename(tmp_path / "log of the first")
    second.start("--workers", "1")
    try:
        assert await app.ended() == 1
        log = (tmp_path / "log of the first").read_text()
        assert "FencedInstanceError" in log.partition("fatal error; consumer stopped")[2]
        assert "restarting it" not in log
    finally:
        second.process.send_signal(signal.SIGTERM)
        await second.ended()


async def test_a_changed_file_is_loaded_again_also_after_one_that_cannot_be(app: App) -> None:
    app.start("--reload")
    await app.produce(b"one")
    await app.until(lambda: app.said("ended"))
    path = app.folder / "app.py"
    text = path.read_text()
    path.write_text(text.replace("VERSION = 1", "VERSION ="))
    await app.until(lambda: "waiting for a file to change" in app.log)
    assert "SyntaxError" in app.log
    path.write_text(text.replace("VERSION = 1", "VERSION = 2"))
    await app.produce(b"two")
    await app.until(lambda: "two" in app.orders("ended"))
    assert {version for _, order, version in app.said("ended") if order == "two"} == {"2"}
    app.process.send_signal(signal.SIGINT)
    assert await app.ended() == 0, app.log


async def test_one_process_reports_health_and_slow_clients_do_not_delay_it(app: App) -> None:
    port = next(free_ports())
    app.start("--health-port", str(port))
    await until_ready(app, port)
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
    try:
        for number, client in enumerate(clients):
            client.send(b"GET /livez HTTP/1.1\r\n" + b"\r\n" * (number % 2))  # half of them whole
        await app.produce(*[b"order %d" % number for number in range(20)])
        await app.until(lambda: len(app.said("ended")) == 20)
        response = await status(port, "/livez")
        assert response is not None
        assert response[0] == 200
    finally:
        for client in clients:
            client.close()
    app.process.send_signal(signal.SIGTERM)
    assert await app.ended() == 0, app.log
