"""Records that wait in a topic of their own for a further attempt, in virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from unit.handlers.dead_letters.failing_handler import LATER, FailingHandler

from asyncrevoke import (
    BatchError,
    Consumer,
    HandlerContext,
    Record,
    Retry,
    TopicPartition,
)
from asyncrevoke.client.model import OffsetAndMetadata
from asyncrevoke.client.producing.requests import (
    ProduceRequest,
    produce_response,
    produced_batches,
)
from asyncrevoke.client.protocol.messages import ErrorCode
from asyncrevoke.integrations.consumer_metrics import ConsumerMetrics
from asyncrevoke.integrations.conventions import UNWRITTEN
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from kio.schema.produce.v8.response import ProduceResponse


async def test_after_the_attempts_in_place_a_record_comes_back_when_its_delay_has_passed() -> None:
    failing = FailingHandler(2, retry=Retry(attempts=2, backoff=1, jitter=0), retry_topic=LATER)
    async with failing.running() as t:
        await t.publish("orders", "bad", key="a")
        await t.advance(1)
        assert failing.attempts == [(0, 1), (1, 2)]
        await t.advance(59.9)
        assert len(failing.calls) == 2, "it is not due"
        await t.advance(0.1)
        assert failing.attempts == [(0, 1), (1, 2), (61, 3)]
        await t.advance(2)
        assert t.committed("orders", 0) == 1
        assert t.committed("orders.retry", 0) == 1


async def test_a_record_sent_to_a_retry_topic_is_completed_and_its_partition_continues() -> None:
    failing = FailingHandler(9, retry_topic=LATER)
    async with failing.running() as t:
        await t.publish("orders", "bad", key="a")
        await t.publish("orders", "good", key="a")
        await t.advance(2)
        assert [record.value for _, _, record in failing.calls] == [b"bad", b"good"]
        assert t.committed("orders", 0) == 2
        assert t.in_flight == 0, "what waits for its time is not taken yet"


async def test_the_handler_gets_the_record_as_it_was_at_first() -> None:
    failing = FailingHandler(1, retry_topic=LATER)
    async with failing.running() as t:
        await t.publish("orders", "bad", key="a", headers={"trace": "1"}, timestamp=1234)
        await t.advance(60)
        first, again = (record for _, _, record in failing.calls)
        for name in ("topic", "partition", "offset", "timestamp", "key", "value", "headers"):
            assert getattr(again, name) == getattr(first, name), name
        assert failing.keys == [("orders", 0, 0)] * 2


async def test_after_the_delayed_attempts_it_goes_to_the_dead_letter_topic() -> None:
    retry = Retry(attempts=2, backoff=1, jitter=0)
    failing = FailingHandler(9, retry=retry, retry_topic=LATER, dead_letter="dlq")
    async with failing.running() as t:
        await t.publish("orders", "bad", key="a", headers={"trace": "1"}, timestamp=1234)
        await t.advance(200)
        # One call each time that it comes back.
        assert failing.attempts == [(0, 1), (1, 2), (61, 3), (121, 4)]
        (letter,) = t.dead_letters("dlq")
        assert letter.timestamp == t.records("orders.retry")[0].timestamp + 120_000
        assert dict(letter.headers) == {
            "trace": b"1",
            "asyncrevoke-origin-topic": b"orders",
            "asyncrevoke-origin-partition": b"0",
            "asyncrevoke-origin-offset": b"0",
            "asyncrevoke-origin-timestamp": b"1234",
            "asyncrevoke-error-type": b"ConnectionError",
            "asyncrevoke-error-message": b"no 4",
            "asyncrevoke-attempts": b"4",
        }
        assert t.committed("orders.retry", 0) == 2


async def test_after_the_delayed_attempts_without_a_dead_letter_topic_on_error_decides() -> None:
    failing = FailingHandler(9, retry_topic=LATER)
    async with failing.running() as t:
        await t.publish("orders", "bad")
        with pytest.raises(ConnectionError, match="no 3"):
            await t.advance(200)
    skipping = FailingHandler(9, retry_topic=LATER, on_error="skip")
    async with skipping.running() as t:
        await t.publish("orders", "bad")
        await t.advance(200)
        assert len(skipping.calls) == 3
        assert t.committed("orders.retry", 0) == 2


async def test_exceptions_that_retry_on_does_not_name_are_not_sent_to_the_retry_topic() -> None:
    failing = FailingHandler(
        9, retry=Retry(retry_on=TimeoutError), retry_topic=LATER, dead_letter="dlq"
    )
    async with failing.running() as t:
        await t.publish("orders", "bad")
        assert len(t.dead_letters("dlq")) == 1
        assert not t.records("orders.retry")


async def test_a_value_that_does_not_decode_is_not_sent_to_the_retry_topic() -> None:
    consumer = Consumer(group_id="billing")

    @consumer.handler("orders", retry_topic=LATER, dead_letter="dlq")
    async def handle(order: dict[str, int]) -> None: ...

    async with TestConsumer(consumer) as t:
        await t.publish("orders", "no json")
        (letter,) = t.dead_letters("dlq")
        assert dict(letter.headers)["asyncrevoke-attempts"] == b"0"
        assert not t.records("orders.retry")


async def test_records_of_a_retry_topic_are_handled_in_order_when_they_are_due() -> None:
    failing = FailingHandler(1, retry_topic=LATER)
    async with failing.running() as t:
        for number in range(3):
            await t.publish("orders", f"{number}", key="a")
            await t.advance(10)
        await t.advance(60)
        again = [(at, record.value) for at, attempt, record in failing.calls if attempt == 2]
        assert again == [(60, b"0"), (70, b"1"), (80, b"2")]


async def test_records_that_are_not_due_do_not_count_for_max_in_flight() -> None:
    options = {"max_in_flight": 10, "max_poll_records": 10, "concurrency": 1}
    failing = FailingHandler(1, retry_topic=LATER, consumer=options)
    async with failing.running() as t:
        for number in range(50):
            await t.publish("orders", f"{number}")
        await t.advance(5)
        assert len(t.records("orders.retry")) == 50
        for _ in range(50):
            await t.publish("orders", "good")
        assert len(failing.calls) == 100, "the handler and the partition are free"
        assert t.in_flight == 0
        await t.advance(60)
        assert len(failing.calls) == 150


async def test_a_partition_of_a_retry_topic_without_due_records_is_released_at_once() -> None:
    failing = FailingHandler(1, retry_topic=LATER)
    async with failing.running() as t:
        await t.publish("orders", "bad")
        await t.advance(30)
        await t.revoke(("orders.retry", 0))
        await t.advance(2)
        assert TopicPartition("orders.retry", 0) not in t.assignment()
        await t.give(("orders.retry", 0))
        began = t.time
        assert began < 60
        await t.advance(59.9 - began)
        assert len(failing.calls) == 1
        await t.advance(0.1)
        assert len(failing.calls) == 2


async def test_a_withdrawn_revocation_does_not_change_due_times() -> None:
    gate = asyncio.Event()
    consumer = Consumer(group_id="billing", concurrency=8)
    calls: list[tuple[str, int]] = []

    @consumer.handler("orders", retry_topic=LATER)
    async def handle(value: str, context: HandlerContext) -> None:
        calls.append((value, context.attempt))
        if context.attempt == 1:
            raise ConnectionError
        if value == "slow":
            await gate.wait()

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", "slow", key="a")
        await t.advance(30)
        await t.publish("orders", "later", key="b")
        await t.advance(30)
        assert ("slow", 2) in calls
        await t.revoke(("orders.retry", 0))
        await t.withdraw(("orders.retry", 0))
        await t.advance(25)
        assert ("later", 2) not in calls
        await t.advance(10)
        assert calls.count(("later", 2)) == 1
        gate.set()


async def test_closing_does_not_wait_for_records_that_are_not_due() -> None:
    failing = FailingHandler(1, retry_topic=LATER)
    async with failing.running() as t:
        await t.publish("orders", "bad")
        began = t.time
        failing.consumer.stop()
        await t.advance(0)
        assert t.time == began
        assert t.records("orders.retry")


async def test_records_of_a_retry_topic_are_handled_after_a_crash() -> None:
    failing = FailingHandler(1, retry_topic=LATER)
    async with failing.running() as t:
        await t.publish("orders", "bad")
        await t.advance(30)
        await t.crash()
        await t.restart(failing.consumer)
        restarted = t.time
        await t.advance(59.9 - restarted)
        assert len(failing.calls) == 1
        await t.advance(0.2)
        assert failing.attempts[-1][1] == 2


async def test_auto_offset_reset_skips_no_record_of_a_retry_topic() -> None:
    for policy in ("latest", "error"):
        failing = FailingHandler(1, retry_topic=LATER, consumer={"auto_offset_reset": policy})
        other = Consumer(group_id="billing")
        written: list[bytes] = []

        @other.handler("orders.retry")
        async def read(value: bytes, written: list[bytes] = written) -> None:
            written.append(value)

        failing.test = TestConsumer(other, partitions=1)
        async with failing.test as t:
            # Nothing is committed in the partition that comes later.
            await t.crash()
            await t.publish("orders.retry", "left there")
            t._cluster.group.offsets.clear()
            t._cluster.have("orders")
            t._cluster.group.offsets[TopicPartition("orders", 0)] = OffsetAndMetadata(0)
            await t.restart(failing.consumer)
            assert [record.value for _, _, record in failing.calls] == [b"left there"]


async def test_a_record_that_its_retry_topic_rejects_is_held_until_it_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing = FailingHandler(1, retry_topic=LATER)
    metrics = ConsumerMetrics()
    failing.consumer.observe(metrics)
    async with failing.running() as t:
        to_retry_topic = metrics.of({}, "orders.retry")

        def reject(message: ProduceRequest) -> ProduceResponse:
            responses = {tp: ErrorCode.policy_violation for tp, _ in produced_batches(message)}
            return produce_response(responses)

        monkeypatch.setattr(t._cluster, "_produce", reject)
        await t.publish("orders", "bad")
        await t.advance(5)
        assert dict(metrics.gauges())[UNWRITTEN] == [(to_retry_topic, 1)]
        (held,) = failing.consumer.health().unwritten
        assert (held.to_topic, held.records) == ("orders.retry", 1)
        assert held.reason == "a policy of the broker rejects the record"
        probe = failing.consumer.probe()
        assert (probe.live, probe.ready) == (True, False)
        (reason,) = probe.reasons
        assert reason == f"1 failed record cannot be written to orders.retry: {held.reason}"
        assert t.committed("orders", 0) in (None, 0)
        monkeypatch.undo()
        await t.advance(11)
        assert t.committed("orders", 0) == 1
        assert failing.consumer.probe().ready
        assert dict(metrics.gauges())[UNWRITTEN] == [(to_retry_topic, 0)]
        await t.advance(60)
        assert [attempt for _, attempt in failing.attempts] == [1, 2]


async def test_a_batch_of_records_comes_back_as_the_records_of_the_original_topic() -> None:
    consumer = Consumer(group_id="billing")
    calls: list[list[tuple[str, int, int]]] = []

    @consumer.handler("orders", batch=True, max_records=2, retry_topic=LATER)
    async def handle(records: list[Record]) -> None:
        calls.append([(record.topic, record.offset, record.timestamp) for record in records])
        if len(calls) == 1:
            raise ValueError("bad")

    async with TestConsumer(consumer, partitions=1) as t:
        for number in range(2):
            await t.publish("orders", number)
        await t.advance(70)
    assert [[each[:2] for each in call] for call in calls] == [[("orders", 0), ("orders", 1)]] * 2
    assert calls[0] == calls[1]


async def test_the_failed_values_of_a_batch_come_back_as_a_batch() -> None:
    consumer = Consumer(group_id="billing")
    calls: list[tuple[float, list[int], list[str], int]] = []

    @consumer.handler("orders", batch=True, max_records=4, retry_topic=LATER, dead_letter="dlq")
    async def handle(values: list[int], records: list[Record], context: HandlerContext) -> None:
        where = [f"{record.topic}@{record.offset}" for record in records]
        calls.append((t.time, values, where, context.attempt))
        bad = {n: ValueError(f"{value}") for n, value in enumerate(values) if value % 2}
        if bad:
            raise BatchError(bad)

    async with TestConsumer(consumer, partitions=1) as t:
        for number in range(4):
            await t.publish("orders", number)
        await t.advance(1)
        assert t.committed("orders", 0) == 4
        await t.advance(200)
        assert [call[1] for call in calls] == [[0, 1, 2, 3], [1, 3], [1, 3]]
        assert calls[1][2] == ["orders@1", "orders@3"]
        assert [call[3] for call in calls] == [1, 2, 3]
        assert [letter.value for letter in t.dead_letters("dlq")] == [b"1", b"3"]
        assert dict(t.dead_letters("dlq")[0].headers)["asyncrevoke-attempts"] == b"3"
