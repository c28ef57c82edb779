"""TestConsumer in fixtures, with plugins of pytest, and with the examples."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest_asyncio
from unit.testing.billing_consumer import Billed, billing

from asyncrevoke import Consumer
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import pytest


@pytest_asyncio.fixture
async def entered() -> AsyncGenerator[tuple[TestConsumer, Billed]]:
    billed = billing(seconds=5)
    async with TestConsumer(billed.consumer) as t:
        yield t, billed


async def test_a_test_consumer_may_be_a_fixture(entered: tuple[TestConsumer, Billed]) -> None:
    t, billed = entered
    await t.publish("orders", {"id": 1})
    await t.advance(5)
    assert billed.orders == [1]


PLUGIN_TEST = """
import asyncio
import pytest
from asyncrevoke import Consumer
from asyncrevoke.testing import TestConsumer

pytestmark = pytest.mark.anyio

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.fixture
async def t():
    consumer = Consumer(group_id="billing")

    @consumer.handler("orders")
    async def bill(value: str) -> None:
        await asyncio.sleep(30)

    async with TestConsumer(consumer) as t:
        yield t

async def test_time_passes(t):
    await t.publish("orders", "x", partition=0)
    await t.advance(32)
    assert t.committed("orders", 0) == 1
"""


def test_a_test_consumer_works_with_the_pytest_plugin_of_anyio(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(PLUGIN_TEST)
    command = [sys.executable, "-m", "pytest", "-p", "no:asyncio", "-W", "error", str(tmp_path)]
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout
    assert "1 passed" in result.stdout


async def test_the_example_of_handlers_can_be_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3]))
    from examples.handlers import make_consumer

    consumer = make_consumer("nowhere:9092", "orders", "billing", max_records=None)
    async with TestConsumer(consumer) as t:
        for n in range(20):
            await t.publish("orders", f"order {n}", key=f"customer {n % 3}")
        await t.advance(3)
        assert t.in_flight == 0
        assert sum(t.committed("orders", n) or 0 for n in range(4)) == 20


async def test_a_handler_that_takes_longer_than_max_poll_interval_keeps_the_membership() -> None:
    """With handlers the loop that lives is the library's own, also with no room for more."""
    consumer = Consumer(group_id="billing", concurrency=1, max_in_flight=1, max_poll_interval=30.0)
    calls: list[int] = []

    @consumer.handler("orders")
    async def bill(order: dict[str, int]) -> None:
        calls.append(order["id"])
        await asyncio.sleep(200.0)

    async with TestConsumer(consumer) as t:
        for number in range(3):
            await t.publish("orders", {"id": number}, partition=0)
        await t.advance(500.0)
        assert consumer.health().state == "stable"
        await t.advance(200.0)
        assert calls == [0, 1, 2]
        assert t.committed("orders", 0) == 3
