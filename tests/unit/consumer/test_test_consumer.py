"""A consumer without a broker, in virtual time: what a user's test can do with it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import anyio
import anyio.to_thread
import pytest
import pytest_asyncio

from asyncrevoke import (
    Consumer,
    HandlerContext,
    IllegalStateError,
    Record,
    Retry,
    TopicPartition,
)
from asyncrevoke.errors import NoOffsetError
from asyncrevoke.testing import TestConsumer
from asyncrevoke.testing.virtual_time import VirtualTime

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from asyncrevoke.config import GroupProtocol


def tp(number: int, topic: str = "orders") -> TopicPartition:
    return TopicPartition(topic, number)


@dataclass
class Billed:
    """A consumer that bills orders, each of which takes ``seconds``."""

    consumer: Consumer
    orders: list[int]


def billing(seconds: float = 0.0) -> Billed:
    consumer = Consumer(group_id="billing", concurrency=8, commit_interval=1.0)
    orders: list[int] = []

    @consumer.handler("orders")
    async def bill(order: dict[str, int]) -> None:
        await asyncio.sleep(seconds)
        orders.append(order["id"])

    return Billed(consumer, orders)


@asynccontextmanager
async def looping(consumer: Consumer, steps: list[object]) -> AsyncGenerator[asyncio.Task[None]]:
    """Iterate over the consumer in a task of its own, and write down what each step returns."""

    async def loop() -> None:
        async for records, to_be_revoked, lost in consumer:
            steps.append(([r.value for r in records], sorted(to_be_revoked), sorted(lost)))

    task = asyncio.create_task(loop())
    try:
        yield task
    finally:
        consumer.stop()
        await asyncio.wait((task,))


# --- publishing ------------------------------------------------------------------------------


async def test_a_published_record_is_handled_when_the_call_returns() -> None:
    billed = billing()
    async with TestConsumer(billed.consumer) as t:
        await t.publish("orders", {"id": 1}, key="a")
        assert billed.orders == [1]
        assert t.in_flight == 0


async def test_what_is_handled_is_committed_within_the_commit_interval() -> None:
    async with TestConsumer(billing().consumer) as t:
        await t.publish("orders", {"id": 1}, partition=0)
        assert t.committed("orders", 0) is None
        await t.advance(30)
        assert t.committed("orders", 0) == 1
        assert t.time == 30


async def test_leaving_commits_what_was_handled() -> None:
    async with TestConsumer(billing().consumer) as t:
        await t.publish("orders", {"id": 1}, partition=2)
    assert t.committed("orders", 2) == 1


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ({"id": 1}, b'{"id":1}'),
        ("text", b"text"),
        (b"\xff", b"\xff"),
        (None, None),
        ([1, 2], b"[1,2]"),
        (tp(3), b'["orders",3]'),
    ],
)
async def test_values_become_bytes(value: object, written: bytes | None) -> None:
    consumer = Consumer(group_id="billing")
    handled: list[Record] = []

    @consumer.handler("orders")
    async def handle(record: Record) -> None:
        handled.append(record)

    async with TestConsumer(consumer) as t:
        await t.publish("orders", value, key="a", headers={"trace": "7"}, timestamp=1_000)
    (record,) = handled
    assert record.value == written
    assert record.key == b"a"
    assert record.headers == (("trace", b"7"),)
    assert record.timestamp == 1_000


async def test_a_value_that_is_no_json_is_refused() -> None:
    async with TestConsumer(billing().consumer) as t:
        with pytest.raises(TypeError, match="cannot be published: give bytes, str, None"):
            await t.publish("orders", object())


async def test_the_key_chooses_the_partition_and_no_key_goes_round() -> None:
    async with TestConsumer(billing().consumer) as t:
        keyed = [await t.publish("orders", {"id": n}, key="a") for n in range(3)]
        assert len({published.partition for published in keyed}) == 1
        assert [published.offset for published in keyed] == [0, 1, 2]
        round_robin = [await t.publish("orders", {"id": n}) for n in range(5)]
        assert [published.partition for published in round_robin] == [0, 1, 2, 3, 0]


async def test_topics_have_as_many_partitions_as_they_are_given() -> None:
    async with TestConsumer(billing().consumer, partitions=2, topics={"orders": 3}) as t:
        assert t.assignment() == {tp(0), tp(1), tp(2)}
        with pytest.raises(ValueError, match="orders has partitions 0 to 2, and no 3"):
            await t.publish("orders", {"id": 1}, partition=3)
        with pytest.raises(ValueError, match="there is no partition orders-9"):
            await t.revoke(("orders", 9))
        assert (await t.publish("other", "x", key="a")).partition < 2


# --- time ------------------------------------------------------------------------------------


async def test_handlers_sleep_in_virtual_time() -> None:
    billed = billing(seconds=3600)
    began = time.monotonic()
    async with TestConsumer(billed.consumer) as t:
        await t.publish("orders", {"id": 1}, partition=0)
        assert (billed.orders, t.in_flight) == ([], 1)
        await t.advance(3599.9)
        assert billed.orders == []
        await t.advance(0.1)
        assert billed.orders == [1]
    assert time.monotonic() - began < 600


async def test_advancing_in_parts_is_as_good_as_at_once() -> None:
    billed = billing(seconds=30)
    async with TestConsumer(billed.consumer) as t:
        await t.publish("orders", {"id": 1})
        for _ in range(300):
            await t.advance(0.1)
        assert billed.orders == [1]


async def test_timers_go_off_in_their_order_with_all_that_follows() -> None:
    seen: list[tuple[str, float]] = []
    async with TestConsumer(billing().consumer) as t:

        async def tell(name: str, *waits: float) -> None:
            for wait in waits:
                await asyncio.sleep(wait)
                seen.append((name, round(t.time, 3)))

        tasks = [asyncio.create_task(tell("a", 1, 1, 1)), asyncio.create_task(tell("b", 1.5, 1))]
        await t.advance(10)
        await asyncio.gather(*tasks)
    assert seen == [("a", 1), ("b", 1.5), ("a", 2), ("b", 2.5), ("a", 3)]


async def test_a_timeout_within_a_handler_is_virtual() -> None:
    consumer = Consumer(group_id="billing")
    timed_out: list[bool] = []

    @consumer.handler("orders")
    async def handle(record: Record) -> None:
        del record
        with anyio.move_on_after(5) as scope:
            await asyncio.Event().wait()
        timed_out.append(scope.cancelled_caught)

    async with TestConsumer(consumer) as t:
        await t.publish("orders", "x")
        await t.advance(4.9)
        assert timed_out == []
        await t.advance(0.1)
        assert timed_out == [True]


async def test_time_does_not_go_back() -> None:
    async with TestConsumer(billing().consumer) as t:
        with pytest.raises(ValueError, match="time does not go back"):
            await t.advance(-1)


async def test_a_test_that_sleeps_by_itself_sleeps_on_the_wall() -> None:
    async with TestConsumer(billing().consumer) as t:
        async with asyncio.timeout(60):
            await asyncio.sleep(0.05)
        assert t.time == pytest.approx(0.05, abs=0.045)


async def test_the_loop_has_its_own_time_again_afterwards() -> None:
    loop = asyncio.get_running_loop()
    async with TestConsumer(billing().consumer) as t:
        left = asyncio.create_task(asyncio.sleep(1000.02))
        await t.advance(1000)
    assert abs(loop.time() - time.monotonic()) < 1
    await asyncio.wait_for(left, timeout=5)
    assert "time" not in vars(loop)
    assert "call_at" not in vars(loop)


async def test_another_kind_of_event_loop_is_refused() -> None:
    class OtherLoop:
        pass

    passing = VirtualTime(cast("asyncio.AbstractEventLoop", OtherLoop()))
    for _ in range(2):
        with pytest.raises(IllegalStateError, match="needs asyncio's own event loop, this is Ot"):
            passing.enter()


async def test_a_cancelled_timer_never_goes_off() -> None:
    loop = asyncio.get_running_loop()
    fired: list[str] = []
    async with TestConsumer(billing().consumer) as t:
        first = loop.call_later(1, fired.append, "equal")
        second = loop.call_at(first.when(), fired.append, "equal")
        first.cancel()
        assert first.cancelled()
        assert not second.cancelled()
        loop.call_later(2, fired.append, "later")
        await t.advance(3)
    assert fired == ["equal", "later"]


async def test_what_is_due_now_happens_before_a_call_returns() -> None:
    fired: list[str] = []
    async with TestConsumer(billing().consumer) as t:
        asyncio.get_running_loop().call_later(0, fired.append, "due")
        await t.publish("elsewhere", "x")
    assert fired == ["due"]
    assert t.time == 0


async def test_what_a_thread_brings_about_can_be_waited_for() -> None:
    consumer = Consumer(group_id="billing")
    handled: list[str] = []

    @consumer.handler("orders")
    async def handle(value: str) -> None:
        await anyio.to_thread.run_sync(time.sleep, 0.05)
        handled.append(value)

    async with TestConsumer(consumer) as t:
        await t.publish("orders", "x")
        assert handled == []
        await t.until(lambda: handled)
        with pytest.raises(TimeoutError, match="the condition does not hold"):
            await t.until(lambda: False, within=0.05)


async def test_two_consumers_share_one_time() -> None:
    first, second = billing(seconds=10), billing(seconds=20)
    async with TestConsumer(first.consumer) as one, TestConsumer(second.consumer) as two:
        await one.publish("orders", {"id": 1})
        await two.publish("orders", {"id": 2})
        await one.advance(20)
        assert (first.orders, second.orders) == ([1], [2])
        assert two.time == 20


async def test_a_handler_may_publish() -> None:
    consumer = Consumer(group_id="billing")
    tests: list[TestConsumer] = []
    seen: list[tuple[str, str]] = []

    @consumer.handler("orders", "invoices")
    async def handle(value: str, record: Record) -> None:
        seen.append((record.topic, value))
        if record.topic == "orders":
            await tests[0].publish("invoices", value)

    async with TestConsumer(consumer) as t:
        tests.append(t)
        await t.publish("orders", "x")
        await t.advance(0)
    assert seen == [("orders", "x"), ("invoices", "x")]


# --- rebalances ------------------------------------------------------------------------------


async def test_an_idle_partition_is_released_at_once_when_it_is_revoked() -> None:
    async with TestConsumer(billing().consumer) as t:
        await t.publish("orders", {"id": 1}, partition=0)
        await t.revoke(("orders", 0))
        await t.advance(0.5)
        assert t.assignment() == {tp(1), tp(2), tp(3)}
        assert t.committed("orders", 0) == 1


async def test_a_running_handler_holds_its_revoke_back_and_ends() -> None:
    billed = billing(seconds=10)
    async with TestConsumer(billed.consumer) as t:
        await t.publish("orders", {"id": 1}, partition=0)
        await t.publish("orders", {"id": 2}, partition=0)  # same lane: never started
        await t.revoke(("orders", 0))
        assert tp(0) in t.assignment()
        await t.advance(11)
        assert tp(0) not in t.assignment()
        assert billed.orders == [1]
        assert t.committed("orders", 0) == 1


@pytest.mark.parametrize("protocol", ["consumer", "auto"])
async def test_either_group_protocol_can_be_tested(protocol: GroupProtocol) -> None:
    consumer = Consumer(group_id="billing", group_protocol=protocol)
    seen: list[int] = []

    @consumer.handler("orders")
    async def bill(order: dict[str, int]) -> None:
        seen.append(order["id"])
        await asyncio.sleep(10)

    async with TestConsumer(consumer) as t:
        await t.publish("orders", {"id": 1}, partition=0)
        await t.revoke(("orders", 0))
        assert tp(0) in t.assignment()
        await t.advance(11)
        assert t.assignment() == {tp(1), tp(2), tp(3)}
        assert t.committed("orders", 0) == 1
        await t.lose(("orders", 1))
        await t.give(("orders", 0), ("orders", 1))
        assert len(t.assignment()) == 4
        if protocol == "consumer":
            with pytest.raises(ValueError, match="no revoke is ever withdrawn"):
                await t.withdraw(("orders", 0))
    assert seen == [1]


async def test_a_withdrawn_revoke_leaves_the_partition_where_it_is() -> None:
    billed = billing(seconds=10)
    async with TestConsumer(billed.consumer) as t:
        await t.publish("orders", {"id": 1}, partition=0)
        await t.revoke(("orders", 0))
        await t.withdraw(("orders", 0))
        await t.advance(30)
        assert tp(0) in t.assignment()
        assert billed.orders == [1]
        with pytest.raises(ValueError, match="nothing can be withdrawn"):
            await t.withdraw(("orders", 0))


async def test_a_released_partition_can_be_given_back() -> None:
    billed = billing()
    async with TestConsumer(billed.consumer) as t:
        await t.revoke(("orders", 0))
        await t.publish("orders", {"id": 1}, partition=0)
        assert billed.orders == []
        await t.give(("orders", 0))
        assert billed.orders == [1]


async def test_losing_cancels_handlers_and_commits_nothing_of_theirs() -> None:
    consumer = Consumer(group_id="billing", commit_interval=1.0)
    cancelled: list[TopicPartition] = []

    @consumer.handler("orders")
    async def bill(record: Record) -> None:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            cancelled.append(record.topic_partition)
            raise

    async with TestConsumer(consumer) as t:
        await t.publish("orders", {"id": 1}, partition=1)
        await t.lose(("orders", 1))
        assert cancelled == [tp(1)]
        assert t.assignment() == {tp(0), tp(2), tp(3)}
        await t.advance(30)
        assert t.committed("orders", 1) is None


async def test_what_is_lost_and_comes_back_is_handled_again() -> None:
    billed = billing(seconds=10)
    async with TestConsumer(billed.consumer) as t:
        await t.publish("orders", {"id": 1}, partition=0)
        await t.advance(9)
        await t.lose()
        await t.advance(9)
        assert billed.orders == []
        await t.advance(2)
        assert billed.orders == [1]


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
async def test_any_assignor_will_do(assignor: str) -> None:
    consumer = Consumer(group_id="billing", assignors=(assignor,))
    handled: list[int] = []

    @consumer.handler("orders")
    async def handle(value: int) -> None:
        handled.append(value)

    async with TestConsumer(consumer) as t:
        await t.revoke(("orders", 0), ("orders", 1))
        await t.advance(2)
        assert t.assignment() == {tp(2), tp(3)}
        await t.publish("orders", b"1", partition=3)
    assert handled == [1]


async def test_after_a_crash_another_consumer_takes_over() -> None:
    first, second = billing(seconds=10), billing()
    async with TestConsumer(first.consumer) as t:
        await t.publish("orders", {"id": 1}, partition=0)
        await t.advance(20)
        await t.publish("orders", {"id": 2}, partition=0)
        await t.advance(5)
        await t.crash()
        assert first.orders == [1]
        assert t.committed("orders", 0) == 1
        await t.restart(second.consumer)
        assert second.orders == [2]


async def test_a_crash_commits_nothing() -> None:
    billed = billing()
    async with TestConsumer(billed.consumer) as t:
        await t.publish("orders", {"id": 1}, partition=0)
        assert billed.orders == [1]
        await t.crash()
    assert t.committed("orders", 0) is None


# --- failures --------------------------------------------------------------------------------


async def test_a_failed_consumer_raises_from_the_next_call_and_once() -> None:
    consumer = Consumer(group_id="billing")

    @consumer.handler("orders")
    async def bill(value: str) -> None:
        raise LookupError(value)

    async with TestConsumer(consumer) as t:
        with pytest.raises(LookupError, match="x"):
            await t.publish("orders", "x", partition=0)
        await t.advance(10)
        assert not t.committed("orders", 0)


async def test_a_failure_that_no_call_has_raised_is_raised_at_the_end() -> None:
    consumer = Consumer(group_id="billing")

    @consumer.handler("orders")
    async def bill(value: str) -> None:
        await asyncio.sleep(0.1)
        raise LookupError(value)

    with pytest.raises(LookupError, match="x"):
        async with TestConsumer(consumer) as t:
            await t.publish("orders", "x", partition=0)


async def test_retries_wait_in_virtual_time() -> None:
    consumer = Consumer(group_id="billing")
    attempts: list[tuple[int, float]] = []

    @consumer.handler("orders", retry=Retry(attempts=3, backoff=60, max_backoff=600, jitter=0))
    async def bill(value: str, context: HandlerContext) -> None:
        del value
        attempts.append((context.attempt, t.time))
        if context.attempt < 3:
            raise ConnectionError

    async with TestConsumer(consumer) as t:
        await t.publish("orders", "x", partition=0)
        await t.advance(300)
    assert [attempt for attempt, _ in attempts] == [1, 2, 3]
    assert attempts[1][1] == pytest.approx(60)


async def test_dead_letters_can_be_read() -> None:
    consumer = Consumer(group_id="billing")

    @consumer.handler("orders", dead_letter="orders.dlq")
    async def bill(order: dict[str, int]) -> None:
        raise LookupError(order)

    async with TestConsumer(consumer) as t:
        await t.publish("orders", {"id": 1}, key="a", partition=0)
        await t.publish("orders", "no json", partition=1)
        letters = {letter.value: dict(letter.headers) for letter in t.dead_letters("orders.dlq")}
        assert set(letters) == {b'{"id":1}', b"no json"}
        assert letters[b'{"id":1}']["asyncrevoke-error-type"] == b"LookupError"
        await t.advance(2)
        assert t.committed("orders", 0) == 1
        assert t.committed("orders", 1) == 1


async def test_what_exits_in_a_handler_exits_in_the_test() -> None:
    consumer = Consumer(group_id="billing")

    @consumer.handler("orders")
    async def bill(value: str) -> None:
        sys.exit(value)

    async with TestConsumer(consumer) as t:
        with pytest.raises(SystemExit, match="x"):
            await t.publish("orders", "x")


async def test_an_error_of_the_test_cancels_handlers_and_comes_through() -> None:
    billed = billing(seconds=100)
    t = TestConsumer(billed.consumer)
    with pytest.raises(AssertionError, match="of the test"):
        async with t:
            await t.publish("orders", {"id": 1}, partition=0)
            raise AssertionError("of the test")
    assert billed.orders == []
    assert not t.committed("orders", 0)


async def test_leaving_lets_a_running_handler_end() -> None:
    billed = billing(seconds=15)
    async with TestConsumer(billed.consumer) as t:
        await t.publish("orders", {"id": 1}, partition=0)
    assert billed.orders == [1]
    assert t.committed("orders", 0) == 1


async def test_batches_and_time_limits_count_virtual_seconds() -> None:
    consumer = Consumer(group_id="billing")
    batches: list[list[int]] = []

    @consumer.handler("clicks", batch=True, max_records=5, max_wait=2)
    async def store(clicks: list[int]) -> None:
        batches.append(clicks)

    @consumer.handler("orders", max_handler_time=60, dead_letter="orders.dlq")
    async def hang(value: str) -> None:
        del value
        await asyncio.Event().wait()

    async with TestConsumer(consumer, partitions=1) as t:
        for number in range(7):
            await t.publish("clicks", number)
        await t.publish("orders", "x")
        assert batches == [[0, 1, 2, 3, 4]]
        await t.advance(2)
        assert batches[1:] == [[5, 6]]
        await t.advance(57.9)
        assert t.dead_letters("orders.dlq") == []
        await t.advance(0.1)
        assert len(t.dead_letters("orders.dlq")) == 1


async def test_assigned_partitions_can_be_read_without_a_group() -> None:
    consumer = Consumer()
    consumer.assign([tp(6)])
    async with TestConsumer(consumer) as t:
        await t.publish("orders", "x", partition=6)
        assert [record.value for record in (await consumer.poll()).records] == [b"x"]


async def test_a_seek_answers_that_there_was_no_position() -> None:
    consumer = Consumer(auto_offset_reset="error")
    async with TestConsumer(consumer) as t:
        await t.publish("orders", "x", partition=2)
        await t.publish("orders", "y", partition=2)
        consumer.assign([tp(2), tp(3)])
        consumer.seek(tp(2), 1)
        with pytest.raises(NoOffsetError, match="orders-3: no committed"):
            await consumer.poll()
        assert [record.value for record in (await consumer.poll()).records] == [b"y"]


async def test_a_pattern_finds_topics_that_are_created_later() -> None:
    consumer = Consumer(group_id="billing", metadata_max_age=10)
    values: list[str] = []

    @consumer.handler(pattern="orders-.*")
    async def handle(value: str) -> None:
        values.append(value)

    async with TestConsumer(consumer, topics={"orders-eu": 1}) as t:
        await t.publish("orders-eu", "a")
        assert values == ["a"]
        await t.publish("orders-us", "b")
        await t.advance(30)
        assert values == ["a", "b"]


async def test_a_group_is_needed_for_nothing_but_rebalances() -> None:
    consumer = Consumer("orders", group_id=None)
    values: list[object] = []
    async with TestConsumer(consumer) as t, looping(consumer, values):
        await t.publish("orders", "x")
        assert values == [([b"x"], [], [])]


async def test_it_is_entered_once_and_before_it_is_used() -> None:
    t = TestConsumer(billing().consumer)
    with pytest.raises(IllegalStateError, match="use `async with TestConsumer"):
        t.assignment()
    async with t:
        pass
    with pytest.raises(IllegalStateError, match="was entered before"):
        await t.__aenter__()


async def test_a_consumer_that_is_entered_already_is_left_as_it_is() -> None:
    billed = billing()
    async with TestConsumer(billed.consumer) as t:
        with pytest.raises(IllegalStateError, match="entered once"):
            async with TestConsumer(billed.consumer):
                pass
        await t.publish("orders", {"id": 1})
        await t.advance(2)
        assert billed.orders == [1]
    assert "time" not in vars(asyncio.get_running_loop())


async def test_the_consumer_of_a_module_can_be_tested_many_times() -> None:
    billed = billing()
    for _ in range(3):
        async with TestConsumer(billed.consumer) as t:
            await t.publish("orders", {"id": 1})
    assert billed.orders == [1, 1, 1]


async def test_the_same_consumer_may_be_restarted_after_a_crash() -> None:
    billed = billing(seconds=10)
    async with TestConsumer(billed.consumer) as t:
        await t.publish("orders", {"id": 1}, partition=0)
        await t.advance(5)
        await t.crash()
        await t.restart(billed.consumer)
        await t.advance(12)
        assert billed.orders == [1]
        assert t.committed("orders", 0) == 1


async def test_a_task_that_waits_only_for_the_next_turn_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def spin() -> None:
        while True:  # noqa: ASYNC110 - what is to be found
            await asyncio.sleep(0)

    async with TestConsumer(billing().consumer) as t:
        with monkeypatch.context() as limit:
            limit.setattr("asyncrevoke.testing.virtual_time._MAX_BUSY_TURNS", 100)
            task = asyncio.create_task(spin())
            with pytest.raises(TimeoutError, match="still busy after 100 turns"):
                await t.advance(1)
            task.cancel()


async def test_a_handler_that_is_stopped_in_a_debugger_does_not_count_as_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = Consumer(group_id="billing")
    handled: list[str] = []
    stopped = 0.0

    @consumer.handler("orders")
    async def handle(value: str) -> None:
        nonlocal stopped
        stopped += 3600
        handled.append(value)

    async with TestConsumer(consumer) as t:
        clock = SimpleNamespace(monotonic=lambda: time.monotonic() + stopped)
        monkeypatch.setattr("asyncrevoke.testing.virtual_time.time", clock)
        await t.publish("orders", "x")
    assert handled == ["x"]


# --- iteration and task groups ---------------------------------------------------------------


async def test_a_loop_in_a_task_is_told_of_records_revokes_and_losses() -> None:
    consumer = Consumer("orders", group_id="billing")
    steps: list[object] = []
    async with TestConsumer(consumer) as t, looping(consumer, steps):
        await t.publish("orders", "x", partition=0)
        await t.revoke(("orders", 0))
        await t.lose(("orders", 1))
    assert steps == [
        ([b"x"], [], []),
        ([], [tp(0)], []),
        ([], [], [tp(1), tp(2), tp(3)]),
    ]
    assert t.committed("orders", 0) == 1


async def test_steps_may_be_taken_by_the_test_itself() -> None:
    consumer = Consumer("orders", group_id="billing", commit_mode="ack")
    async with TestConsumer(consumer) as t:
        await t.publish("orders", "x", partition=0)
        (record,) = (await consumer.poll()).records
        assert t.in_flight == 1
        assert consumer.ack(record)
        await t.advance(2)
        assert t.committed("orders", 0) == 1
        assert not (await consumer.poll(timeout=0.02)).records


async def test_delayed_revokes_are_seen_from_outside() -> None:
    consumer = Consumer("orders", group_id="billing")
    release = asyncio.Event()

    async def loop() -> None:
        async for batch in consumer:
            if batch.to_be_revoked and not release.is_set():
                consumer.delay_revoke(batch.to_be_revoked)

    async with TestConsumer(consumer) as t:
        task = asyncio.create_task(loop())
        await t.revoke(("orders", 0))
        await t.advance(5)
        assert tp(0) in t.assignment()
        release.set()
        await t.advance(1)
        assert tp(0) not in t.assignment()
        consumer.stop()
        await task


async def test_a_task_group_runs_in_virtual_time() -> None:
    consumer = Consumer("orders", group_id="billing")
    done: list[bytes | None] = []

    async def work(record: Record) -> None:
        await asyncio.sleep(10)
        done.append(record.value)

    async def loop() -> None:
        async with consumer.task_group(concurrency=4) as tasks:
            async for batch in consumer:
                for record in batch.records:
                    await tasks.submit(work, record)

    async with TestConsumer(consumer) as t:
        task = asyncio.create_task(loop())
        await t.publish("orders", "x", partition=0)
        assert t.in_flight == 1
        await t.advance(11.5)
        assert done == [b"x"]
        assert t.committed("orders", 0) == 1
        consumer.stop()
        await task


# --- plugins and examples --------------------------------------------------------------------


@pytest_asyncio.fixture
async def entered() -> AsyncGenerator[tuple[TestConsumer, Billed]]:
    billed = billing(seconds=5)
    async with TestConsumer(billed.consumer) as t:
        yield t, billed


async def test_it_may_be_a_fixture(entered: tuple[TestConsumer, Billed]) -> None:
    t, billed = entered
    await t.publish("orders", {"id": 1})
    await t.advance(5)
    assert billed.orders == [1]


PLUGIN_TEST = """
import asyncio
import pytest
from asyncrevoke import Consumer
from asyncrevoke.testing import TestConsumer

pytestmark = pytest.mark.anyio

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.fixture
async def t():
    consumer = Consumer(group_id="billing")

    @consumer.handler("orders")
    async def bill(value: str) -> None:
        await asyncio.sleep(30)

    async with TestConsumer(consumer) as t:
        yield t

async def test_time_passes(t):
    await t.publish("orders", "x", partition=0)
    await t.advance(32)
    assert t.committed("orders", 0) == 1
"""


def test_it_works_with_the_plugin_of_anyio(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(PLUGIN_TEST)
    command = [sys.executable, "-m", "pytest", "-p", "no:asyncio", "-W", "error", str(tmp_path)]
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout
    assert "1 passed" in result.stdout


async def test_the_example_of_handlers_can_be_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3]))
    from examples.handlers import make_consumer

    consumer = make_consumer("nowhere:9092", "orders", "billing", max_records=None)
    async with TestConsumer(consumer) as t:
        for n in range(20):
            await t.publish("orders", f"order {n}", key=f"customer {n % 3}")
        await t.advance(3)
        assert t.in_flight == 0
        assert sum(t.committed("orders", n) or 0 for n in range(4)) == 20


async def test_a_handler_that_takes_longer_than_max_poll_interval_keeps_the_membership() -> None:
    """With handlers the loop that lives is the library's own, also with no room for more."""
    consumer = Consumer(group_id="billing", concurrency=1, max_in_flight=1, max_poll_interval=30.0)
    calls: list[int] = []

    @consumer.handler("orders")
    async def bill(order: dict[str, int]) -> None:
        calls.append(order["id"])
        await asyncio.sleep(200.0)

    async with TestConsumer(consumer) as t:
        for number in range(3):
            await t.publish("orders", {"id": number}, partition=0)
        await t.advance(500.0)
        assert consumer.health().state == "stable"
        await t.advance(200.0)
        assert calls == [0, 1, 2]
        assert t.committed("orders", 0) == 3
