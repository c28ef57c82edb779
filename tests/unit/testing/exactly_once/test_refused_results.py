"""Results, dead letters and retries that a broker refuses, with processing="exactly_once"."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest
from unit.testing.exactly_once.test_simulated_faults import AFTER_FIRST_COMMIT, inject, values

from asyncrevoke import Consumer, HandlerContext, Message, Record, Retry, RetryTopic
from asyncrevoke.client.producing.exactly_once import record_transactions
from asyncrevoke.client.producing.record_producer import RecordProducer
from asyncrevoke.client.producing.requests import (
    ProduceRequest,
    produce_response,
    produced_batches,
)
from asyncrevoke.client.protocol.messages import EntityResponse, ErrorCode
from asyncrevoke.errors import ConsumerClosedError, IllegalStateError, PublishError
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from asyncrevoke.client.producing.queueing.result_topics import OutputPartitions
    from asyncrevoke.client.protocol.messages import Request
    from asyncrevoke.testing.fake_kafka.group_state import Reply

NOT_ALLOWED = ErrorCode.topic_authorization_failed
TOO_LARGE = ErrorCode.invalid_record


class Refusals:
    """Refuses what is written to some topics; ``count`` counts the requests."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **errors: ErrorCode) -> None:
        self.errors = errors
        self.count = 0
        inject(monkeypatch, self._handle)

    def _handle(self, message: Request, reply: Reply, process: Callable[[Reply], None]) -> None:
        if isinstance(message, ProduceRequest):
            partitions = [partition for partition, _ in produced_batches(message)]
            for partition in partitions:
                error = self.errors.get(partition.topic)
                if error is not None:
                    self.count += 1
                    reply(EntityResponse(entity=produce_response(dict.fromkeys(partitions, error))))
                    return
        process(reply)


def exactly_once(*topics: str) -> Consumer:
    return Consumer(*topics, group_id="g", processing="exactly_once", transaction_interval=1.0)


@pytest.fixture
def log() -> Iterator[list[str]]:
    """The lines of the library's log."""
    lines: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger, handler = logging.getLogger("asyncrevoke"), Lines()
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield lines
    logger.removeHandler(handler)
    logger.setLevel(level)


def lines_of(log: list[str], text: str) -> list[str]:
    return [line for line in log if text in line]


# -- dead letters ---------------------------------------------------------------------------------


def failing(where: str) -> Consumer:
    consumer = exactly_once()
    options: dict[str, Any] = {"dead_letter": "failed"}
    if where == "failed-later":
        options["retry_topic"] = RetryTopic("failed-later", delay=60, attempts=2)

    @consumer.handler("orders", **options)
    async def bill(value: bytes) -> None:
        if value == b"bad":
            raise ValueError("bad")

    return consumer


@pytest.mark.parametrize("error", [NOT_ALLOWED, TOO_LARGE])
@pytest.mark.parametrize("where", ["failed", "failed-later"])
async def test_a_refused_dead_letter_is_held_until_the_topic_takes_it(
    monkeypatch: pytest.MonkeyPatch,
    log: list[str],
    error: ErrorCode,
    where: str,
) -> None:
    async with TestConsumer(failing(where), partitions=2) as t:
        await t.advance(AFTER_FIRST_COMMIT)
        refusals = Refusals(monkeypatch, **{where: error})
        await t.publish("orders", b"bad", partition=0)
        await t.publish("orders", b"bad", partition=0)
        await t.publish("orders", b"good", partition=1)
        await t.advance(12)
        # It is tried again with a backoff, and all other records are done.
        assert 2 <= refusals.count <= 20
        assert (t.committed("orders", 0), t.committed("orders", 1)) == (0, 1)
        unwritten = t.consumer.health().unwritten
        assert {held.to_topic for held in unwritten} == {where}
        held_lines = lines_of(log, f"to_topic={where}")
        assert len(held_lines) == (1 if error is NOT_ALLOWED else 2), held_lines
        refusals.errors.clear()
        await t.advance(130)
        assert t.committed("orders", 0) == 2
        if where == "failed":
            assert values(t, "failed") == [b"bad", b"bad"]
        assert t.consumer.health().unwritten == ()


async def test_a_revocation_does_not_wait_for_a_refused_dead_letter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with TestConsumer(failing("failed"), partitions=1) as t:
        await t.advance(AFTER_FIRST_COMMIT)
        Refusals(monkeypatch, failed=TOO_LARGE)
        await t.publish("orders", b"bad")
        await t.advance(5)
        await t.revoke(("orders", 0))
        await t.advance(5)
        assert t.consumer.assignment() == frozenset()
        assert t.committed("orders", 0) == 0


async def test_a_refused_dead_letter_of_a_batch_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = exactly_once()

    @consumer.handler("orders", batch=True, max_records=2, max_wait=0.1, dead_letter="failed")
    async def bill(orders: list[bytes]) -> None:
        if b"bad" in orders:
            raise ValueError("bad")

    async with TestConsumer(consumer, partitions=1) as t:
        await t.advance(AFTER_FIRST_COMMIT)
        refusals = Refusals(monkeypatch, failed=TOO_LARGE)
        await t.publish("orders", b"bad")
        await t.publish("orders", b"bad")
        await t.publish("orders", b"good")
        await t.advance(30)
        assert t.committed("orders", 0) == 0
        # With a backoff, from 1 s on.
        assert 2 <= refusals.count <= 20
        refusals.errors.clear()
        await t.advance(70)
        assert (values(t, "failed"), t.committed("orders", 0)) == ([b"bad", b"bad"], 3)


# -- results --------------------------------------------------------------------------------------


async def test_a_refused_result_has_the_policy_of_its_own_handler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = exactly_once()

    @consumer.handler("orders", where=lambda record: record.value == b"1", publish_to="invoices")
    async def first(value: bytes) -> bytes:
        return value

    @consumer.handler("orders", publish_to="invoices", dead_letter="failed")
    async def second(value: bytes) -> bytes:
        return value

    async with TestConsumer(consumer, partitions=1) as t:
        await t.advance(AFTER_FIRST_COMMIT)
        Refusals(monkeypatch, invoices=NOT_ALLOWED)
        await t.publish("orders", b"2")
        await t.advance(10)
        assert (values(t, "failed"), t.committed("orders", 0)) == ([b"2"], 1)
        with pytest.raises(PublishError, match="not authorized"):
            await t.publish("orders", b"1")
            await t.advance(10)


async def test_attempts_of_a_record_with_refused_results_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = exactly_once()
    attempts: list[int] = []

    @consumer.handler(
        "orders", publish_to="invoices", retry=Retry(attempts=3, backoff=1), dead_letter="failed"
    )
    async def bill(value: bytes, context: HandlerContext) -> bytes:
        attempts.append(context.attempt)
        return value

    async with TestConsumer(consumer, partitions=1) as t:
        await t.advance(AFTER_FIRST_COMMIT)
        Refusals(monkeypatch, invoices=NOT_ALLOWED)
        await t.publish("orders", b"1")
        await t.advance(60)
        assert attempts == [1, 2, 3]
        assert (values(t, "failed"), t.committed("orders", 0)) == ([b"1"], 1)


async def test_a_call_publishes_together_what_it_returns_as_a_message() -> None:
    consumer = exactly_once()

    @consumer.handler("orders", publish_to="invoices")
    async def bill(value: bytes, context: HandlerContext) -> Message[bytes]:
        await context.publish("audit", value)
        return Message(value, key=b"k")

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"1")
        await t.advance(10)
        assert (values(t), values(t, "audit")) == ([b"1"], [b"1"])


# -- tasks ----------------------------------------------------------------------------------------


async def billed_in_tasks(consumer: Consumer, calls: list[bytes | None], **options: Any) -> None:
    async with consumer.task_group(**options) as tasks:

        async def bill(record: Record) -> None:
            calls.append(record.value)
            await tasks.publish(record, "invoices", record.value)

        async for batch in consumer:
            for record in batch.records:
                await tasks.submit(bill, record)


async def test_a_refused_result_of_a_task_is_a_failure_of_the_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer, calls = exactly_once("orders"), list[bytes | None]()
    async with TestConsumer(consumer, partitions=1) as t:
        await t.advance(AFTER_FIRST_COMMIT)
        retry = Retry(attempts=2, backoff=1)
        loop = billed_in_tasks(consumer, calls, retry=retry, dead_letter="failed")
        running = asyncio.create_task(loop)
        refusals = Refusals(monkeypatch, invoices=NOT_ALLOWED)
        await t.publish("orders", b"1")
        await t.advance(20)
        assert calls == [b"1", b"1"]
        assert (values(t, "failed"), t.committed("orders", 0)) == ([b"1"], 1)
        refusals.errors.clear()
        await t.publish("orders", b"2")
        await t.advance(5)
        assert (values(t), t.committed("orders", 0)) == ([b"2"], 2)
        consumer.stop()
        await running


async def test_leaving_a_task_group_raises_the_refusal_of_its_last_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer, calls = exactly_once("orders"), list[bytes | None]()
    async with TestConsumer(consumer, partitions=1) as t:
        await t.advance(AFTER_FIRST_COMMIT)

        async def loop() -> None:
            async with consumer.task_group() as tasks:

                async def bill(record: Record) -> None:
                    calls.append(record.value)
                    await tasks.publish(record, "invoices", record.value)

                for record in (await anext(consumer)).records:
                    await tasks.submit(bill, record)

        Refusals(monkeypatch, invoices=NOT_ALLOWED)
        running = asyncio.create_task(loop())
        await t.publish("orders", b"1")
        await t.advance(5)
        with pytest.raises(PublishError, match="not authorized"):
            await running
        assert calls == [b"1"]
        assert t.committed("orders", 0) == 0


# -- loops ----------------------------------------------------------------------------------------


async def test_log_lines_count_the_records_of_a_loop_whose_result_is_refused(
    monkeypatch: pytest.MonkeyPatch, log: list[str]
) -> None:
    consumer, errors = exactly_once("orders"), list[PublishError]()

    async def loop() -> None:
        async for batch in consumer:
            try:
                async with consumer.transaction() as tx:
                    for record in batch.records:
                        tx.publish("invoices", record.value, record=record)
                        tx.publish("audit", record.value, record=record)
            except PublishError as error:
                errors.append(error)
                return

    async with TestConsumer(consumer, partitions=1) as t:
        await t.advance(AFTER_FIRST_COMMIT)
        Refusals(monkeypatch, invoices=NOT_ALLOWED)
        running = asyncio.create_task(loop())
        await t.publish("orders", b"1")
        await t.advance(5)
        await running
        assert len(errors) == 1
    (aborted,) = lines_of(log, "a transaction was aborted")
    assert "records=1" in aborted
    (refused,) = lines_of(log, "results were refused")
    assert "results=1" in refused


# -- calls that have ended ------------------------------------------------------------------------


@pytest.mark.parametrize("publishes_before", [True, False])
async def test_a_task_that_publishes_after_its_call_has_ended_gets_an_error(
    publishes_before: bool,
) -> None:
    consumer = exactly_once()
    errors: list[BaseException] = []
    tasks: list[asyncio.Task[None]] = []

    async def later(context: HandlerContext) -> None:
        await asyncio.sleep(5)
        try:
            await context.publish("invoices", b"late")
        except IllegalStateError as error:
            errors.append(error)

    @consumer.handler("orders")
    async def bill(value: bytes, context: HandlerContext) -> None:
        if publishes_before:
            await context.publish("invoices", value)
        tasks.append(asyncio.create_task(later(context)))

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"1")
        await t.advance(20)
        assert "the call has ended" in str(errors[0])
        assert values(t) == ([b"1"] if publishes_before else [])


async def test_a_call_that_waits_for_a_topic_continues_with_the_next_producer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[RecordProducer] = []
    partitions = RecordProducer.partitions

    async def closed_first(
        self: RecordProducer, topic: str, longest_wait: float | None = None
    ) -> OutputPartitions:
        asked.append(self)
        if len(asked) == 1:
            # As the transactions do when the producer is fenced.
            host = consumer.handler_host.transactions
            assert isinstance(host, record_transactions.RecordTransactions)
            host._producer = None
            await self.aclose()
            raise ConsumerClosedError("the consumer was closed before a result was acknowledged")
        return await partitions(self, topic, longest_wait)

    consumer = exactly_once()

    @consumer.handler("orders")
    async def bill(value: bytes, context: HandlerContext) -> None:
        await context.publish("invoices", value)

    async with TestConsumer(consumer, partitions=1) as t:
        await t.advance(AFTER_FIRST_COMMIT)
        monkeypatch.setattr(RecordProducer, "partitions", closed_first)
        await t.publish("orders", b"1")
        await t.advance(10)
        assert len(set(map(id, asked))) == 2
        assert (values(t), t.committed("orders", 0)) == ([b"1"], 1)
