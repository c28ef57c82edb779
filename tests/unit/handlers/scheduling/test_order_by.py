"""Order by a function of the user, and another order for a single handler."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest
from unit.handlers.scripted_runner import running
from unit.handlers.scripted_source import (
    ORDERS,
    OTHERS,
    HeldWork,
    RecordState,
    record,
    turns,
    until,
)

from asyncrevoke import Consumer, Record
from asyncrevoke.client.errors import ConfigError, DecodeError, HandlerExitError
from asyncrevoke.handlers.policy.retry import Retry
from asyncrevoke.handlers.registry import Router
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from asyncrevoke.handlers.dead_letters.dead_letter import DeadLetter


class Letters:
    """Takes every letter at once."""

    def __init__(self) -> None:
        self.sent: list[DeadLetter] = []

    async def send(self, topic: str, letter: DeadLetter) -> None:
        self.sent.append(letter)


def customer(of: Record) -> Hashable:
    """The first byte of the value; a tombstone has none."""
    return None if of.value is None else of.value[:1]


def everything(_of: Record) -> Hashable:
    return "all"


def order(offset: int, value: bytes | None, key: bytes | None = b"k") -> Record:
    return record(offset, key, value=value)


# -- order ----------------------------------------------------------------------------------------


async def test_records_of_one_result_wait_for_each_other_and_others_flow() -> None:
    work = HeldWork()
    a0, b, a1 = order(0, b"a0"), order(1, b"b0"), order(2, b"a1")
    async with running(work, order_by=customer) as run:
        run.source.feed(a0, b, a1)
        await turns()
        assert work.running == [a0, b]
        work.end(a0)
        await until(lambda: a1 in work.running)
        work.end()
        await run.stop()


async def test_order_by_a_function_holds_within_a_partition_only() -> None:
    work = HeldWork()
    async with running(work, order_by=everything) as run:
        run.source.feed(record(0), record(1), record(0, partition=OTHERS))
        await turns()
        assert [each.topic_partition for each in work.running] == [ORDERS, OTHERS]
        work.end()
        await turns()
        work.end()
        await run.stop()


@pytest.mark.parametrize(("null_keys", "at_once"), [("ordered", [0, 2]), ("unordered", [0, 1, 2])])
async def test_a_result_of_none_is_like_a_null_key(null_keys: Any, at_once: list[int]) -> None:
    work = HeldWork()
    async with running(work, order_by=customer, null_keys=null_keys) as run:
        run.source.feed(order(0, None), order(1, None), order(2, b"a"))
        await turns()
        assert work.offsets == at_once
        while run.source.in_flight:
            work.end()
            await turns()
        await run.stop()


@pytest.mark.parametrize(
    ("order_by", "at_once"),
    [("key", [0, 1, 3]), ("partition", [0]), (None, [0, 1, 2, 3]), (customer, [0, 3])],
)
async def test_a_handler_may_have_another_order_than_the_consumer(
    order_by: Any, at_once: list[int]
) -> None:
    work = HeldWork()
    taken = [order(0, b"x", b"a"), order(1, b"x", b"b"), order(2, b"x", b"a"), order(3, b"y", b"c")]
    for consumers in ("key", "partition", None):
        work = HeldWork()
        async with running(work, order_by=cast("Any", consumers), handler_order_by=order_by) as run:
            run.source.feed(*taken)
            await turns()
            assert work.offsets == at_once
            while run.source.in_flight:
                work.end()
                await turns()
            await run.stop()


@pytest.mark.parametrize(("order_by", "running_at_once"), [("partition", 1), (None, 2)])
async def test_batches_of_a_handler_may_run_one_at_a_time_or_several(
    order_by: Any, running_at_once: int
) -> None:
    work = HeldWork()

    async def handle(batch: list[Record]) -> None:
        await work(batch[0])

    for consumers in ("key", None, customer):
        async with running(
            handle,
            order_by=cast("Any", consumers),
            handler_order_by=order_by,
            batch=True,
            max_records=1,
        ) as run:
            run.source.feed(record(0), record(1))
            await turns()
            assert len(work.running) == running_at_once
            work.end()
            await turns()
            work.end()
            await run.stop()


async def test_batches_of_a_consumer_ordered_by_a_function_run_one_at_a_time() -> None:
    work = HeldWork()

    async def handle(batch: list[Record]) -> None:
        await work(batch[0])

    async with running(handle, order_by=customer, batch=True, max_records=1) as run:
        run.source.feed(record(0), record(1))
        await turns()
        assert len(work.running) == 1
        work.end()
        await turns()
        work.end()
        await run.stop()


async def test_a_whole_consumer_keeps_the_order_of_its_function() -> None:
    handled: list[bytes] = []
    consumer = Consumer(group_id="billing", order_by=lambda of: dict(of.headers)["customer"])

    @consumer.handler("orders")
    async def bill(value: bytes) -> None:
        await asyncio.sleep(1 if value == b"slow" else 0)
        handled.append(value)

    async with TestConsumer(consumer, partitions=1) as t:
        for value, who in ((b"slow", "a"), (b"behind", "a"), (b"other", "b")):
            await t.publish("orders", value, headers={"customer": who})
        assert handled == [b"other"]
        await t.advance(2)
    assert handled == [b"other", b"slow", b"behind"]


async def test_a_task_group_is_ordered_by_a_function_too() -> None:
    consumer = Consumer("orders", group_id="billing", order_by=customer)
    work = HeldWork()
    failures: list[BaseException] = []

    async with TestConsumer(consumer, partitions=1) as t:

        async def loop() -> None:
            async with consumer.task_group() as tasks:
                async for batch in consumer:
                    for each in batch.records:
                        try:
                            await tasks.submit(work, each)
                        except DecodeError as error:
                            failures.append(error)
                            raise

        task = asyncio.create_task(loop())
        for value in (b"a0", b"a1", b"b0"):
            await t.publish("orders", value)
        assert [each.value for each in work.running] == [b"a0", b"b0"]
        work.end()
        await t.advance(1)
        work.end()
        await t.advance(2)
        assert t.committed("orders", 0) == 3
        consumer.stop()
        await task
    assert failures == []


async def test_submit_raises_what_the_function_of_the_order_fails_with() -> None:
    consumer = Consumer("orders", group_id="billing")
    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"a")
        async with consumer.task_group(order_by=lambda _: cast("Hashable", [])) as tasks:
            batch = await anext(consumer)
            with pytest.raises(DecodeError, match=r"orders-0 at offset 0: order_by=.*unhashable"):
                await tasks.submit(HeldWork(), batch.records[0])
            assert tasks.in_flight == 0


# -- failures -------------------------------------------------------------------------------------


def raises(_of: Record) -> Hashable:
    raise KeyError("customer")


def unhashable(_of: Record) -> Hashable:
    return cast("Hashable", ["a"])


def cancels(_of: Record) -> Hashable:
    raise asyncio.CancelledError


fails_on_the_second = pytest.mark.parametrize("failing", [raises, unhashable])


def second_by(failing: Callable[[Record], Hashable]) -> Callable[[Record], Hashable]:
    """The record at offset 1 fails."""
    return lambda of: failing(of) if of.offset == 1 else of.key


@fails_on_the_second
async def test_a_record_without_an_order_goes_to_the_dead_letter_topic_without_retries(
    failing: Any,
) -> None:
    letters, handled = Letters(), list[int]()

    async def handle(of: Record) -> None:
        handled.append(of.offset)

    async with running(
        handle,
        order_by=second_by(failing),
        retry=Retry(attempts=5),
        dead_letter="dlq",
        dead_letters=letters,
    ) as run:
        taken = [order(i, b"v") for i in range(3)]
        run.source.feed(*taken)
        await until(lambda: len(run.source.completions) == 3)
        await run.stop()
    assert handled == [0, 2]
    (letter,) = letters.sent
    headers = dict(letter.headers)
    assert b"order_by=" in (headers["asyncrevoke-error-message"] or b"")
    assert headers["asyncrevoke-attempts"] == b"0"


@fails_on_the_second
async def test_a_record_without_an_order_can_be_skipped(failing: Any) -> None:
    work = HeldWork()
    async with running(work, order_by=second_by(failing), on_error="skip") as run:
        taken = [order(i, b"v") for i in range(3)]
        run.source.feed(*taken)
        await until(lambda: taken[1] in run.source.completions)
        assert work.running == [taken[0]]
        work.end()
        await turns()
        work.end()
        await run.stop()
        assert work.offsets == [0, 2]


@fails_on_the_second
async def test_a_record_without_an_order_stops_the_consumer_by_default(failing: Any) -> None:
    work = HeldWork()
    async with running(work, order_by=second_by(failing)) as run:
        taken = [order(i, b"v") for i in range(3)]
        run.source.feed(*taken)
        await until(lambda: work.running)
        work.end()
        error = await run.failure()
        assert isinstance(error, DecodeError)
        assert run.source.state_of(taken[1]) is RecordState.ABANDONED
        assert run.source.commit_point(taken) == 1


async def test_a_record_without_an_order_pauses_its_partition_if_the_policy_says_so() -> None:
    work = HeldWork()
    async with running(work, order_by=second_by(raises), on_error="pause") as run:
        taken = [order(i, b"v") for i in range(3)]
        run.source.feed(*taken)
        await until(lambda: run.source.paused == [ORDERS])
        work.end()
        await until(lambda: taken[0] in run.source.completions)
        await run.stop()
        assert run.source.commit_point(taken) == 1


async def test_a_record_without_an_order_that_is_dropped_is_forgotten() -> None:
    work = HeldWork()
    async with running(work, concurrency=1, order_by=second_by(raises)) as run:
        taken = [order(i, b"v") for i in range(3)]
        run.source.feed(*taken)
        await until(lambda: work.running)
        run.source.feed(revoke=[ORDERS])
        await until(lambda: run.source.state_of(taken[1]) is RecordState.DROPPED)
        work.end()
        await run.stop()


async def test_a_cancelled_error_of_the_function_is_a_failure_like_any_other() -> None:
    work = HeldWork()
    async with running(work, order_by=second_by(cancels), on_error="skip") as run:
        taken = [order(i, b"v", b"%d" % i) for i in range(3)]
        run.source.feed(*taken)
        await until(lambda: taken[1] in run.source.completions)
        await until(lambda: len(work.running) == 2)
        work.end()
        await run.stop()


async def test_a_function_that_exits_stops_the_consumer() -> None:
    def leave(_of: Record) -> Hashable:
        raise SystemExit(3)

    work = HeldWork()
    async with running(work, order_by=second_by(leave), on_error="skip") as run:
        taken = [order(i, b"v") for i in range(3)]
        run.source.feed(*taken)
        await until(lambda: work.running)
        work.end()
        assert isinstance(await run.failure(), HandlerExitError)
        assert run.source.commit_point(taken) == 1


# -- what is rejected ------------------------------------------------------------------------------


def test_an_order_that_cannot_work_is_rejected_with_the_fix() -> None:
    async def asynchronous(of: Record) -> bytes | None:
        return of.key

    def of_bytes(key: bytes) -> bytes:
        return key

    async def handle(value: bytes) -> None: ...

    async def handle_all(values: list[bytes]) -> None: ...

    def of_two(key: object, value: object) -> object:
        return key, value

    mistakes: list[tuple[Any, str]] = [
        ("topic", '"key" or "partition" or None or a function of the record'),
        (asynchronous, "and order_by is sync"),
        (of_bytes, "wrap it, as in order_by=lambda record:"),
        (of_two, "takes something else: wrap it"),
    ]
    for order_by, fix in mistakes:
        with pytest.raises(ConfigError, match=fix):
            Consumer(group_id="billing", order_by=order_by)
        with pytest.raises(ConfigError, match=fix):
            Router().handler("orders", order_by=order_by)(handle)
    with pytest.raises(ConfigError, match='use order_by="partition"'):
        Router().handler("orders", batch=True, order_by=customer)(handle_all)
