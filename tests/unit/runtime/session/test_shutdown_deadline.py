"""One deadline from the first stop, failure or close on: in virtual time."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

import pytest
from unit.runtime.scripted_core import ORDERS, ScriptedConsumer, result, until

from asyncrevoke.client.core.io.deadline import Deadline
from asyncrevoke.client.core.io.effects import Notify, NotifyKind
from asyncrevoke.client.errors import IllegalStateError
from asyncrevoke.client.runtime.loop.abandoned_tasks import abandon
from asyncrevoke.consumer import RebalanceListener
from asyncrevoke.testing.virtual_time import VirtualTime, virtual_time

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from typing import Any

    from asyncrevoke.client.model import Record, TopicPartition
    from asyncrevoke.client.runtime.hooks.recorders import SessionRecorder

CLOSE_TIMEOUT = 8.0
# What is after the deadline: a listener that hears of losses, callbacks that were cancelled.
LATE = 1.0


@pytest.fixture
async def time() -> AsyncGenerator[VirtualTime]:
    time = virtual_time()
    time.enter()
    try:
        yield time
    finally:
        time.leave()


def consumer(**options: Any) -> ScriptedConsumer:
    return ScriptedConsumer(group_id="billing", close_timeout=CLOSE_TIMEOUT, **options)


async def seconds_until(time: VirtualTime, done: Callable[[], bool], most: float = 60.0) -> float:
    """Let time pass until ``done()``; how much has passed."""
    begun = time.clock.now
    async with time.call():
        assert await time.pass_until(begun + most, done), f"not within {most} s"
    return time.clock.now - begun


async def pass_seconds(time: VirtualTime, seconds: float) -> None:
    async with time.call():
        await time.pass_until(time.clock.now + seconds)


async def never() -> None:
    await asyncio.Event().wait()


async def ignoring_cancellation(ended: Callable[[], bool] = lambda: False) -> None:
    while not ended():
        try:
            await asyncio.sleep(0.5)
        except asyncio.CancelledError:
            continue


async def started(ours: ScriptedConsumer, running: asyncio.Task[None], handled: list[Any]) -> None:
    await until(lambda: hasattr(ours, "session") or running.done())
    ours.deliver(result(1))
    await until(lambda: handled)


async def completed(ours: ScriptedConsumer) -> None:
    await until(lambda: hasattr(ours, "session"))
    ours.deliver(result(1))
    await until(lambda: ours.core.asked("complete"))


def test_half_of_what_is_kept_is_for_the_commit_and_half_for_leaving() -> None:
    assert Deadline.after(100.0, 25.0) == (120.0, 122.5, 125.0)
    assert Deadline.after(100.0, 8.0) == (104.0, 106.0, 108.0)
    assert Deadline.after(100.0, 0.0) == (100.0, 100.0, 100.0)


async def test_a_stop_begins_the_deadline_and_cancels_handlers_in_time_to_leave(
    time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    ours = consumer()
    handled: list[bytes] = []

    @ours.handler("orders")
    async def bill(value: bytes) -> None:
        handled.append(value)
        await never()

    running = asyncio.create_task(ours.run())
    await started(ours, running, handled)
    stopped_at = time.clock.now
    ours.stop()
    with caplog.at_level(logging.WARNING, "asyncrevoke"):
        assert await seconds_until(time, running.done) == pytest.approx(4.0, abs=0.1)
    await running
    assert ours.core.asked("abandon") == [1]
    assert ours.core.asked("complete") == []
    assert ours.core.deadline == Deadline.after(stopped_at, CLOSE_TIMEOUT)
    (line,) = [text for text in caplog.messages if "close_timeout reached" in text]
    assert "bill orders-0 offset 1" in line


async def test_a_close_does_not_begin_the_deadline_again(time: VirtualTime) -> None:
    ours = consumer()
    ours_never_left: list[int] = []
    handled: list[bytes] = []

    @ours.handler("orders")
    async def bill(value: bytes) -> None:
        handled.append(value)
        await ignoring_cancellation()

    running = asyncio.create_task(ours.run())
    await started(ours, running, handled)
    ours.core.on_close = lambda call_id, _graceful: ours_never_left.append(call_id)
    stopped_at = time.clock.now
    ours.stop()
    await pass_seconds(time, 3.0)
    closing = asyncio.create_task(ours.aclose())
    await pass_seconds(time, 3.0)
    second = asyncio.create_task(ours.aclose())
    await seconds_until(time, lambda: running.done() and closing.done() and second.done())
    assert time.clock.now - stopped_at <= CLOSE_TIMEOUT + LATE
    assert ours.core.deadline == Deadline.after(stopped_at, CLOSE_TIMEOUT)
    assert ours.requests.closed


async def test_records_that_have_not_started_are_dropped_at_once(time: VirtualTime) -> None:
    ours = consumer(concurrency=2, order_by=None)
    handled: list[int] = []
    go_on = asyncio.Event()

    @ours.handler("orders")
    async def bill(value: bytes) -> None:
        handled.append(len(handled))
        await go_on.wait()

    running = asyncio.create_task(ours.run())
    await until(lambda: hasattr(ours, "session"))
    ours.deliver(result(*range(10)))
    await until(lambda: len(handled) == 2)
    ours.stop()
    await until(lambda: ours.core.asked("drop_after"))
    go_on.set()
    await seconds_until(time, running.done, 1.0)
    assert len(handled) == 2
    assert ours.core.asked("drop_after") == [(ORDERS, 1)]


async def test_a_failure_begins_the_deadline_and_is_raised_though_others_do_not_end(
    time: VirtualTime,
) -> None:
    ours = consumer(order_by=None)
    handled: list[int] = []

    @ours.handler("orders")
    async def bill(value: bytes) -> None:
        handled.append(len(handled))
        if len(handled) == 2:
            raise ZeroDivisionError
        await never()

    running = asyncio.create_task(ours.run())
    await until(lambda: hasattr(ours, "session"))
    ours.deliver(result(1, 2))
    assert await seconds_until(time, running.done) == pytest.approx(4.0, abs=0.1)
    with pytest.raises(ZeroDivisionError):
        await running
    assert ours.requests.closed


async def test_a_failure_is_raised_though_a_handler_ignores_its_cancellation(
    time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    ours = consumer(order_by=None)
    handled: list[int] = []
    tested = False

    @ours.handler("orders")
    async def bill(value: bytes) -> None:
        handled.append(len(handled))
        if len(handled) == 2:
            raise ZeroDivisionError
        await ignoring_cancellation(lambda: tested)

    running = asyncio.create_task(ours.run())
    await until(lambda: hasattr(ours, "session"))
    ours.deliver(result(1, 2))
    assert await seconds_until(time, running.done) <= CLOSE_TIMEOUT + LATE
    with pytest.raises(ZeroDivisionError):
        await running
    assert "cancelled handler did not exit; abandoned" in caplog.text
    # asyncio.run would wait for it otherwise.
    assert asyncio.all_tasks() == {asyncio.current_task()}
    tested = True
    await pass_seconds(time, 1.0)


@pytest.mark.parametrize("ignores", [False, True])
async def test_resources_that_do_not_close_hold_nothing_up(
    time: VirtualTime, ignores: bool
) -> None:
    tested = False

    @asynccontextmanager
    async def hanging(_state: object = None) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            await (ignoring_cancellation(lambda: tested) if ignores else never())

    for resources in ({"resources": hanging()}, {"worker_resources": hanging}):
        tested = False
        ours = consumer(**resources)
        handled: list[bytes] = []

        @ours.handler("orders")
        async def bill(value: bytes, handled: list[bytes] = handled) -> None:
            handled.append(value)

        running = asyncio.create_task(ours.run())
        await completed(ours)
        ours.stop()
        assert await seconds_until(time, running.done) <= CLOSE_TIMEOUT + LATE
        await running
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert ours.requests.closed
        tested = True
        await pass_seconds(time, 1.0)


async def test_handlers_that_run_after_a_stop_may_use_the_consumer(time: VirtualTime) -> None:
    ours = consumer()
    seen: list[object] = []
    handled: list[bytes] = []
    go_on = asyncio.Event()

    @ours.handler("orders")
    async def bill(value: bytes) -> None:
        handled.append(value)
        await go_on.wait()
        seen.append(ours.assignment())

    running = asyncio.create_task(ours.run())
    await started(ours, running, handled)
    ours.stop()
    await pass_seconds(time, 1.0)
    go_on.set()
    await seconds_until(time, running.done)
    assert seen == [{ORDERS}]


async def test_stopping_a_plain_loop_begins_no_deadline(time: VirtualTime) -> None:
    ours = ScriptedConsumer("orders", group_id="billing", close_timeout=CLOSE_TIMEOUT)
    async with ours:
        ours.deliver(result(1), result(2))
        await anext(ours)
        ours.stop()
        await pass_seconds(time, 30.0)
        assert ours.core.asked("close") == []
        with pytest.raises(StopAsyncIteration):
            await anext(ours)
        closing_at = time.clock.now
    assert ours.core.deadline == Deadline.after(closing_at, CLOSE_TIMEOUT)


@pytest.mark.parametrize("leaves_first", [False, True])
async def test_a_failed_task_bounds_how_long_its_group_waits_for_the_others(
    time: VirtualTime, leaves_first: bool, caplog: pytest.LogCaptureFixture
) -> None:
    ours = ScriptedConsumer(
        "orders", group_id="billing", close_timeout=CLOSE_TIMEOUT, order_by=None
    )
    fail = asyncio.Event()
    left = asyncio.Event()

    async def work(record: Record) -> None:
        if record.offset == 2:
            await fail.wait()
            raise ZeroDivisionError
        await never()

    async def loop() -> None:
        async with ours, ours.task_group() as tasks:
            async for batch in ours:
                for one in batch.records:
                    await tasks.submit(work, one)
                if leaves_first:
                    break
                fail.set()
            left.set()

    await asyncio.sleep(0)
    looping = asyncio.create_task(loop())
    await until(lambda: hasattr(ours, "session"))
    ours.deliver(result(1, 2))
    await until(left.is_set)
    if leaves_first:
        await pass_seconds(time, 100.0)
        assert not looping.done()
        fail.set()
    assert await seconds_until(time, looping.done) == pytest.approx(4.0, abs=0.2)
    with pytest.raises(ZeroDivisionError):
        await looping
    (line,) = [text for text in caplog.messages if "close_timeout reached" in text]
    assert "work orders-0 offset 1" in line
    assert ours.requests.closed


# -- listeners


class Revoked(RebalanceListener):
    def __init__(self, act: Callable[[], Any]) -> None:
        self._act = act

    async def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None:
        await self._act()


def revoking_at_close(ours: ScriptedConsumer) -> None:
    def on_close(call_id: int, graceful: bool) -> None:
        ours.core.effects.append(Notify(NotifyKind.REVOKED, frozenset({ORDERS})))
        ours.core.close_at_once(call_id, graceful)

    ours.core.on_close = on_close


async def test_a_listener_that_ignores_its_cancellation_holds_a_close_up_for_close_timeout(
    time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    tested = False
    ours = consumer(listener=Revoked(lambda: ignoring_cancellation(lambda: tested)))
    await ours.start()
    revoking_at_close(ours)
    closing = asyncio.create_task(ours.aclose())
    assert await seconds_until(time, closing.done) <= CLOSE_TIMEOUT + LATE
    await closing
    assert "cancelled callback did not exit; abandoned" in caplog.text
    assert ours.requests.closed
    assert asyncio.all_tasks() == {asyncio.current_task()}
    tested = True
    await pass_seconds(time, 1.0)


async def failing() -> None:
    raise IllegalStateError("the listener has failed")


async def test_an_error_of_a_listener_at_close_is_raised_when_all_is_closed() -> None:
    ours = ScriptedConsumer("orders", group_id="billing", listener=Revoked(failing))
    await ours.start()
    revoking_at_close(ours)
    with pytest.raises(IllegalStateError, match="the listener has failed"):
        await ours.aclose()
    assert ours.core.leaving.closed
    assert ours.requests.closed


async def test_an_error_of_a_listener_at_close_is_raised_once() -> None:
    ours = ScriptedConsumer("orders", group_id="billing", listener=Revoked(failing))
    await ours.start()
    revoking_at_close(ours)
    both = await asyncio.gather(ours.aclose(), ours.aclose(), return_exceptions=True)
    assert [type(error) for error in both] == [IllegalStateError] * 2, "both have waited"
    await ours.aclose()


async def test_an_error_of_a_close_that_nobody_has_waited_for_is_raised_by_the_first_call() -> None:
    ours = consumer(listener=Revoked(failing))

    @ours.handler("orders")
    async def bill(value: bytes) -> None: ...

    await ours.start()
    revoking_at_close(ours)
    ours.stop()
    await until(lambda: ours.requests.closed)
    with pytest.raises(IllegalStateError, match="the listener has failed"):
        await ours.aclose()
    await ours.aclose()


async def test_an_error_of_a_listener_at_close_is_raised_by_run() -> None:
    ours = consumer(listener=Revoked(failing))

    @ours.handler("orders")
    async def bill(value: bytes) -> None:
        ours.stop()

    running = asyncio.create_task(ours.run())
    await until(lambda: hasattr(ours, "session"))
    revoking_at_close(ours)
    ours.deliver(result(1))
    with pytest.raises(IllegalStateError, match="the listener has failed"):
        await running
    assert ours.requests.closed


async def test_a_handlers_error_wins_over_that_of_a_listener_at_close(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ours = consumer(listener=Revoked(failing))

    @ours.handler("orders")
    async def bill(value: bytes) -> None:
        raise ZeroDivisionError

    running = asyncio.create_task(ours.run())
    await until(lambda: hasattr(ours, "session"))
    revoking_at_close(ours)
    ours.deliver(result(1))
    with pytest.raises(ZeroDivisionError):
        await running
    assert "the listener has failed" in caplog.text


async def test_the_users_error_wins_over_that_of_a_listener_at_close(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ours = ScriptedConsumer("orders", group_id="billing", listener=Revoked(failing))
    with pytest.raises(ZeroDivisionError):
        async with ours:
            revoking_at_close(ours)
            raise ZeroDivisionError
    assert "the listener has failed" in caplog.text


# -- the journal


class Sealing:
    """A journal's recorder that has a large segment to seal."""

    behind = False

    def __init__(self) -> None:
        self.cancelled = False

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_args, **_named: None

    async def aclose(self) -> None:
        try:
            await never()
        except asyncio.CancelledError:
            self.cancelled = True
            raise


async def test_a_segment_that_is_sealed_holds_a_close_up_for_close_timeout_only(
    time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    ours = consumer()
    sealing = Sealing()
    ours.recorder = cast("SessionRecorder", sealing)
    await ours.start()
    closing = asyncio.create_task(ours.aclose())
    assert await seconds_until(time, closing.done) <= CLOSE_TIMEOUT + LATE
    await closing
    assert ours.requests.closed
    assert sealing.cancelled
    assert "not sealed within close_timeout" in caplog.text


# -- tasks that ignore their cancellation


async def test_an_abandoned_task_runs_on_and_its_error_is_not_reported() -> None:
    go_on = asyncio.Event()
    ended: list[bool] = []

    async def late() -> None:
        await go_on.wait()
        ended.append(True)
        raise ZeroDivisionError

    task = asyncio.create_task(late())
    await asyncio.sleep(0)
    abandon(task)
    assert task not in asyncio.all_tasks()
    go_on.set()
    await until(lambda: ended)
    await asyncio.sleep(0)
