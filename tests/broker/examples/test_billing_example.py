"""examples/billing.py bills each order once, also one whose record is delivered again."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncrevoke.broker import RunningBroker

EXAMPLE = Path(__file__).parents[3] / "examples" / "billing.py"
ORDERS = 60
DEADLINE = 60.0

pytestmark = [pytest.mark.broker, pytest.mark.timeout(90)]


class Billing:
    """The example on one topic, with one database."""

    def __init__(self, folder: Path, address: str, topic: str) -> None:
        self.address = address
        self.topic = topic
        self.database = folder / "billing.sqlite"
        self._output = folder / "output"
        self._processes: list[subprocess.Popen[bytes]] = []

    async def order(self, *cents: int) -> None:
        async with AIOKafkaProducer(bootstrap_servers=self.address) as producer:
            for number, amount in enumerate(cents):
                customer = f"c{number % 3}"
                value = json.dumps({"customer": customer, "cents": amount}).encode()
                await producer.send(self.topic, value, customer.encode())

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        places = ["--bootstrap", self.address, "--topic", self.topic, "--group", self.topic]
        with self._output.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, EXAMPLE, *places, "--database", self.database, *options],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._processes.append(process)
        return process

    async def ended(self, process: subprocess.Popen[bytes]) -> int:
        return await asyncio.to_thread(process.wait, DEADLINE)

    async def until_handled(self, records: int, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + DEADLINE
        while sum(self.handled().values()) < records:
            assert process.poll() is None, self.output
            assert time.monotonic() < deadline, self.output
            await asyncio.sleep(0.01)

    @property
    def output(self) -> str:
        return self._output.read_text()

    def handled(self) -> Counter[str]:
        lines = [line.partition(f" {self.topic} ") for line in self.output.splitlines()]
        return Counter(what for what, found, _ in lines if found)

    def balances(self) -> dict[str, int]:
        with closing(sqlite3.connect(self.database)) as database:
            return dict(database.execute("SELECT customer, cents FROM balances"))

    def bills(self) -> int:
        with closing(sqlite3.connect(self.database)) as database:
            (count,) = database.execute("SELECT count(*) FROM bills").fetchone()
        return int(count)

    async def rewind(self) -> None:
        """As an operator does who wants everything delivered again."""
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.address, group_id=self.topic, enable_auto_commit=False
        )
        await consumer.start()
        try:
            partitions = [TopicPartition(self.topic, number) for number in range(4)]
            consumer.assign(partitions)
            await consumer.commit(dict.fromkeys(partitions, 0))
        finally:
            await consumer.stop()

    def kill(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait(DEADLINE)


@pytest.fixture
def billing(tmp_path: Path, kafka_broker: RunningBroker, kafka_topic: str) -> Iterator[Billing]:
    example = Billing(tmp_path, kafka_broker.bootstrap_servers, kafka_topic)
    yield example
    example.kill()


def expected() -> dict[str, int]:
    balances = Counter[str]()
    for number in range(ORDERS):
        balances[f"c{number % 3}"] += number
    return dict(balances)


async def test_orders_that_are_delivered_again_are_billed_once(billing: Billing) -> None:
    await billing.order(*range(ORDERS))
    assert await billing.ended(billing.start("--max-records", str(ORDERS))) == 0, billing.output
    assert billing.handled() == {"billed": ORDERS}
    assert billing.balances() == expected()

    await billing.rewind()
    assert await billing.ended(billing.start("--max-records", str(ORDERS))) == 0, billing.output
    assert billing.handled() == {"billed before": ORDERS}
    assert billing.balances() == expected()
    assert billing.bills() == ORDERS


async def test_after_a_kill_in_the_middle_each_order_is_billed_once(billing: Billing) -> None:
    half = ORDERS // 2
    await billing.order(*range(half))
    process = billing.start("--instance", "one")
    await billing.until_handled(ORDERS // 3, process)
    process.kill()
    await billing.ended(process)
    assert ORDERS // 3 <= billing.bills() <= half

    await billing.order(*range(half, ORDERS))
    process = billing.start("--instance", "one")
    deadline = time.monotonic() + DEADLINE
    while billing.bills() < ORDERS:
        assert process.poll() is None, billing.output
        assert time.monotonic() < deadline, billing.output
        await asyncio.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert await billing.ended(process) == 0, billing.output
    assert billing.balances() == expected()
    assert billing.bills() == ORDERS


async def test_an_order_that_cannot_be_billed_leaves_neither_a_bill_nor_a_balance(
    billing: Billing,
) -> None:
    """The balance is rejected after the bill was written: both are undone."""
    await billing.order(-5)
    assert await billing.ended(billing.start()) == 1
    assert "IntegrityError: CHECK constraint failed" in billing.output
    assert billing.bills() == 0
    assert billing.balances() == {}
