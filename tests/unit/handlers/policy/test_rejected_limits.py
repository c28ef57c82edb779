"""Limits that cannot work are rejected with the fix."""

from __future__ import annotations

from typing import Any, cast

import pytest

from asyncrevoke import Consumer, RateLimit
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.handlers.registry import Router


def rejection(**options: Any) -> str:
    async def handle(value: bytes) -> None: ...

    with pytest.raises(ConfigError) as caught:
        Router().handler("orders", **options)(handle)
    return str(caught.value)


def test_limits_that_cannot_work_are_rejected_with_the_fix() -> None:
    assert "use rate_limit=RateLimit(100, per=1.0)" in rejection(rate_limit=100)
    assert "concurrency=0" in rejection(concurrency=0)
    assert "whole number" in rejection(concurrency=1.5)
    assert "max_in_flight=0" in rejection(max_in_flight=0)
    for calls, per in ((0, 1.0), (1.5, 1.0), (1, 0), (1, -1), (1, "s")):
        with pytest.raises(ConfigError, match="RateLimit"):
            RateLimit(cast("int", calls), per=cast("float", per))


async def test_limits_beyond_those_of_the_consumer_are_rejected_when_it_starts() -> None:
    for options, word in (
        ({"concurrency": 65}, "concurrency=65, and the consumer's concurrency=64"),
        ({"max_in_flight": 2001}, "max_in_flight=2001"),
        ({"batch": True, "max_in_flight": 10}, "max_records=500"),
    ):
        consumer = Consumer(group_id="billing")

        async def handle(value: list[bytes]) -> None: ...

        consumer.handler("orders", **cast("Any", options))(handle)
        with pytest.raises(ConfigError, match=word):
            await consumer.start()
