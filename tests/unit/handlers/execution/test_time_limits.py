"""Handlers that take too long: warned of, cancelled, and in the end walled off."""

from __future__ import annotations

import asyncio
from typing import Any

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

from asyncrevoke.client.errors import HandlerTimeoutError
from asyncrevoke.client.model import Record  # noqa: TC001 - read at run time
from asyncrevoke.handlers.policy.retry import Retry


class Stubborn:
    """Ignores cancellation until the test lets it end."""

    def __init__(self) -> None:
        self.started: list[Record] = []
        self.may_end = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self, each: Record) -> None:
        self.started.append(each)
        while not self.may_end.is_set():
            try:
                await self.may_end.wait()
            except asyncio.CancelledError:
                continue
        if self.error is not None:
            raise self.error


async def test_a_slow_handler_is_logged_at_half_of_its_time_and_cancelled_at_the_end() -> None:
    work = HeldWork()
    async with running(work, max_handler_time=10, on_error="skip") as run:
        slow = record(0)
        run.source.feed(slow)
        await until(lambda: work.running)
        run.clock.advance(4.9)
        assert run.log.lines == []
        run.clock.advance(0.1)
        assert run.log.events("warning") == ["handler has used half of max_handler_time"]
        run.clock.advance(4.9)
        await turns()
        assert work.running
        run.clock.advance(0.1)
        await until(lambda: run.source.state_of(slow) is RecordState.DONE)
        assert work.cancelled == [slow]
        error = run.log.lines[-1][2]["exc_info"]
        assert isinstance(error, HandlerTimeoutError)
        assert str(error) == "the handler took longer than max_handler_time=10 s"
        await run.stop()


async def test_each_attempt_has_its_own_time() -> None:
    work = HeldWork()
    retry = Retry(attempts=2, backoff=1, jitter=0)
    async with running(work, max_handler_time=10, retry=retry) as run:
        run.source.feed(record(0))
        await until(lambda: work.running)
        run.clock.advance(10)
        await until(lambda: run.clock.timers == [11])
        run.clock.advance(1)
        await until(lambda: work.running)
        run.clock.advance(9)
        await turns()
        work.end()
        await until(lambda: run.source.completions)
        await run.stop()


async def test_a_worker_runs_other_records_after_a_handler_timed_out() -> None:
    cancelling: list[int] = []

    async def handle(each: Record) -> None:
        task = asyncio.current_task()
        assert task is not None
        cancelling.append(task.cancelling())
        if each.offset == 0:
            await asyncio.Event().wait()

    async with running(handle, max_handler_time=1, on_error="skip", concurrency=1) as run:
        run.source.feed(record(0), record(1))
        await until(lambda: cancelling)
        run.clock.advance(1)
        await until(lambda: len(run.source.completions) == 2)
        assert cancelling == [0, 0]
        await run.stop()


async def test_a_record_is_done_if_its_handler_returns_though_it_was_cancelled() -> None:
    async def handle(each: Record) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    async with running(handle, max_handler_time=1) as run:
        run.source.feed(record(0), record(1))
        for done in (1, 2):
            await until(lambda: run.clock.timers)
            run.clock.advance(1)
            await until(lambda: len(run.source.completions) == done)  # noqa: B023
        await run.stop()


async def test_a_handler_that_ignores_its_cancellation_pauses_its_partition() -> None:
    work = Stubborn()
    async with running(work, max_handler_time=1, on_error="skip") as run:
        stuck, behind, other = record(0), record(1), record(0, partition=OTHERS)
        run.source.feed(stuck, behind)
        await until(lambda: work.started)
        run.clock.advance(1)
        await turns()
        assert run.source.paused == []
        run.clock.advance(5)
        assert run.source.paused == [ORDERS]
        assert run.source.state_of(stuck) is RecordState.PENDING, (
            "it still runs: nobody else may have it"
        )
        assert run.source.dropped_after == [(ORDERS, 0)]
        run.source.feed(other)
        await until(lambda: len(work.started) == 2)
        work.may_end.set()
        await until(lambda: not run.source.in_flight)
        assert run.source.state_of(stuck) is run.source.state_of(other) is RecordState.DONE
        assert behind not in work.started
        await run.stop()


async def test_a_handler_that_fails_after_its_partition_was_paused_is_not_retried() -> None:
    work = Stubborn()
    async with running(work, max_handler_time=1, retry=Retry(attempts=None)) as run:
        stuck = record(0)
        run.source.feed(stuck)
        await until(lambda: work.started)
        run.clock.advance(6)
        work.error = ValueError("at last")
        work.may_end.set()
        await until(lambda: run.source.state_of(stuck) is RecordState.ABANDONED)
        assert run.clock.timers == []
        await run.stop()


async def test_a_partition_that_is_resumed_while_its_handler_is_stuck_works_as_before() -> None:
    work = Stubborn()
    retry = Retry(attempts=None, backoff=1, jitter=0)
    async with running(work, max_handler_time=1, retry=retry) as run:
        stuck, behind = record(0), record(1)
        run.source.feed(stuck, behind)
        await until(lambda: work.started)
        run.clock.advance(6)
        assert run.source.state_of(behind) is RecordState.DROPPED
        run.source.paused.clear()  # the user resumes it: the tracker is the same
        run.source.feed(record(1))
        work.error = ValueError("at last")
        work.may_end.set()
        await until(lambda: run.clock.timers)
        work.error = None
        run.clock.advance(1)
        await until(lambda: len(run.source.completions) == 2)
        assert [each.offset for each in work.started] == [0, 0, 1]
        await run.stop()


async def test_a_handler_cancelled_for_a_lost_partition_has_not_timed_out() -> None:
    work = HeldWork()
    async with running(work, max_handler_time=1, retry=Retry(attempts=None)) as run:
        run.source.feed(record(0))
        await until(lambda: work.running)
        run.source.feed(lost=[ORDERS])
        await until(lambda: work.cancelled)
        await turns()
        assert run.clock.timers == []
        assert run.log.lines == []
        await run.stop()


@pytest.mark.parametrize("lost_first", [True, False])
async def test_a_handler_that_is_lost_and_timed_out_at_once_is_lost(lost_first: bool) -> None:
    work = HeldWork()
    async with running(work, max_handler_time=1, concurrency=1) as run:
        run.source.feed(record(0))
        await until(lambda: work.running)
        run.source.deliver(run.source.batch(lost=[ORDERS]))
        if lost_first:
            run.runner.lose([ORDERS])
        run.clock.advance(1)
        if not lost_first:
            run.runner.lose([ORDERS])
        run.source.feed(record(0, tracker_id=2))
        await until(lambda: len(work.started) == 2)
        work.end()
        await run.stop()
        assert [completion.tracker_id for completion in run.source.completions] == [2]


async def test_max_handler_time_limits_batches_too() -> None:
    async def handle(values: list[bytes]) -> None:
        await asyncio.Event().wait()

    options: dict[str, Any] = {"batch": True, "max_records": 2, "max_handler_time": 1}
    async with running(handle, **options) as run:
        run.source.feed(record(0), record(1))
        await until(lambda: run.clock.timers)
        run.clock.advance(1)
        assert isinstance(await run.failure(), HandlerTimeoutError)
