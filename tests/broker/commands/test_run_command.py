"""``asyncrevoke run`` against a real Apache Kafka: an application as a user writes it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from asyncrevoke.broker import RunningBroker

ROOT = Path(__file__).parents[3]
RECORDS = 40
DEADLINE = 60.0

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]

APP = """
import asyncio
import logging
import os

import structlog

from asyncrevoke import Consumer, Record

TOPIC = os.environ["TOPIC"]
consumer = Consumer(bootstrap_servers=os.environ["BOOTSTRAP"], group_id=TOPIC, concurrency=64)


@consumer.handler(TOPIC)
async def bill(order: bytes, record: Record) -> None:
    print("started", order.decode(), flush=True)
    if order == b"bad":
        raise ValueError("no such account")
    if order == b"exit":
        raise SystemExit(7)
    if order == b"slow":
        await asyncio.to_thread(input)  # goes on until the test lets it
    structlog.get_logger("billing").debug("billed", order=order.decode())
    logging.getLogger("audit").info("audited %s", order.decode())
    print("ended", order.decode(), flush=True)


audit = Consumer(bootstrap_servers=os.environ["BOOTSTRAP"], group_id=TOPIC + "-audit")


@audit.handler(TOPIC)
async def note(order: bytes) -> None:
    print("noted", order.decode(), flush=True)
"""


class App:
    """The application as a process, its output in files."""

    def __init__(self, folder: Path, broker: RunningBroker, topic: str) -> None:
        (folder / "app.py").write_text(APP)
        self._folder = folder
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "BOOTSTRAP": broker.bootstrap_servers,
            "TOPIC": topic,
        }
        self._process: subprocess.Popen[str] | None = None

    @property
    def process(self) -> subprocess.Popen[str]:
        assert self._process is not None
        return self._process

    def start(self, *arguments: str) -> None:
        with (self._folder / "out").open("w") as out, (self._folder / "log").open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "asyncrevoke", "run", "app:consumer", *arguments],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=log,
                text=True,
            )

    def said(self, word: str) -> list[str]:
        # Whole lines: the process may be writing the last one.
        lines = (self._folder / "out").read_text().split("\n")[:-1]
        return [line.partition(" ")[2] for line in lines if line.startswith(word)]

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text()

    async def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE
        while not condition():
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            await asyncio.sleep(0.02)

    async def ended(self) -> int:
        return await asyncio.to_thread(self.process.wait, DEADLINE)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(DEADLINE)
            assert self._process.stdin is not None
            self._process.stdin.close()


@pytest.fixture
def app(tmp_path: Path, kafka_broker: RunningBroker, kafka_topic: str) -> Iterator[App]:
    application = App(tmp_path, kafka_broker, kafka_topic)
    yield application
    application.kill()


async def produce(broker: RunningBroker, topic: str, *values: bytes) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number, value in enumerate(values):
            await producer.send(topic, value, b"key %d" % number)


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


async def test_sigterm_waits_for_the_running_handler_commits_and_exits_with_0(
    app: App, kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    values = [b"order %d" % number for number in range(RECORDS)]
    await produce(kafka_broker, kafka_topic, *values, b"slow")
    app.start()
    await app.until(lambda: len(app.said("ended")) == RECORDS and "slow" in app.said("started"))
    app.process.send_signal(signal.SIGTERM)
    await app.until(lambda: "draining" in app.log)
    assert "slow" not in app.said("ended")
    assert (await group(kafka_broker, kafka_topic))[1] == 1  # still a member while it drains
    assert app.process.stdin is not None
    app.process.stdin.write("go on\n")
    app.process.stdin.flush()
    assert await app.ended() == 0, app.log
    assert sorted(app.said("ended")) == sorted(value.decode() for value in [*values, b"slow"])
    assert await group(kafka_broker, kafka_topic) == (RECORDS + 1, 0)
    assert "Traceback" not in app.log


async def test_sigint_waits_for_the_running_handler_too(
    app: App, kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    await produce(kafka_broker, kafka_topic, b"order")
    app.start()
    await app.until(lambda: app.said("ended") == ["order"])
    app.process.send_signal(signal.SIGINT)
    assert await app.ended() == 0, app.log
    assert await group(kafka_broker, kafka_topic) == (1, 0)


@pytest.mark.parametrize(
    "workers", [("--workers", "1"), pytest.param((), marks=pytest.mark.variant)]
)
async def test_a_signal_drains_all_consumers_that_the_command_names(
    app: App, kafka_broker: RunningBroker, kafka_topic: str, workers: tuple[str, ...]
) -> None:
    await produce(kafka_broker, kafka_topic, b"order")
    app.start("app:audit", *workers)
    await app.until(lambda: app.said("ended") == ["order"] == app.said("noted"))
    app.process.send_signal(signal.SIGTERM)
    assert await app.ended() == 0, app.log
    assert await group(kafka_broker, kafka_topic) == (1, 0)
    assert await group(kafka_broker, f"{kafka_topic}-audit") == (1, 0)


@pytest.mark.parametrize(
    ("order", "code"), [(b"bad", 1), pytest.param(b"exit", 7, marks=pytest.mark.variant)]
)
async def test_if_one_consumer_fails_the_others_leave_their_groups(
    app: App, kafka_broker: RunningBroker, kafka_topic: str, order: bytes, code: int
) -> None:
    await produce(kafka_broker, kafka_topic, b"order")
    app.start("app:audit")
    await app.until(lambda: app.said("ended") == ["order"] == app.said("noted"))
    await produce(kafka_broker, kafka_topic, order)
    assert await app.ended() == code, app.log
    assert app.log.count("Traceback") == 1
    assert (await group(kafka_broker, f"{kafka_topic}-audit"))[1] == 0
    assert app.log.count(" left the group") == 2


async def test_a_failed_handler_exits_with_1_and_its_traceback_is_shown_once(
    app: App, kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    await produce(kafka_broker, kafka_topic, b"bad")
    app.start()
    assert await app.ended() == 1, app.log
    assert app.log.count("Traceback") == 1
    assert 'raise ValueError("no such account")' in app.log
    assert "ValueError: no such account" in app.log
    assert await group(kafka_broker, kafka_topic) == (0, 0)


async def test_sys_exit_in_a_handler_decides_the_exit_code(
    app: App, kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    await produce(kafka_broker, kafka_topic, b"exit")
    app.start()
    assert await app.ended() == 7, app.log
    assert await group(kafka_broker, kafka_topic) == (0, 0)


async def test_as_json_each_line_of_the_log_is_an_object_also_those_of_the_app(
    app: App, kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    await produce(kafka_broker, kafka_topic, b"order")
    app.start("--log-format", "json", "--log-level", "debug")
    await app.until(lambda: app.said("ended") == ["order"])
    await produce(kafka_broker, kafka_topic, b"bad")
    assert await app.ended() == 1, app.log
    lines = [json.loads(line) for line in app.log.splitlines()]
    assert all({"event", "level", "logger", "timestamp"} <= line.keys() for line in lines)
    assert {"asyncrevoke", "billing", "audit"} <= {line["logger"] for line in lines}
    (billed,) = [line for line in lines if line["logger"] == "billing"]
    assert (billed["event"], billed["order"], billed["level"]) == ("billed", "order", "debug")
    (failed,) = [line for line in lines if "exception" in line]
    assert "ValueError: no such account" in failed["exception"]


async def test_lines_below_the_level_are_not_shown(
    app: App, kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    await produce(kafka_broker, kafka_topic, b"order")
    app.start("--log-level", "warning")
    await app.until(lambda: app.said("ended") == ["order"])
    app.process.send_signal(signal.SIGTERM)
    assert await app.ended() == 0
    # A machine that pauses blocks the event loop.
    assert [line for line in app.log.splitlines() if "event loop" not in line] == []
