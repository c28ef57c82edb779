"""Several handlers of one topic: which of them gets a record, and what holds across them."""

from __future__ import annotations

import asyncio

import pytest

from asyncrevoke import (
    Consumer,
    DecodeError,
    HandlerContext,
    Record,
    Retry,
    RetryTopic,
    UnmatchedRecordError,
    by_header,
)
from asyncrevoke.testing import TestConsumer

CREATED = {"type": "created"}
DELETED = {"type": "deleted"}


async def test_each_record_goes_to_the_handler_whose_header_value_it_has() -> None:
    consumer = Consumer(group_id="billing")
    got: list[tuple[str, bytes]] = []

    @consumer.handler("orders", where=by_header("type", "created", b"imported"))
    async def created(value: bytes) -> None:
        got.append(("created", value))

    @consumer.handler("orders", where=by_header("type", "deleted"))
    async def deleted(value: bytes) -> None:
        got.append(("deleted", value))

    @consumer.handler("orders")
    async def others(value: bytes) -> None:
        got.append(("others", value))

    async with TestConsumer(consumer) as t:
        for number, kind in enumerate(("created", "deleted", "imported", None)):
            await t.publish("orders", str(number), headers={"type": kind}, partition=0)
        await t.publish("orders", "4", partition=0)
        await t.advance(5)
        assert t.committed("orders", 0) == 5
        assert [call.outcome for call in t.calls_of(created)] == ["ok", "ok"]
    assert got == [
        ("created", b"0"),
        ("deleted", b"1"),
        ("created", b"2"),
        ("others", b"3"),
        ("others", b"4"),
    ]


async def test_the_first_registered_of_two_predicates_that_match_gets_the_record() -> None:
    consumer = Consumer(group_id="billing")
    got: list[str] = []

    @consumer.handler("orders")
    async def others(record: Record) -> None:
        got.append("others")

    @consumer.handler("orders", where=lambda record: record.value == b"x")
    async def first(value: bytes) -> None:
        got.append("first")

    @consumer.handler("orders", where=lambda record: record.value is not None)
    async def second(value: bytes) -> None:
        got.append("second")

    async with TestConsumer(consumer) as t:
        await t.publish("orders", "x")
        await t.publish("orders", "y")
        await t.publish("orders", None)
    assert got == ["first", "second", "others"]


async def test_records_of_a_key_are_handled_in_order_by_different_handlers() -> None:
    consumer = Consumer(group_id="billing", concurrency=8)
    running: list[str] = []
    order: list[bytes] = []

    async def handle(value: bytes) -> None:
        assert not running
        running.append("one")
        await asyncio.sleep(0.1)
        running.pop()
        order.append(value)

    @consumer.handler("orders", where=by_header("type", "created"))
    async def created(value: bytes) -> None:
        await handle(value)

    @consumer.handler("orders", where=by_header("type", "deleted"))
    async def deleted(value: bytes) -> None:
        await handle(value)

    async with TestConsumer(consumer) as t:
        for number in range(6):
            headers = CREATED if number % 2 else DELETED
            await t.publish("orders", str(number), key="k", headers=headers, partition=0)
        await t.advance(5)
    assert order == [b"0", b"1", b"2", b"3", b"4", b"5"]


async def test_the_consumer_stops_before_a_record_that_no_handler_takes() -> None:
    consumer = Consumer(group_id="billing")

    @consumer.handler("orders", where=by_header("type", "created"))
    async def created(value: bytes) -> None: ...

    async with TestConsumer(consumer) as t:
        await t.publish("orders", "x", headers=CREATED, partition=0)
        with pytest.raises(UnmatchedRecordError, match="orders-0 at offset 1: no handler"):
            await t.publish("orders", "y", headers=DELETED, partition=0)
        await t.advance(5)
        assert t.committed("orders", 0) == 1


async def test_records_that_no_handler_takes_are_skipped_if_told_so() -> None:
    consumer = Consumer(group_id="billing")

    @consumer.handler("orders", where=by_header("type", "created"), unmatched="skip")
    async def created(value: bytes) -> None: ...

    async with TestConsumer(consumer) as t:
        for headers in (DELETED, CREATED, DELETED):
            await t.publish("orders", "x", headers=headers, partition=0)
        await t.advance(5)
        assert t.committed("orders", 0) == 3
        assert [call.record.offset for call in t.calls] == [1]


async def test_records_that_no_handler_takes_go_to_the_dead_letter_topic_if_told_so() -> None:
    consumer = Consumer(group_id="billing")

    @consumer.handler(
        "orders",
        where=by_header("type", "created"),
        unmatched="dead_letter",
        dead_letter="orders.dlq",
        retry=Retry(attempts=3),
    )
    async def created(value: bytes) -> None: ...

    @consumer.handler("orders", where=by_header("type", "deleted"), on_error="skip")
    async def deleted(value: bytes) -> None: ...

    async with TestConsumer(consumer) as t:
        await t.publish("orders", "x", headers={"type": "moved"}, partition=0)
        await t.advance(5)
        (letter,) = t.dead_letters("orders.dlq")
        assert letter.value == b"x"
        assert dict(letter.headers)["asyncrevoke-error-type"] is not None
        assert t.committed("orders", 0) == 1
        assert t.calls == []


async def test_a_predicate_that_raises_fails_its_record_by_the_policy_of_its_handler() -> None:
    consumer = Consumer(group_id="billing")
    asked: list[int] = []

    def broken(record: Record) -> bool:
        asked.append(record.offset)
        raise LookupError("secret")

    @consumer.handler("orders", where=by_header("type", "created"))
    async def created(value: bytes) -> None: ...

    @consumer.handler("orders", where=broken, dead_letter="orders.dlq", retry=Retry(attempts=3))
    async def deleted(value: bytes) -> None: ...

    @consumer.handler("clicks", where=broken, on_error="stop")
    async def click(value: bytes) -> None: ...

    async with TestConsumer(consumer) as t:
        await t.publish("orders", "x", headers=CREATED, partition=0)
        await t.publish("orders", "y", headers=DELETED, partition=0)
        await t.publish("orders", "z", headers=CREATED, partition=0)
        await t.advance(5)
        assert len(t.dead_letters("orders.dlq")) == 1
        assert t.committed("orders", 0) == 3
        assert asked == [1], "it is asked once for a record"
        with pytest.raises(
            DecodeError, match=r"where=.*broken of .*click failed: LookupError"
        ) as it:
            await t.publish("clicks", "x", partition=0)
        assert "secret" not in str(it.value)
        await t.advance(5)
        assert not t.committed("clicks", 0)


async def test_a_predicate_that_returns_an_awaitable_fails_its_record() -> None:
    consumer = Consumer(group_id="billing")

    async def lookup(record: Record) -> bool:
        raise NotImplementedError

    @consumer.handler("orders", where=lambda record: lookup(record))  # noqa: PLW0108 - an async function itself is rejected
    async def created(value: bytes) -> None: ...

    async with TestConsumer(consumer) as t:
        with pytest.raises(DecodeError, match="TypeError"):
            await t.publish("orders", "x")
        assert t.calls == []


async def test_each_handler_of_a_topic_has_its_own_policy_and_results() -> None:
    consumer = Consumer(group_id="billing")
    seen: list[tuple[str, int]] = []

    @consumer.handler(
        "orders",
        where=by_header("type", "created"),
        retry=Retry(attempts=2, backoff=1, jitter=0),
        dead_letter="orders.dlq",
    )
    async def created(value: bytes, context: HandlerContext) -> None:
        seen.append((context.handler.rpartition(".")[2], context.attempt))
        raise ConnectionError

    @consumer.handler("orders", where=by_header("type", "deleted"), publish_to="deletions")
    async def deleted(value: bytes) -> bytes:
        return b"deleted " + value

    async with TestConsumer(consumer) as t:
        await t.publish("orders", "1", key="a", headers=CREATED, partition=0)
        await t.publish("orders", "2", key="b", headers=DELETED, partition=0)
        await t.advance(5)
        assert [record.value for record in t.records("deletions")] == [b"deleted 2"]
        assert [dead_letter.value for dead_letter in t.dead_letters("orders.dlq")] == [b"1"]
        assert t.committed("orders", 0) == 2
    assert seen == [("created", 1), ("created", 2)]


async def test_a_delayed_retry_is_handled_by_the_handler_that_has_failed() -> None:
    consumer = Consumer(group_id="billing")
    attempts: list[int] = []

    @consumer.handler(
        "orders",
        where=by_header("type", "created"),
        retry_topic=RetryTopic("orders.retry", delay=60),
        on_error="skip",
    )
    async def created(value: bytes, context: HandlerContext) -> None:
        attempts.append(context.attempt)
        if context.attempt < 2:
            raise ConnectionError

    @consumer.handler("orders")
    async def others(value: bytes) -> None:
        raise NotImplementedError

    async with TestConsumer(consumer) as t:
        await t.publish("orders", "1", headers=CREATED, partition=0)
        await t.advance(120)
    assert attempts == [1, 2]


async def test_handlers_with_the_same_pattern_share_its_topics() -> None:
    consumer = Consumer(group_id="billing")
    got: list[str] = []

    @consumer.handler(pattern="orders-.*", where=by_header("type", "created"))
    async def created(value: bytes) -> None:
        got.append("created")

    @consumer.handler(pattern="orders-.*")
    async def others(value: bytes) -> None:
        got.append("others")

    async with TestConsumer(consumer, topics={"orders-eu": 1}) as t:
        await t.publish("orders-eu", "1", headers=CREATED)
        await t.publish("orders-eu", "2", headers=DELETED)
    assert got == ["created", "others"]


async def test_unmatched_records_of_a_batch_handler_leave_its_batches() -> None:
    consumer = Consumer(group_id="billing")
    got: list[list[bytes]] = []

    @consumer.handler(
        "orders", where=by_header("type", "created"), unmatched="skip", batch=True, max_wait=1
    )
    async def created(values: list[bytes]) -> None:
        got.append(values)

    async with TestConsumer(consumer) as t:
        for number, headers in enumerate((CREATED, DELETED, CREATED)):
            await t.publish("orders", str(number), headers=headers, partition=0)
        await t.advance(5)
        assert t.committed("orders", 0) == 3
    assert got == [[b"0", b"2"]]
