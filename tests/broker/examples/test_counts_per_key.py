"""examples/groups/counts_per_key.py on a real broker: members join, leave and are killed."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import admin

from asyncrevoke import ConsumerConfig
from asyncrevoke.client.groups.cluster import GroupsClient
from asyncrevoke.client.groups.errors import GroupsError
from asyncrevoke.client.groups.observer import describe_group

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.broker import RunningBroker

EXAMPLE = Path(__file__).parents[3] / "examples" / "groups" / "counts_per_key.py"
DEADLINE = 60.0
KEYS = 11

pytestmark = pytest.mark.broker


class Members:
    """Processes of the example, which share a database."""

    def __init__(self, address: str, topic: str, folder: Path, protocol: str) -> None:
        self._address, self._group = address, topic
        self._places = ["--bootstrap", address, "--topic", topic, "--group", topic]
        self._places += ["--protocol", protocol]
        self._database = folder / "counts.sqlite"
        self._log = folder / "log"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    async def start(self, name: str) -> None:
        """Start a process, and wait until it owns a partition: SIGTERM would kill it before."""
        before = await self._owning(name)
        arguments = [*self._places, "--database", str(self._database), "--instance", name]
        with self._log.open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-u", str(EXAMPLE), *arguments], stdout=log, stderr=log
            )
        deadline = time.monotonic() + DEADLINE
        while not await self._owning(name) - before:
            assert time.monotonic() < deadline, self._log.read_text()[-5000:]
            await asyncio.sleep(0.02)

    def end(self, name: str, number: signal.Signals) -> int:
        process = self.processes.pop(name)
        process.send_signal(number)
        return process.wait(DEADLINE)

    def counted(self) -> Counter[bytes]:
        return Counter(dict(self._rows("SELECT key, count FROM counts")))

    async def _owning(self, name: str) -> set[str]:
        """The ids under which the member of this name is in the group with partitions."""
        async with GroupsClient(ConsumerConfig(bootstrap_servers=self._address)) as cluster:
            try:
                members = (await describe_group(cluster, self._group)).members
            except GroupsError:  # there is none yet
                return set()
        return {
            member.member_id
            for member in members
            if member.group_instance_id == name and member.assigned
        }

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        if not self._database.exists():
            return []
        with closing(sqlite3.connect(self._database, timeout=10)) as database:
            try:
                return database.execute(query).fetchall()
            except sqlite3.OperationalError:  # no member has made the table yet
                return []

    async def until(self, condition: Callable[[Counter[bytes]], bool]) -> None:
        deadline = time.monotonic() + DEADLINE
        while not condition(self.counted()):
            assert time.monotonic() < deadline, self._log.read_text()[-5000:]
            await asyncio.sleep(0.02)


def set_session_timeout(address: str, group: str, milliseconds: int) -> None:
    """The group waits so long for a killed member (KIP-848), and until then rejects its name."""
    untyped: Any = admin
    entry = untyped.ConfigEntry(
        "consumer.session.timeout.ms",
        str(milliseconds),
        incremental_operation=untyped.AlterConfigOpType.SET,
    )
    group_options = untyped.ConfigResource(
        untyped.ResourceType.GROUP, group, incremental_configs=[entry]
    )
    client = untyped.AdminClient({"bootstrap.servers": address})
    for altered in client.incremental_alter_configs([group_options]).values():
        altered.result(DEADLINE)


@pytest.mark.parametrize(
    "protocol", ["classic", pytest.param("consumer", marks=pytest.mark.variant)]
)
async def test_each_record_is_counted_once_through_joins_leaves_and_kills(
    kafka_broker: RunningBroker, kafka_topic: str, tmp_path: Path, protocol: str
) -> None:
    address = kafka_broker.bootstrap_servers
    members = Members(address, kafka_topic, tmp_path, protocol)
    produced = Counter[bytes]()
    set_session_timeout(address, kafka_topic, 1500)
    async with AIOKafkaProducer(bootstrap_servers=address) as producer:

        async def produce(count: int) -> None:
            for number in range(count):
                key = b"key %d" % (number % KEYS)
                await producer.send(kafka_topic, b"", key)
                produced[key] += 1
            await producer.flush()

        try:
            await produce(2000)
            await members.start("a")
            await members.until(lambda counted: counted.total() > 0)
            await members.start("b")
            await produce(2000)
            half = produced.total() // 2
            await members.until(lambda counted: counted.total() >= half)
            await produce(2000)
            members.end("a", signal.SIGKILL)
            await members.start("a")
            await produce(2000)
            assert members.end("b", signal.SIGTERM) == 0
            await members.start("b")
            await produce(2000)
            await members.until(lambda counted: counted.total() >= produced.total())
            assert members.end("a", signal.SIGTERM) == 0
            assert members.end("b", signal.SIGTERM) == 0
        finally:
            for process in members.processes.values():
                process.kill()
                process.wait()
    assert members.counted() == produced
