"""Retry topics that cannot work are rejected with the fix."""

from __future__ import annotations

from typing import Any

import pytest
from unit.handlers.dead_letters.failing_handler import LATER

from asyncrevoke import (
    ConfigError,
    Consumer,
    HandlerContext,
    Record,
    Retry,
    RetryTopic,
    Router,
)
from asyncrevoke.testing import TestConsumer


@pytest.mark.parametrize(
    ("options", "fix"),
    [
        ({"retry_topic": "orders.retry"}, r'retry_topic=RetryTopic\("orders.retry", delay=60\)'),
        ({"retry_topic": RetryTopic("orders")}, "leave it out of topics"),
        (
            {"retry_topic": RetryTopic("dlq"), "dead_letter": "dlq"},
            "use another topic for one of them",
        ),
        (
            {"retry_topic": LATER, "retry": Retry(attempts=None)},
            "give it a number of attempts, or leave out retry_topic",
        ),
    ],
)
def test_a_retry_topic_that_cannot_work_is_rejected_with_the_fix(
    options: dict[str, Any], fix: str
) -> None:
    async def handle(value: bytes) -> None: ...

    with pytest.raises(ConfigError, match=fix):
        Router().handler("orders", **options)(handle)


@pytest.mark.parametrize(
    ("arguments", "fix"),
    [
        ({"topic": "later", "delay": 0}, "must be more than 0 s"),
        ({"topic": "later", "delay": -1}, "must be more than 0 s"),
        ({"topic": "later", "delay": 60_000_000}, "if these were milliseconds"),
        ({"topic": "later", "attempts": 0}, "at least 1, or None for no limit"),
        ({"topic": "later", "attempts": True}, "at least 1, or None for no limit"),
        ({"topic": ""}, "topic"),
        ({"topic": "no topic"}, "topic"),
    ],
)
def test_a_retry_topic_with_wrong_values_is_rejected_when_it_is_made(
    arguments: dict[str, Any], fix: str
) -> None:
    with pytest.raises(ConfigError, match=fix):
        RetryTopic(**arguments)


def test_a_retry_topic_belongs_to_one_handler() -> None:
    router = Router()

    async def handle(value: bytes) -> None: ...

    router.handler("orders", retry_topic=LATER)(handle)
    with pytest.raises(ConfigError, match="a retry topic belongs to one handler"):
        router.handler("clicks", retry_topic=LATER)(handle)
    with pytest.raises(ConfigError, match="a retry topic belongs to one handler"):
        router.handler("orders.retry")(handle)


async def test_a_retry_topic_goes_with_a_pattern() -> None:
    consumer = Consumer(group_id="billing")
    calls: list[tuple[str, int]] = []

    @consumer.handler(pattern="orders.*", retry_topic=LATER)
    async def handle(record: Record, context: HandlerContext) -> None:
        calls.append((record.topic, context.attempt))
        if context.attempt == 1:
            raise ConnectionError

    topics = {"orders-eu": 1, "orders.retry": 1}
    async with TestConsumer(consumer, topics=topics) as t:
        await t.publish("orders-eu", "x")
        await t.advance(60)
        assert calls == [("orders-eu", 1), ("orders-eu", 2)]
