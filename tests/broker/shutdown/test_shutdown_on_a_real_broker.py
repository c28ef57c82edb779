"""After SIGTERM a process ends with close_timeout, whatever of it does not end by itself."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient

from asyncrevoke.journal.segments import read, sessions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from asyncrevoke.broker import RunningBroker

ROOT = Path(__file__).parents[3]
PROGRAM = Path(__file__).with_name("stopping_member.py")
# For whatever a slow machine needs; what is waited for would never happen by itself.
PATIENCE = 60.0
CLOSE_TIMEOUT = 4.0
RECORDS = 400


class Member:
    """The program, its output in a file."""

    def __init__(self, folder: Path, broker: RunningBroker, topic: str) -> None:
        self.folder = folder
        self._out = folder / "out"
        self._log = folder / "log"
        self._arguments = (broker.bootstrap_servers, topic)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, protocol: str, stuck: str, close_timeout: float = CLOSE_TIMEOUT) -> None:
        """Start it; ``stuck`` is what does not end."""
        with self._out.open("wb") as out, self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, PROGRAM, *self._arguments, protocol, stuck, str(close_timeout)],
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=out,
                stderr=log,
            )

    @property
    def handled(self) -> list[int]:
        """The offsets whose handlers have begun."""
        return [int(line) for line in self._out.read_text().split() if line.isdigit()]

    @property
    def has_closed(self) -> bool:
        """Whether run() has returned."""
        return "closed" in self._out.read_text()

    @property
    def log(self) -> str:
        """What it has logged."""
        return self._log.read_text()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait while it runs."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert self._process is not None
            assert self._process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            await asyncio.sleep(0.02)

    async def terminate(self) -> int:
        """SIGTERM; the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return await asyncio.to_thread(self._process.wait, PATIENCE)

    def kill(self) -> None:
        """Whatever has become of it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE)


@pytest.fixture
def member(tmp_path: Path, kafka_broker: RunningBroker, kafka_topic: str) -> Iterator[Member]:
    member = Member(tmp_path, kafka_broker, kafka_topic)
    yield member
    member.kill()


async def produce(broker: RunningBroker, topic: str, *keys: bytes) -> None:
    """A record of each key, all in one partition."""
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for key in keys:
            await producer.send(topic, b"value", key, partition=0)


async def committed(broker: RunningBroker, group: str) -> int:
    """The sum of what the group has committed."""
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await admin.start()
    try:
        offsets = await admin.list_consumer_group_offsets(group)
        return sum(offset.offset for offset in offsets.values() if offset.offset > 0)
    finally:
        await admin.close()


BOTH = pytest.mark.parametrize(
    "protocol", ["classic", pytest.param("consumer", marks=pytest.mark.variant)]
)


@BOTH
@pytest.mark.parametrize(
    "stuck", [pytest.param("handler", marks=pytest.mark.variant), "swallowing handler", "listener"]
)
async def test_handlers_that_do_not_end_are_abandoned_after_close_timeout(
    kafka_broker: RunningBroker, kafka_topic: str, member: Member, protocol: str, stuck: str
) -> None:
    await produce(kafka_broker, kafka_topic, b"key")
    member.start(protocol, stuck)
    await member.until(lambda: member.handled == [0])
    assert await member.terminate() == 0, member.log
    assert member.has_closed, member.log
    if stuck != "listener":
        assert member.log.count("close_timeout reached") == 1, member.log
        assert f"{kafka_topic}-0 offset 0" in member.log
    # Both are warnings, which are shown.
    assert (
        "left without notifying the coordinator; partitions move at session timeout"
        not in member.log
    )
    assert "closed without leaving the group; partitions move at session timeout" not in member.log
    assert await committed(kafka_broker, kafka_topic) == (1 if stuck == "listener" else 0)


@BOTH
async def test_sealing_a_journal_segment_does_not_delay_the_exit_of_the_process(
    kafka_broker: RunningBroker, kafka_topic: str, member: Member, protocol: str
) -> None:
    await produce(kafka_broker, kafka_topic, b"key")
    member.start(protocol, "journal")
    await member.until(lambda: member.handled == [0])
    assert await member.terminate() == 0, member.log
    assert member.has_closed, member.log
    assert await committed(kafka_broker, kafka_topic) == 1
    (session,) = sessions(member.folder / "journal")
    (segment,) = session.segments()
    assert not segment.sealed
    content = read(segment)
    assert (content.torn, content.damaged) == (None, None)


@BOTH
async def test_closing_abandons_records_that_wait_behind_a_slow_key(
    kafka_broker: RunningBroker, kafka_topic: str, member: Member, protocol: str
) -> None:
    keys = [b"slow" if number % 2 else b"%d" % number for number in range(RECORDS)]
    await produce(kafka_broker, kafka_topic, *keys)
    member.start(protocol, "slow key", close_timeout=PATIENCE)
    # All of the other keys are done, and half of the records wait behind one that runs.
    await member.until(lambda: len(member.handled) > RECORDS // 2 + 2)
    before = member.handled
    assert await member.terminate() == 0, member.log
    assert member.has_closed
    # Some may have begun between the look at the output and the signal, or until it was heard.
    assert len(member.handled) <= len(before) + 10
    before = member.handled
    # What the slow key's records have let pass is in the completion map, none of it is repeated.
    member.start(protocol, "none")
    await member.until(lambda: len(member.handled) >= RECORDS - len(before))
    assert await member.terminate() == 0, member.log
    assert not set(member.handled) & set(before)
    assert await committed(kafka_broker, kafka_topic) == RECORDS
