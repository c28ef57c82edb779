"""Async decoders: awaited in the call of the handler, beside all other calls."""

from __future__ import annotations

import asyncio

import pytest

from asyncrevoke import Consumer, HandlerContext, Record, Retry, RetryTopic
from asyncrevoke.testing import TestConsumer


async def number(record: Record) -> int:
    await asyncio.sleep(0.1)
    if record.value == b"late":
        raise ConnectionError("the registry does not respond")
    return int(record.value or b"-1")


class Numbers:
    """An object with an async method is a decoder too."""

    async def __call__(self, record: Record) -> int:
        return await number(record)


@pytest.mark.parametrize("decoder", [number, Numbers()])
async def test_a_handler_gets_what_an_async_decoder_returns(decoder: Numbers) -> None:
    consumer = Consumer(group_id="billing")
    got: list[tuple[int, int, int]] = []

    @consumer.handler("orders", decoder=decoder)
    async def bill(value: int, record: Record, context: HandlerContext, more: int = 7) -> None:
        got.append((value, record.offset, context.attempt + more))

    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"5", partition=0)
        await t.publish("orders", None, partition=0)
        await t.advance(1)
        assert t.committed("orders", 0) == 2
    assert got == [(5, 0, 8), (-1, 1, 8)]


async def test_a_decoder_that_waits_does_not_delay_records_of_other_keys() -> None:
    waits = asyncio.Event()
    consumer = Consumer(group_id="billing")
    got: list[int] = []

    async def decode(record: Record) -> int:
        if record.value == b"0":
            await waits.wait()
        return int(record.value or b"")

    @consumer.handler("orders", decoder=decode)
    async def bill(value: int) -> None:
        got.append(value)

    async with TestConsumer(consumer) as t:
        for value, key in ((0, "a"), (1, "a"), (2, "b")):
            await t.publish("orders", str(value), key=key, partition=0)
        await t.advance(1)
        assert got == [2]
        assert t.committed("orders", 0) in (None, 0)
        waits.set()
        await t.advance(1)
        assert got == [2, 0, 1]
        assert t.committed("orders", 0) == 3


async def test_the_values_of_a_batch_are_decoded_in_order() -> None:
    consumer = Consumer(group_id="billing")
    got: list[list[int]] = []

    @consumer.handler("orders", batch=True, max_wait=1, decoder=number, dead_letter="dlq")
    async def bill(values: list[int]) -> None:
        got.append(values)

    async with TestConsumer(consumer) as t:
        for value in (b"3", b"no number", b"1", b"2"):
            await t.publish("orders", value, partition=0)
        await t.advance(2)
        assert [letter.value for letter in t.dead_letters("dlq")] == [b"no number"]
        assert t.committed("orders", 0) == 4
    assert got == [[3, 1, 2]]


async def test_a_value_that_does_not_decode_is_a_dead_letter_at_once() -> None:
    consumer = Consumer(group_id="billing", decoder=number)

    @consumer.handler("orders", retry=Retry(attempts=None), dead_letter="dlq")
    async def bill(value: int) -> None: ...

    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"no number")
        await t.advance(1)
        (letter,) = t.dead_letters("dlq")
        headers = dict(letter.headers)
        assert headers["asyncrevoke-attempts"] == b"0"
        assert headers["asyncrevoke-error-type"] == b"asyncrevoke.errors.DecodeError"
        assert b"the decoder number failed: ValueError" in (
            headers["asyncrevoke-error-message"] or b""
        )
        assert b"no number" not in (headers["asyncrevoke-error-message"] or b"")


@pytest.mark.parametrize("batch", [False, True])
async def test_a_temporary_error_is_retried_and_goes_to_the_retry_topic(batch: bool) -> None:
    calls: list[bytes | None] = []
    consumer = Consumer(group_id="billing")

    async def decode(record: Record) -> int:
        calls.append(record.value)
        if len(calls) < 5:
            raise ConnectionError("the registry does not respond")
        return int(record.value or b"")

    got: list[object] = []

    async def one(value: int) -> None:
        got.append(value)

    async def several(values: list[int]) -> None:
        got.extend(values)

    consumer.handler(
        "orders",
        batch=batch,
        decoder=decode,
        retry=Retry(attempts=3),
        retry_topic=RetryTopic("orders.retry", delay=10),
        dead_letter="dlq",
    )(several if batch else one)
    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"4", partition=0)
        await t.advance(60)
        assert t.dead_letters("dlq") == []
        assert t.committed("orders", 0) == 1
    assert got == [4]
    assert len(calls) == 5


async def test_the_time_of_a_decoder_counts_for_max_handler_time() -> None:
    cancelled: list[str] = []
    consumer = Consumer(group_id="billing")

    async def decode(record: Record) -> int:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            cancelled.append("decoder")
            raise
        return 0

    @consumer.handler("orders", decoder=decode, max_handler_time=5, dead_letter="dlq")
    async def bill(value: int) -> None: ...

    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"4")
        await t.advance(10)
        (letter,) = t.dead_letters("dlq")
        assert b"HandlerTimeoutError" in (dict(letter.headers)["asyncrevoke-error-type"] or b"")
    assert cancelled == ["decoder"]


async def test_a_decoder_is_cancelled_when_its_partition_is_lost() -> None:
    cancelled: list[int] = []
    consumer = Consumer(group_id="billing")

    async def decode(record: Record) -> int:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            cancelled.append(record.offset)
            raise
        return 0

    @consumer.handler("orders", decoder=decode)
    async def bill(value: int) -> None: ...

    async with TestConsumer(consumer) as t:
        await t.publish("orders", b"4", partition=0)
        await t.advance(1)
        await t.lose(("orders", 0))
        await t.advance(1)
        assert cancelled == [0]
        assert t.committed("orders", 0) in (None, 0)
