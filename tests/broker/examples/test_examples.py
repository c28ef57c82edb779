"""The files of examples/ do what they say, against a real broker, run as a user runs them."""

from __future__ import annotations

import asyncio
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
    from collections.abc import Awaitable, Callable

    from asyncrevoke.broker import RunningBroker

EXAMPLES = Path(__file__).parents[3] / "examples"
RECORDS = 60
DEADLINE = 60.0

pytestmark = pytest.mark.broker
every_example = pytest.mark.parametrize("name", ["kip983_loop", "task_group", "handlers"])


async def produce(address: str, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=address) as producer:
        for number in range(RECORDS):
            await producer.send(topic, b"order %d" % number, b"customer %d" % (number % 7))


async def committed(address: str, group: str) -> int:
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    try:
        offsets = await admin.list_consumer_group_offsets(group)
        return sum(offset.offset for offset in offsets.values())
    finally:
        await admin.close()


async def members(address: str, group: str) -> int:
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    try:
        (response,) = cast("list[Any]", await admin.describe_consumer_groups([group]))
        return len(response.groups[0][5])
    finally:
        await admin.close()


def command(name: str, address: str, topic: str, *more: str) -> list[str]:
    places = ["--bootstrap", address, "--topic", topic, "--group", topic]
    return [sys.executable, "-u", str(EXAMPLES / f"{name}.py"), *places, *more]


def billed(output: str) -> list[str]:
    """The values that an example printed, one line a record."""
    return [line.partition(": ")[2] for line in output.splitlines() if ": b'order" in line]


@every_example
async def test_an_example_bills_every_record_once_and_commits_it(
    name: str, kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    address = kafka_broker.bootstrap_servers
    await produce(address, kafka_topic)
    result = await asyncio.to_thread(
        subprocess.run,
        command(name, address, kafka_topic, "--max-records", str(RECORDS)),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    values = billed(result.stdout)
    assert len(values) == RECORDS
    assert len(set(values)) == RECORDS
    assert await committed(address, kafka_topic) == RECORDS
    assert await members(address, kafka_topic) == 0


@every_example
async def test_two_processes_of_an_example_share_the_records_and_bill_none_twice(
    name: str, kafka_broker: RunningBroker, kafka_topic: str, tmp_path: Path
) -> None:
    """The second one joins while the first one works; both are stopped by SIGINT."""
    address = kafka_broker.bootstrap_servers
    outputs = [tmp_path / "first", tmp_path / "second"]
    processes: list[subprocess.Popen[bytes]] = []
    produced = 0

    def count(path: Path) -> int:
        return len(billed(path.read_text())) if path.exists() else 0

    async def until(what: str, condition: Callable[[], Awaitable[bool]]) -> None:
        deadline = time.monotonic() + DEADLINE
        while not await condition():
            assert all(process.poll() is None for process in processes), "one has ended"
            counts = [count(path) for path in outputs]
            assert time.monotonic() < deadline, f"{what}: {counts} of {produced} billed"
            await asyncio.sleep(0.05)

    async def more() -> None:
        nonlocal produced
        await produce(address, kafka_topic)
        produced += RECORDS

    async def half_is_billed() -> bool:
        return count(outputs[0]) >= RECORDS // 2

    async def the_second_one_bills() -> bool:
        if count(outputs[0]) + count(outputs[1]) == produced:
            await more()
        return count(outputs[1]) > 0

    async def all_is_committed() -> bool:
        return await committed(address, kafka_topic) == produced

    try:
        for path, condition in (outputs[0], half_is_billed), (outputs[1], the_second_one_bills):
            await more()
            with path.open("wb") as file:
                own = command(name, address, kafka_topic)
                processes.append(subprocess.Popen(own, stdout=file, stderr=subprocess.STDOUT))
            await until(condition.__name__, condition)
        await until("all_is_committed", all_is_committed)
    finally:
        for process in processes:
            process.send_signal(signal.SIGINT)
        try:
            for process in processes:
                process.wait(DEADLINE)
        finally:
            for process in processes:
                process.kill()
    assert sum(count(path) for path in outputs) == produced
    assert await members(address, kafka_topic) == 0
