"""examples/groups/exactly_once.py is killed: what a reader sees after its restart."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaProducer

from asyncrevoke import TopicReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.broker import RunningBroker

EXAMPLE = Path(__file__).parents[3] / "examples" / "groups" / "exactly_once.py"
ORDERS = 1500
DEADLINE = 60.0

pytestmark = [pytest.mark.broker, pytest.mark.timeout(150)]


async def produce(address: str, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=address) as producer:
        for number in range(ORDERS):
            await producer.send(topic, b"%d" % number, b"customer %d" % (number % 200))


async def until(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert process.poll() is None, "the example has ended"
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_a_killed_example_that_restarts_has_written_each_invoice_once(
    kafka_broker: RunningBroker, kafka_topic: str, tmp_path: Path
) -> None:
    address, invoices = kafka_broker.bootstrap_servers, f"{kafka_topic}-invoices"
    kafka_broker.create_topic(invoices, partitions=2)
    await produce(address, kafka_topic)
    places = ["--bootstrap", address, "--topic", kafka_topic, "--invoices", invoices]
    command = [sys.executable, str(EXAMPLE), *places, "--group", kafka_topic, "--instance", "one"]
    outputs = [tmp_path / "killed", tmp_path / "restarted"]

    def billed(path: Path) -> list[str]:
        # Whole lines: a process may be writing the last one.
        return [line for line in path.read_text().split("\n")[:-1] if line.startswith("billed ")]

    def half_is_billed() -> bool:
        return len(billed(outputs[0])) >= ORDERS // 2

    def each_is_billed() -> bool:
        return len({line for path in outputs for line in billed(path)}) == ORDERS

    running: list[subprocess.Popen[bytes]] = []
    try:
        for path, condition in (outputs[0], half_is_billed), (outputs[1], each_is_billed):
            with path.open("wb") as file:
                running.append(subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT))
            await until(condition, running[-1])
            last = condition is each_is_billed
            running[-1].send_signal(signal.SIGINT if last else signal.SIGKILL)
            assert running[-1].wait(DEADLINE) == (0 if last else -signal.SIGKILL), path.read_text()
    finally:
        for process in running:
            process.kill()
    found: list[bytes | None] = []
    async with TopicReader(
        invoices, bootstrap_servers=address, isolation_level="read_committed"
    ) as reader:
        async for batch in reader:
            found += [record.value for record in batch.records]
    assert sorted(map(str, found)) == sorted(str(b"invoice for %d" % n) for n in range(ORDERS))
