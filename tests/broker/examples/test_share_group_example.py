"""examples/groups/share_group.py: two workers on one partition, of which one is killed."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from asyncrevoke import Producer, TopicReader
from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.groups.cluster import GroupsClient
from asyncrevoke.client.groups.configs import set_group_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.broker import RunningBroker

EXAMPLE = Path(__file__).parents[3] / "examples" / "groups" / "share_group.py"
ENOUGH = 60
BAD = 5
DEADLINE = 60.0

pytestmark = [pytest.mark.broker, pytest.mark.timeout(150)]


async def begin_at_the_first_mail(address: str, group: str) -> None:
    async with GroupsClient(ConsumerConfig(bootstrap_servers=address)) as brokers:
        await set_group_options(brokers, group, {"share.auto.offset.reset": "earliest"})


class Mails:
    """Mails that go on until they are stopped: whichever worker starts first gets not all."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self.count = 0
        self.stopped = False
        self._producer = producer
        self._topic = topic

    async def publish(self) -> None:
        while not self.stopped:
            n, self.count = self.count, self.count + 1
            await self._producer.publish(self._topic, b"bad" if n == BAD else b"%d" % n)
            await asyncio.sleep(0.002)

    @property
    def good(self) -> set[str]:
        return {str(n) for n in range(self.count) if n != BAD}


async def letters_in(address: str, topic: str) -> list[bytes | None]:
    async with TopicReader(topic, bootstrap_servers=address) as reader:
        return [record.value async for batch in reader for record in batch.records]


async def until_the_bad_mail_is_in(address: str, topic: str) -> None:
    deadline = time.monotonic() + DEADLINE
    while not await letters_in(address, topic):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)


def sent(path: Path) -> set[str]:
    """Of whole lines: a worker may be writing the last one."""
    return {
        line.split()[1] for line in path.read_text().split("\n")[:-1] if line.startswith("sent ")
    }


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


@pytest.mark.kafka_topic(partitions=1)
async def test_a_killed_worker_loses_no_mail(
    kafka_broker: RunningBroker, kafka_topic: str, tmp_path: Path
) -> None:
    address, letters = kafka_broker.bootstrap_servers, f"{kafka_topic}-letters"
    kafka_broker.create_topic(letters, partitions=1)
    await begin_at_the_first_mail(address, kafka_topic)
    places = ["--bootstrap", address, "--topic", kafka_topic, "--letters", letters]
    command = [sys.executable, str(EXAMPLE), *places, "--group", kafka_topic]
    paths = [tmp_path / "killed", tmp_path / "other"]
    workers: list[subprocess.Popen[bytes]] = []
    try:
        for path in paths:
            with path.open("wb") as output:
                workers.append(subprocess.Popen(command, stdout=output))
        async with Producer(bootstrap_servers=address) as producer:
            mails = Mails(producer, kafka_topic)
            publishing = asyncio.create_task(mails.publish())
            await until(lambda: all(len(sent(path)) > ENOUGH for path in paths))
            workers[0].kill()
            workers[0].wait(10)
            mails.stopped = True
            await publishing
        await until(lambda: sent(paths[0]) | sent(paths[1]) == mails.good)
        await until_the_bad_mail_is_in(address, letters)
        workers[1].send_signal(signal.SIGTERM)
        assert workers[1].wait(30) == 0
    finally:
        for worker in workers:
            worker.kill()
            worker.wait(10)
    assert await letters_in(address, letters) == [b"bad"]
