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
MAILS = 600
DEADLINE = 60.0

pytestmark = [pytest.mark.broker, pytest.mark.timeout(150)]


async def prepare(address: str, topic: str) -> None:
    async with GroupsClient(ConsumerConfig(bootstrap_servers=address)) as brokers:
        await set_group_options(brokers, topic, {"share.auto.offset.reset": "earliest"})
    async with Producer(bootstrap_servers=address) as producer:
        mails = [b"bad" if n == 5 else b"%d" % n for n in range(MAILS)]
        await asyncio.gather(*(producer.publish(topic, mail) for mail in mails))


async def letters_in(address: str, topic: str) -> list[bytes | None]:
    async with TopicReader(topic, bootstrap_servers=address) as reader:
        return [record.value async for batch in reader for record in batch.records]


def sent(path: Path) -> set[str]:
    return {line.split()[1] for line in path.read_text().splitlines() if line.startswith("sent ")}


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_a_killed_worker_loses_no_mail(
    kafka_broker: RunningBroker, kafka_topic: str, tmp_path: Path
) -> None:
    address, letters = kafka_broker.bootstrap_servers, f"{kafka_topic}-letters"
    kafka_broker.create_topic(letters, partitions=1)
    await prepare(address, kafka_topic)
    places = ["--bootstrap", address, "--topic", kafka_topic, "--letters", letters]
    command = [sys.executable, str(EXAMPLE), *places, "--group", kafka_topic]
    paths = [tmp_path / "killed", tmp_path / "other"]
    workers: list[subprocess.Popen[bytes]] = []
    try:
        for path in paths:
            with path.open("wb") as output:
                workers.append(subprocess.Popen(command, stdout=output))
        await until(lambda: len(sent(paths[0])) > MAILS // 10)
        workers[0].kill()
        workers[0].wait(10)
        expected = {str(n) for n in range(MAILS) if n != 5}
        await until(lambda: sent(paths[0]) | sent(paths[1]) == expected)
        workers[1].send_signal(signal.SIGTERM)
        assert workers[1].wait(30) == 0
    finally:
        for worker in workers:
            worker.kill()
            worker.wait(10)
    assert await letters_in(address, letters) == [b"bad"]
