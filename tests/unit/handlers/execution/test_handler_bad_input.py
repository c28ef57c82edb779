"""What a record or its handler can do wrong: one outcome each, and nothing is lost.

The table in docs/how-to/handlers/failures.md says the same in words.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import pytest

from asyncrevoke import (
    Consumer,
    DecodeError,
    HandlerCancelledError,
    HandlerContext,
    Record,
    Retry,
    TopicPartition,
)
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ORDERS = TopicPartition("orders", 0)


class Service:
    """A consumer whose handler does ``what`` with the record "bad", once ``is_mended`` nothing."""

    def __init__(self, what: Callable[[], Awaitable[object]], **options: Any) -> None:
        self.what = what
        self.done: list[str] = []
        self.is_mended = False
        self.consumer = self.made(**options)

    def made(self, **options: Any) -> Consumer:
        consumer = Consumer(group_id="billing")

        @consumer.handler("orders", **options)
        async def handle(value: str) -> object:
            result = await self.what() if value == "bad" and not self.is_mended else None
            self.done.append(value)
            return result

        return consumer

    async def nothing_is_lost(self, t: TestConsumer) -> None:
        """The next member handles the bad record, and what is behind it."""
        assert not {"bad", "last"} & set(self.done)
        self.done.clear()
        self.is_mended = True
        await t.crash()
        await t.restart(self.made())
        await t.advance(2)
        assert self.done[0] == "bad"
        assert "last" in self.done


async def written(t: TestConsumer, *values: str, key: str | None = "a") -> None:
    for value in values:
        await t.publish("orders", value, key=key, partition=0)


async def failing() -> None:
    raise ConnectionError("boom")


# -- a value that does not decode -----------------------------------------------------------------


def consumer_of_numbers(done: list[int], **options: Any) -> Consumer:
    consumer = Consumer(group_id="billing")

    @consumer.handler("orders", **options)
    async def handle(value: int) -> None:
        done.append(value)

    return consumer


async def test_a_value_that_does_not_decode_goes_to_the_dead_letter_topic_without_a_call() -> None:
    done: list[int] = []
    consumer = consumer_of_numbers(done, retry=Retry(), dead_letter="dlq")
    async with TestConsumer(consumer, partitions=1) as t:
        for value in ("1", b"\xff no json", "3"):
            await t.publish("orders", value)
        await t.advance(2)
        assert done == [1, 3]
        assert t.committed("orders", 0) == 3
        (letter,) = t.dead_letters("dlq")
        assert letter.value == b"\xff no json"
        assert dict(letter.headers)["asyncrevoke-error-type"] == b"asyncrevoke.errors.DecodeError"


async def test_a_value_that_does_not_decode_stops_the_consumer_before_it_by_default() -> None:
    done: list[int] = []
    async with TestConsumer(consumer_of_numbers(done), partitions=1) as t:
        await t.publish("orders", "1")
        with pytest.raises(DecodeError, match="orders-0 at offset 1"):
            await t.publish("orders", b"\xff no json")
        assert done == [1]
    assert t.committed("orders", 0) == 1


# -- a handler that raises ------------------------------------------------------------------------


async def test_a_handler_that_raises_stops_the_consumer_and_its_record_is_not_done() -> None:
    service = Service(failing)
    async with TestConsumer(service.consumer, partitions=1) as t:
        await written(t, "first")
        with pytest.raises(ConnectionError, match="boom"):
            await written(t, "bad")
        assert t.committed("orders", 0) == 1
        await written(t, "last")
        await service.nothing_is_lost(t)


async def test_a_handler_that_raises_may_pause_its_partition() -> None:
    service = Service(failing, on_error="pause")
    async with TestConsumer(service.consumer, partitions=2) as t:
        await written(t, "first", "bad", "last")
        await t.publish("orders", "elsewhere", partition=1)
        await t.advance(2)
        assert service.done == ["first", "elsewhere"]
        assert t.committed("orders", 0) == 1
        assert service.consumer.health().paused_partitions == {ORDERS}
        await service.nothing_is_lost(t)


# -- a handler that hangs -------------------------------------------------------------------------


async def hanging() -> None:
    await asyncio.Event().wait()


async def test_a_handler_that_hangs_blocks_its_key_and_its_commits_only() -> None:
    service = Service(hanging)
    async with TestConsumer(service.consumer, partitions=1) as t:
        await written(t, "first", "bad", "last")
        await written(t, "other", key="b")
        await t.advance(60)
        assert service.done == ["first", "other"]
        assert t.committed("orders", 0) == 1
        await service.nothing_is_lost(t)


async def test_a_handler_that_hangs_does_not_keep_its_partition_for_ever() -> None:
    service = Service(hanging)
    async with TestConsumer(service.consumer, partitions=1) as t:
        await written(t, "first", "bad", "last")
        await t.revoke(("orders", 0))
        await t.advance(30)
        assert ORDERS in t.assignment(), "it holds its partition back"
        await t.advance(300)
        assert ORDERS not in t.assignment()
        assert t.committed("orders", 0) == 1
        service.is_mended = True
        await t.give(("orders", 0))
        await t.advance(2)
        assert service.done == ["first", "bad", "last"]


async def test_a_handler_that_hangs_does_not_keep_the_consumer_from_leaving() -> None:
    service = Service(hanging)
    async with TestConsumer(service.consumer, partitions=1) as t:
        await written(t, "first", "bad", "last")
        began = t.time
    assert t.time - began <= 25, "close_timeout"
    assert service.done == ["first"]
    assert t.committed("orders", 0) == 1


async def test_a_handler_that_hangs_fails_at_its_max_handler_time() -> None:
    service = Service(hanging, max_handler_time=10, dead_letter="dlq")
    async with TestConsumer(service.consumer, partitions=1) as t:
        await written(t, "first", "bad", "last")
        await t.advance(12)
        assert service.done == ["first", "last"]
        assert t.committed("orders", 0) == 3
        (letter,) = t.dead_letters("dlq")
        name = dict(letter.headers)["asyncrevoke-error-type"]
        assert name == b"asyncrevoke.errors.HandlerTimeoutError"


# -- what it returns ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "garbage", [False, 42, ValueError("returned"), NotImplemented, object, [Ellipsis]], ids=repr
)
async def test_what_a_handler_returns_is_ignored(garbage: object) -> None:
    async def returning() -> object:
        return garbage

    service = Service(returning)
    async with TestConsumer(service.consumer, partitions=1) as t:
        await written(t, "first", "bad", "last")
        await t.advance(2)
        assert service.done == ["first", "bad", "last"]
        assert t.committed("orders", 0) == 3


# -- sys.exit -------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [{}, {"on_error": "skip"}, {"dead_letter": "dlq"}])
async def test_sys_exit_in_a_handler_stops_the_consumer_whatever_the_policy(
    policy: dict[str, Any],
) -> None:
    async def exiting() -> None:
        sys.exit(3)

    service = Service(exiting, retry=Retry(), **policy)
    async with TestConsumer(service.consumer, partitions=1) as t:
        await written(t, "first")
        with pytest.raises(SystemExit):
            await written(t, "bad")
        assert t.committed("orders", 0) == 1
        assert not t.records("dlq")
        await written(t, "last")
        await service.nothing_is_lost(t)


# -- cancelled from outside -----------------------------------------------------------------------


async def test_a_handler_cancelled_from_outside_has_failed() -> None:
    tasks: list[asyncio.Task[Any] | None] = []

    async def waiting() -> None:
        tasks.append(asyncio.current_task())
        await asyncio.Event().wait()

    service = Service(waiting, dead_letter="dlq", retry=Retry(attempts=2, backoff=1, jitter=0))
    async with TestConsumer(service.consumer, partitions=1) as t:
        await written(t, "first", "bad", "last")
        for call in range(2):
            task = tasks[call]
            assert task is not None
            task.cancel()
            await t.advance(1)
        assert service.done == ["first", "last"], "others go on"
        await t.advance(2)
        assert t.committed("orders", 0) == 3
        (letter,) = t.dead_letters("dlq")
        assert dict(letter.headers)["asyncrevoke-attempts"] == b"2"


async def test_a_cancellation_from_outside_stops_the_consumer_by_default() -> None:
    async def cancelling() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(1)

    service = Service(cancelling)
    async with TestConsumer(service.consumer, partitions=1) as t:
        await written(t, "first")
        with pytest.raises(HandlerCancelledError, match="from outside"):
            await written(t, "bad")
        await written(t, "last")
        await service.nothing_is_lost(t)


# -- a key of None, a tombstone -------------------------------------------------------------------


async def test_records_without_a_key_are_handled_in_order_one_by_one() -> None:
    consumer = Consumer(group_id="billing")
    events: list[str] = []

    @consumer.handler("orders", retry=Retry(attempts=2, backoff=1), dead_letter="dlq")
    async def handle(value: str, record: Record, context: HandlerContext) -> None:
        assert record.key is None
        events.append(f"{value}{context.attempt}")
        if value == "b":
            raise ConnectionError
        await asyncio.sleep(1)

    async with TestConsumer(consumer, partitions=1) as t:
        await written(t, "a", "b", "c", key=None)
        await t.advance(10)
        assert events == ["a1", "b1", "b2", "c1"]
        assert t.committed("orders", 0) == 3
        (letter,) = t.dead_letters("dlq")
        assert letter.key is None


async def test_a_tombstone_reaches_a_handler_that_expects_none_and_else_does_not_decode() -> None:
    consumer = Consumer(group_id="billing")
    values: list[object] = []

    @consumer.handler("orders")
    async def nullable(value: dict[str, int] | None) -> None:
        values.append(value)

    @consumer.handler("clicks", dead_letter="dlq")
    async def plain(value: bytes) -> None:
        values.append(value)

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", None, key="a")
        await t.publish("clicks", None, key="a")
        await t.advance(2)
        assert values == [None]
        (letter,) = t.dead_letters("dlq")
        assert (letter.key, letter.value) == (b"a", None)
        assert b"tombstone" in (dict(letter.headers)["asyncrevoke-error-message"] or b"")
        assert t.committed("orders", 0) == t.committed("clicks", 0) == 1
