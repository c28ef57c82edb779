"""The fixtures for users' tests, in a pytest of their own, with both plugins for asyncio."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from asyncrevoke.broker import RunningBroker

ROOT = Path(__file__).parents[3]

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

TESTS = """
import asyncio
import sys

import pytest

from asyncrevoke import Consumer, Retry

MARK

consumer = Consumer(bootstrap_servers="nowhere:1", group_id="billing")
billed = []


@consumer.handler("orders", retry=Retry(attempts=2, backoff=0.01), dead_letter="orders.dlq")
async def bill(order: dict) -> None:
    if order["amount"] < 0:
        raise ValueError("less than nothing")
    billed.append(order["amount"])


@pytest.mark.parametrize("amount", [1, 2])
async def test_a_module_level_consumer_reads_only_records_of_the_present_test(
    consumer_for, amount
):
    billed.clear()
    async with consumer_for(consumer) as running:
        await running.publish("orders", {"amount": amount}, key="a")
        await running.until_done()
        assert billed == [amount]
    assert consumer.config.bootstrap_servers == ("nowhere:1",)


async def test_dead_letters_go_to_the_tests_broker(consumer_for):
    letters = Consumer("orders.dlq", group_id="letters")
    async with consumer_for(letters) as reading, consumer_for(consumer) as running:
        await running.publish("orders", {"amount": -1}, partition=3)
        await running.until_done()
        async with asyncio.timeout(20):
            batch = await letters.__anext__()
        assert [record.value for record in batch.records] == [b'{"amount":-1}']


async def test_the_group_of_a_test_is_deleted(consumer_for, kafka_broker):
    async with consumer_for(consumer) as running:
        await running.publish("orders", {"amount": 3})
        await running.until_done()
    listed = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "asyncrevoke", "groups", "--json",
        "--bootstrap-servers", kafka_broker.bootstrap_servers,
        stdout=asyncio.subprocess.PIPE,
    )
    groups, _ = await listed.communicate()
    assert listed.returncode == 0
    assert running.group.encode() not in groups


async def test_a_failure_of_the_consumer_is_raised_by_the_test(consumer_for):
    failing = Consumer(group_id="failing")

    @failing.handler("failing")
    async def fail(value: str) -> None:
        raise LookupError(value)

    with pytest.raises(LookupError, match="x"):
        async with consumer_for(failing) as running:
            await running.publish("failing", "x")
            await running.until_done()


async def test_the_topic_is_fresh(kafka_topic, kafka_broker):
    assert kafka_topic.startswith("test_the_topic_is_fresh")
"""
ANYIO = """pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"
"""


@pytest.mark.parametrize(
    "plugin", ["pytest-asyncio", pytest.param("anyio", marks=pytest.mark.variant)]
)
def test_the_fixtures_work_with(plugin: str, tmp_path: Path, kafka_broker: RunningBroker) -> None:
    (tmp_path / "test_it.py").write_text(TESTS.replace("MARK", ANYIO if plugin == "anyio" else ""))
    options = (
        ["-p", "no:asyncio"]
        if plugin == "anyio"
        else ["-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function"]
    )
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-W", "error", *options, str(tmp_path)],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "ASYNCREVOKE_BROKER": kafka_broker.bootstrap_servers,
        },
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "6 passed" in result.stdout
