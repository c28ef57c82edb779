"""The handler runner: takes records, runs handlers, completes, drains, fails."""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING, Any

from unit.handlers.scripted_runner import running
from unit.handlers.scripted_source import (
    HeldWork,
    RecordState,
    record,
    turns,
    until,
)

from asyncrevoke.client.errors import (
    ConfigError,
)
from asyncrevoke.client.model import Record, TopicPartition

if TYPE_CHECKING:
    import pytest


async def test_records_are_completed_as_their_handlers_end_in_any_order() -> None:
    work = HeldWork()
    a, b, c = record(0, b"a"), record(1, b"b"), record(2, b"c")
    async with running(work) as run:
        run.source.feed(a, b, c)
        await until(lambda: len(work.running) == 3)
        work.end(c)
        await until(lambda: run.source.state_of(c) is RecordState.DONE)
        assert run.source.state_of(a) is RecordState.PENDING
        work.end(a)
        work.end(b)
        await run.stop()
        assert run.source.completions[0] is c
        assert run.source.in_flight == 0


async def test_records_that_end_in_one_turn_of_the_loop_are_completed_by_one_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "asyncrevoke.handlers.execution.worker_pool._MAX_RUN_WITHOUT_YIELD", 60.0
    )  # on a busy machine too
    seen: list[Record] = []

    async def at_once(each: Record) -> None:
        seen.append(each)

    async with running(at_once) as run:
        run.source.feed(*(record(i, b"%d" % (i % 3)) for i in range(20)))
        await until(lambda: len(run.source.completions) == 20)
        assert run.source.completions == seen
        assert run.source.calls == 1
        await run.stop()


async def test_few_of_many_workers_go_on_in_each_turn_of_handlers_that_do_not_await(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One worker could do all. To let each of thousands go on costs more than their handlers."""
    for limit in ("_MAX_RUN_WITHOUT_YIELD", "_MAX_YIELDED_EXTENSION"):
        monkeypatch.setattr(f"asyncrevoke.handlers.execution.worker_pool.{limit}", 0.0)
    records, steps = 400, 0
    loop = asyncio.get_running_loop()
    call_soon = loop.call_soon

    def counted(*arguments: Any, **options: Any) -> asyncio.Handle:
        nonlocal steps
        steps += 1
        return call_soon(*arguments, **options)

    async def at_once(_each: Record) -> None:
        pass

    async with running(at_once, concurrency=records, order_by=None) as run:
        monkeypatch.setattr(loop, "call_soon", counted)
        run.source.feed(*(record(i) for i in range(records)))
        await until(lambda: len(run.source.completions) == records)
        await run.stop()
    assert steps < 50 * records


async def test_records_of_one_key_run_one_after_another_and_others_at_the_same_time() -> None:
    work = HeldWork()
    a0, b, a1 = record(0, b"a"), record(1, b"b"), record(2, b"a")
    async with running(work) as run:
        run.source.feed(a0, b, a1)
        await turns()
        assert work.running == [a0, b]
        work.end(a0)
        await until(lambda: a1 in work.running)
        work.end()
        await run.stop()


async def test_no_more_handlers_run_at_once_than_concurrency() -> None:
    work = HeldWork()
    records = [record(i, b"%d" % i) for i in range(10)]
    async with running(work, concurrency=3) as run:
        run.source.feed(*records)
        while run.source.in_flight or not work.started:
            await until(lambda: work.running or not run.source.in_flight)
            await turns()
            assert len(work.running) <= 3
            work.end(*work.running[:1])
            await turns()
        assert work.most_at_once == 3
        assert work.started == records
        await run.stop()


async def test_many_records_at_once_use_the_whole_concurrency() -> None:
    work = HeldWork()
    async with running(work, concurrency=40) as run:
        run.source.feed(*(record(i, b"%d" % i) for i in range(100)))
        await turns(20)
        assert len(work.running) == 40
        while run.source.in_flight:
            work.end()
            await turns(1)
        await run.stop()


async def test_handlers_that_await_nothing_yield_to_the_event_loop() -> None:
    ticks: list[int] = []
    handled: list[int] = []

    async def busy(each: Record) -> None:
        handled.append(each.offset)
        end = asyncio.get_running_loop().time() + 0.0005
        while asyncio.get_running_loop().time() < end:
            pass

    async with running(busy) as run:
        run.source.feed(*(record(i, b"%d" % (i % 7)) for i in range(100)))
        while len(handled) < 100:
            await asyncio.sleep(0)
            ticks.append(len(handled))
        # 50 ms of work, a turn every few ms; without breathing there would be no more than three.
        assert len(set(ticks)) >= 6
        await run.stop()


async def test_context_variables_of_one_record_are_not_seen_by_the_next() -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="-")
    seen: list[str] = []

    async def leaks(each: Record) -> None:
        seen.append(name.get())
        name.set(str(each.offset))

    outer = name.set("outer")
    async with running(leaks, concurrency=2) as run:
        run.source.feed(*(record(i) for i in range(20)))
        await until(lambda: len(seen) == 20)
        await run.stop()
    name.reset(outer)
    assert set(seen) == {"outer"}


async def test_a_topic_without_handler_stops_the_runner_with_the_fix() -> None:
    work = HeldWork()
    stray = record(0, partition=TopicPartition("strays", 0))
    async with running(work) as run:
        run.source.feed(stray)
        error = await run.failure()
        assert isinstance(error, ConfigError)
        assert 'no handler for topic "strays"' in str(error)
