"""Members of a share group whose leaders move, and one that ``asyncrevoke run`` runs."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from broker.handlers.share.share_topics import left, member, queue, until
from broker.topics.partition_replicas import move_leader

from asyncrevoke.broker.listeners.ports import free_ports

if TYPE_CHECKING:
    from asyncrevoke.broker import KafkaCluster, RunningBroker

ROOT = Path(__file__).parents[4]
APP = """
import os

from asyncrevoke import Consumer

consumer = Consumer(
    bootstrap_servers=os.environ["BOOTSTRAP"], group_id=os.environ["TOPIC"], group_type="share"
)


@consumer.handler(os.environ["TOPIC"])
async def handle(value: bytes) -> None:
    print("handled", value.decode(), flush=True)
"""

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]


async def test_moved_leaders_lose_no_record(kafka_cluster: KafkaCluster) -> None:
    topic = f"moving-{uuid.uuid4().hex[:8]}"
    await queue(kafka_cluster, topic, 600, partitions=3)
    handled = Counter[bytes]()
    consumer = member(kafka_cluster, topic, concurrency=8)

    @consumer.handler(topic)
    async def handle(value: bytes) -> None:
        await asyncio.sleep(0.02)
        handled[value] += 1

    async with consumer:
        await until(lambda: len(handled) > 50)
        for partition in range(3):
            await asyncio.to_thread(move_leader, kafka_cluster, topic, partition)
        await until(lambda: len(handled) == 600, within=60)
        await until(lambda: consumer.health().in_flight == 0)
    assert await left(kafka_cluster, topic) == []


async def test_members_know_the_lag_of_their_group(kafka_cluster: KafkaCluster) -> None:
    topic = f"lagging-{uuid.uuid4().hex[:8]}"
    await queue(kafka_cluster, topic, 90)
    consumer = member(kafka_cluster, topic, concurrency=8)
    waiting = asyncio.Event()

    @consumer.handler(topic)
    async def handle(value: bytes) -> None:
        # Brokers tell no lag of a partition before its first acknowledgement.
        if value != b"0":
            await waiting.wait()

    def lag() -> int | None:
        share = consumer.health().share
        return None if share is None else share.lag

    async with consumer:
        await until(lambda: lag() == 89, within=40)
        waiting.set()
        await until(lambda: lag() == 0, within=40)


def ready(port: int) -> bool:
    """What /readyz says."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, ConnectionError):
        return False


async def test_the_command_runs_a_member_and_serves_its_readiness(
    kafka_broker: RunningBroker, tmp_path: Path
) -> None:
    topic = f"run-{uuid.uuid4().hex[:8]}"
    await queue(kafka_broker, topic, 20)
    (tmp_path / "app.py").write_text(APP)
    port = next(free_ports())
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "BOOTSTRAP": kafka_broker.bootstrap_servers,
        "TOPIC": topic,
    }
    command = [sys.executable, "-m", "asyncrevoke", "run", "app:consumer"]
    output = tmp_path / "output"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [*command, "--health-port", str(port)], cwd=tmp_path, env=environment, stdout=file
        )
    try:
        await until(lambda: output.read_text().count("handled") == 20, within=60)
        assert await asyncio.to_thread(ready, port)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 30) == 0
    finally:
        process.kill()
        process.wait(10)
    assert await left(kafka_broker, topic) == []
