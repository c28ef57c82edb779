"""What ``asyncrevoke init --docker --keda`` deploys, as processes on a real Apache Kafka."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaProducer
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from asyncrevoke.broker.listeners.ports import free_ports
from asyncrevoke.cli.app import app
from asyncrevoke.cli.demo.run import committed_offsets
from asyncrevoke.client.model import TopicPartition
from benchmarks.costs.scaling import PARTITIONS, Protocol, run

if TYPE_CHECKING:
    from asyncrevoke.broker import RunningBroker

ROOT = Path(__file__).parents[3]
ORDERS = 20
DEADLINE = 60.0

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(sys.platform == "win32", reason="signals"),
]


def project(folder: Path, topic: str) -> list[str]:
    """Write a project that reads the topic; the command of its image."""
    result = CliRunner().invoke(app, ["init", str(folder), "--docker"])
    assert result.exit_code == 0, result.output
    source = folder / "app.py"
    source.write_text(source.read_text("utf-8").replace('"orders', f'"{topic}'), encoding="utf-8")
    lines = (folder / "Dockerfile").read_text("utf-8").splitlines()
    command: list[str] = json.loads(
        next(line.removeprefix("CMD ") for line in lines if line.startswith("CMD "))
    )
    return command


def status_of(port: int, path: str) -> int:
    """The status of a probe; 0 while nobody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
            status: int = response.status
            return status
    except urllib.error.HTTPError as error:
        return error.code
    except (OSError, TimeoutError):
        return 0


def fetched(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
        body: bytes = response.read()
        return body.decode()


async def until_ready(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + DEADLINE
    while await asyncio.to_thread(status_of, port, "/readyz") != 200:
        assert process.poll() is None
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def test_the_images_command_responds_to_probes_and_drains_on_sigterm(
    kafka_broker: RunningBroker, kafka_topic: str, tmp_path: Path
) -> None:
    servers = kafka_broker.bootstrap_servers
    kafka_broker.create_topic(f"{kafka_topic}.dlq", 1)
    folder = tmp_path / f"billing-{uuid.uuid4().hex[:8]}"
    program, *arguments = project(folder, kafka_topic)
    port = next(free_ports())
    assert program == "asyncrevoke"
    arguments[arguments.index("--health-port") + 1] = str(port)
    arguments[arguments.index("--health-host") + 1] = "127.0.0.1"
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for number in range(ORDERS):
            order = json.dumps({"id": number, "amount": 1}).encode()
            await producer.send_and_wait(kafka_topic, order, partition=0)
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "asyncrevoke", *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "BOOTSTRAP_SERVERS": servers},
            stderr=log,
        )
    try:
        await until_ready(port, process)
        assert await asyncio.to_thread(status_of, port, "/livez") == 200
        deadline = time.monotonic() + DEADLINE
        while (tmp_path / "log").read_text().count('"event": "billed"') < ORDERS:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        scraped = await asyncio.to_thread(fetched, port, "/metrics")
        assert [
            sample.value
            for family in text_string_to_metric_families(scraped)
            for sample in family.samples
            if sample.name == "messaging_client_consumed_messages_total"
        ] == [ORDERS]
        process.send_signal(signal.SIGTERM)
        code = await asyncio.to_thread(process.wait, DEADLINE)
    finally:
        process.kill()
        process.wait(DEADLINE)
    assert code == 0, (tmp_path / "log").read_text()
    committed = await committed_offsets(servers, folder.name, [TopicPartition(kafka_topic, 0)])
    assert committed == {TopicPartition(kafka_topic, 0): ORDERS}


@pytest.mark.slow
@pytest.mark.parametrize(
    "protocol", ["cooperative", pytest.param("consumer", marks=pytest.mark.variant)]
)
async def test_a_group_that_is_scaled_from_2_to_8_and_back_loses_and_repeats_nothing(
    kafka_broker: RunningBroker, kafka_topic: str, tmp_path: Path, protocol: Protocol
) -> None:
    topic = f"{kafka_topic}-scaled"
    kafka_broker.create_topic(topic, PARTITIONS)
    servers = kafka_broker.bootstrap_servers
    measured = await run(servers, topic, "scale", protocol, tmp_path, rate=200, pause=5)
    assert measured.handled > 3000
    assert measured.moves > 0
    assert (measured.lost, measured.repeated, measured.out_of_order) == (0, 0, 0)
