"""Results that are published before their topic is known."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from unit.handlers.results.scripted_results_broker import ScriptedResultsBroker, publish

from asyncrevoke.client.errors import ConsumerClosedError, PublishError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedResultsBroker]:
    scripted = ScriptedResultsBroker()
    yield scripted
    await scripted.open_producer().aclose()


def values(broker: ScriptedResultsBroker) -> list[int]:
    return [int(value or b"-1") for _, _, value in broker.written]


async def test_results_for_an_unknown_topic_are_written_in_the_order_of_the_calls(
    broker: ScriptedResultsBroker,
) -> None:
    producer = broker.open_producer()
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        for number in range(200):
            tasks.create_task(publish(producer, "orders", b"%d" % number))
    assert values(broker) == list(range(200))


async def test_a_call_comes_after_those_that_wait_for_its_topic(
    broker: ScriptedResultsBroker,
) -> None:
    producer = broker.open_producer()
    first = asyncio.ensure_future(publish(producer, "orders", b"0"))
    cancelled = asyncio.ensure_future(publish(producer, "orders", b"1"))
    while not (learned := producer._core.is_known("orders")):
        await asyncio.sleep(0)
        cancelled.cancel()
    assert learned
    async with asyncio.timeout(5):
        await publish(producer, "orders", b"2")
        await first
    assert values(broker) == [0, 2]


async def test_all_that_wait_for_a_missing_topic_learn_that_it_is_missing(
    broker: ScriptedResultsBroker,
) -> None:
    broker.missing = {"orders"}
    broker.request_timeout = 0.6
    producer = broker.open_producer()
    async with asyncio.timeout(5):
        calls = [publish(producer, "orders", b"%d" % number) for number in range(3)]
        errors = await asyncio.gather(*calls, return_exceptions=True)
    for error in errors:
        assert isinstance(error, PublishError)
        assert "asyncrevoke topics create orders --bootstrap-servers " in str(error)


async def test_closing_ends_all_that_wait(broker: ScriptedResultsBroker) -> None:
    broker.missing = {"orders"}
    producer = broker.open_producer()
    calls = [asyncio.ensure_future(publish(producer, "orders", b"%d" % n)) for n in range(3)]
    await asyncio.sleep(0)
    await producer.aclose()
    async with asyncio.timeout(5):
        errors = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(error) for error in errors] == [ConsumerClosedError] * 3
