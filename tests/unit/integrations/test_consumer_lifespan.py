"""The lifespan of an application with several consumers."""

from __future__ import annotations

import asyncio

import pytest
from unit.runtime.scripted_core import result, scripted_consumer, until

from asyncrevoke import ConfigError
from asyncrevoke.integrations.fastapi import consumer_lifespan


async def test_all_consumers_stop_at_once_and_the_last_one_is_closed_first() -> None:
    ended: list[str] = []
    started: list[str] = []
    first, second = scripted_consumer("orders"), scripted_consumer("orders")

    @first.handler("orders")
    async def handle(value: bytes) -> None:
        started.append("first")
        await until(lambda: first.closes_by is not None)
        ended.append("first")

    @second.handler("orders")
    async def handle_after_the_first_has_ended(value: bytes) -> None:
        started.append("second")
        await until(lambda: ended)
        assert not first.requests.closed
        ended.append("second")

    lifespan = consumer_lifespan(first, second, on_failure="report")
    async with asyncio.timeout(10), lifespan(object()):
        first.deliver(result(1))
        second.deliver(result(1))
        await until(lambda: len(started) == 2)
    assert ended == ["first", "second"]
    assert first.requests.closed
    assert second.requests.closed


async def test_the_failure_of_a_consumer_is_raised_when_all_are_closed() -> None:
    first, second = scripted_consumer("orders"), scripted_consumer("orders")

    @first.handler("orders")
    async def fail(value: bytes) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        async with consumer_lifespan(first, second, on_failure="report")(object()):
            first.deliver(result(1))
            await until(lambda: first.requests.closed)
            assert not second.requests.closed
    assert second.requests.closed


async def test_consumers_that_were_entered_are_closed_if_the_next_one_cannot_be_entered() -> None:
    first, second = scripted_consumer("orders"), scripted_consumer("orders")
    await second.start()  # so that it cannot be entered
    with pytest.raises(Exception, match="entered before"):
        async with consumer_lifespan(first, second)(object()):
            raise AssertionError("unreachable")
    assert first.requests.closed
    await second.aclose()


def test_a_lifespan_without_a_consumer_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="no consumer"):
        consumer_lifespan()
