"""The handler runner: failures of handlers and of the source."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from unit.handlers.scripted_runner import running
from unit.handlers.scripted_source import (
    ORDERS,
    OTHERS,
    HeldWork,
    LogLines,
    RecordState,
    ScriptedSource,
    record,
    turns,
    until,
)

from asyncrevoke.client.errors import (
    DecodeError,
    FatalError,
    HandlerCancelledError,
    HandlerExitError,
)
from asyncrevoke.client.model import Record  # noqa: TC001 - handlers' annotations are read
from asyncrevoke.handlers.execution.runner_context import RunnerContext
from asyncrevoke.handlers.registry import Router
from asyncrevoke.handlers.runner import HandlerRunner

if TYPE_CHECKING:
    from asyncrevoke.handlers.policy.registration import OnError


async def test_a_failure_starts_no_records_lets_others_end_and_is_raised() -> None:
    work = HeldWork()
    a0, a1, b2, b3 = (record(i, key) for i, key in enumerate([b"a", b"a", b"b", b"b"]))
    other = [record(i, b"a", partition=OTHERS) for i in range(2)]
    async with running(work) as run:
        run.source.feed(a0, a1, b2, b3, *other)
        await until(lambda: len(work.running) == 3)
        boom = ValueError("boom")
        work.end(a0, error=boom)
        await until(lambda: run.source.stopped)
        assert set(run.source.dropped_after) == {(ORDERS, 2), (OTHERS, 0)}
        await turns()
        assert set(work.running) == {b2, other[0]}
        assert not run.task.done()
        work.end()
        assert await run.failure() is boom
        assert not hasattr(boom, "__notes__"), "nothing is written into a user's exception"
        stopped = run.log.fields("handler failed; no further records start")
        assert (stopped["partition"], stopped["offset"]) == ("orders-0", 0)
        assert stopped["error"] == "ValueError: boom"
        assert run.source.state_of(a0) is RecordState.ABANDONED
        assert run.source.state_of(a1) is RecordState.ABANDONED, (
            "the key's order would be broken by it"
        )
        assert run.source.commit_point([a0, a1, b2]) == 0
        assert run.source.state_of(other[0]) is run.source.state_of(b2) is RecordState.DONE
        assert run.source.in_flight == 0


async def test_of_several_failures_the_first_is_raised_and_the_others_are_logged() -> None:
    work = HeldWork()
    a, b = record(0, b"a"), record(1, b"b")
    async with running(work) as run:
        run.source.feed(a, b)
        await until(lambda: len(work.running) == 2)
        work.end(b, error=ValueError("first"))
        await turns()
        work.end(a, error=ValueError("second"))
        assert str(await run.failure()) == "first"
        assert run.log.events("error") == [
            "handler failed; no further records start",
            "handler failed; no further records start",
            "another handler failed while the consumer stops",
        ]


async def test_a_failure_is_logged_if_the_runner_is_cancelled_while_it_stops() -> None:
    work = HeldWork()
    a, b = record(0, b"a"), record(1, b"b")
    async with running(work) as run:
        run.source.feed(a, b)
        await until(lambda: len(work.running) == 2)
        work.end(a, error=ValueError("boom"))
        await until(lambda: run.source.parked_now)
        run.task.cancel()
        await asyncio.wait([run.task])
        assert run.task.cancelled()
        assert run.log.events("error") == [
            "handler failed; no further records start",
            "cancelled while stopping after a handler failure",
        ]
        assert work.cancelled == [b]


async def test_a_failure_may_be_skipped() -> None:
    work = HeldWork()
    first, second = record(0), record(1)
    async with running(work, on_error="skip") as run:
        run.source.feed(first, second)
        await until(lambda: first in work.running)
        work.end(first, error=ValueError("boom"))
        await until(lambda: second in work.running)
        assert run.source.state_of(first) is RecordState.DONE
        assert run.log.events("warning") == ["handler failed; record skipped"]
        work.end()
        await run.stop()


@pytest.mark.parametrize("on_error", ["stop", "skip"])
async def test_a_value_that_does_not_decode_follows_the_policy(on_error: OnError) -> None:
    handled: list[str] = []

    async def handle(text: str) -> None:
        handled.append(text)

    router = Router()
    router.handler("orders", on_error=on_error)(handle)
    source = ScriptedSource()
    bad, good = record(0, value=b"\xff"), record(1, value=b"good")
    source.feed(bad, good)
    runner = HandlerRunner(source, router, RunnerContext(concurrency=2, log=LogLines()))
    task = asyncio.get_running_loop().create_task(runner.run())
    if on_error == "stop":
        with pytest.raises(DecodeError, match="orders-0 at offset 0"):
            await task
        assert handled == []
    else:
        await until(lambda: handled == ["good"])
        source.stop()
        await task
        assert source.state_of(bad) is RecordState.DONE


async def test_a_cancelled_error_that_the_library_did_not_cause_is_a_failure() -> None:
    async def awaits_a_cancelled_future(each: Record) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    async with running(awaits_a_cancelled_future) as run:
        run.source.feed(record(0))
        error = await run.failure()
        assert isinstance(error, HandlerCancelledError)
        assert "without being cancelled" in str(error)


async def test_a_handler_cancelled_from_outside_fails_and_others_continue() -> None:
    tasks: dict[int, asyncio.Task[None]] = {}
    handled: list[int] = []

    async def handle(each: Record) -> None:
        if each.offset == 0:
            task = asyncio.current_task()
            assert task is not None
            tasks[0] = task
            await asyncio.Event().wait()
        handled.append(each.offset)

    async with running(handle, concurrency=1, on_error="skip") as run:
        run.source.feed(record(0), record(1))
        await until(lambda: tasks)
        tasks[0].cancel()
        await until(lambda: handled == [1])
        assert run.log.events("warning") == ["handler failed; record skipped"]
        await run.stop()


@pytest.mark.parametrize("on_error", ["stop", "skip"])
@pytest.mark.parametrize("reason", [SystemExit(3), KeyboardInterrupt()])
async def test_a_handler_that_exits_stops_the_consumer_whatever_the_policy(
    reason: SystemExit | KeyboardInterrupt, on_error: OnError
) -> None:
    async def handle(each: Record) -> None:
        raise reason

    async with running(handle, on_error=on_error) as run:
        run.source.feed(record(0))
        error = await run.failure()
        assert isinstance(error, HandlerExitError)
        assert error.reason is reason
        assert run.source.in_flight == 0


async def test_an_error_of_the_source_is_raised_when_handlers_have_ended() -> None:
    work = HeldWork()
    async with running(work) as run:
        run.source.feed(record(0))
        await until(lambda: work.running)
        run.source.fail(FatalError("gone"))
        await until(lambda: run.source.parked_now)
        assert not run.task.done()
        work.end()
        assert str(await run.failure()) == "gone"


async def test_an_error_inside_the_runner_is_raised_without_waiting_for_handlers() -> None:
    work = HeldWork()
    a, b = record(0, b"a"), record(1, b"b")
    async with running(work) as run:
        run.source.feed(a, b)
        await until(lambda: len(work.running) == 2)
        run.source.states[ORDERS, 1, 0] = RecordState.DONE  # completing it again is rejected
        work.end(a)
        assert "ends a second time" in str(await run.failure())
        assert work.cancelled == [b]
        assert run.source.state_of(b) is RecordState.ABANDONED


async def test_records_returned_while_a_failure_stops_the_source_are_not_started() -> None:
    handled: list[int] = []

    async def handle(each: Record) -> None:
        handled.append(each.offset)
        raise ValueError("boom")

    async with running(handle) as run:
        run.source.feed(record(0, b"a"))
        run.source.feed(record(1, b"b"))
        run.source.feed(record(2, b"c"))
        await run.failure()
        assert handled == sorted(handled)
        for each in (record(1, b"b"), record(2, b"c")):
            if each.offset not in handled and (ORDERS, 1, each.offset) in run.source.states:
                assert run.source.state_of(each) is RecordState.DROPPED
        assert run.source.in_flight == 0
