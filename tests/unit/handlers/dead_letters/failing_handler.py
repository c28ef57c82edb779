"""A handler that fails, with a retry topic."""

from __future__ import annotations

from typing import Any

from asyncrevoke import (
    Consumer,
    HandlerContext,
    Record,
    RetryTopic,
)
from asyncrevoke.testing import TestConsumer

LATER = RetryTopic("orders.retry", delay=60, attempts=2)


class FailingHandler:
    """A handler whose records fail as often as ``failures`` says; each call is written down."""

    def __init__(self, failures: int, **options: Any) -> None:
        self.consumer = Consumer(group_id="billing", **options.pop("consumer", {}))
        self.calls: list[tuple[float, int, Record]] = []
        self.keys: list[tuple[str, int, int]] = []
        self.failures = failures
        self.test: TestConsumer | None = None

        @self.consumer.handler("orders", **options)
        async def handle(record: Record, context: HandlerContext) -> None:
            assert self.test is not None
            self.calls.append((round(self.test.time, 2), context.attempt, record))
            self.keys.append(context.idempotency_key)
            if context.attempt <= self.failures and record.value != b"good":
                raise ConnectionError(f"no {context.attempt}")

    def running(self, **options: Any) -> TestConsumer:
        self.test = TestConsumer(self.consumer, partitions=1, **options)
        return self.test

    @property
    def attempts(self) -> list[tuple[float, int]]:
        return [(at, attempt) for at, attempt, _ in self.calls]
