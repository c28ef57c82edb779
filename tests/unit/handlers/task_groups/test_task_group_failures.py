"""The tracked task group: failed, cancelled and exiting tasks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from unit.handlers.scripted_source import (
    RecordState,
    record,
    turns,
    until,
)

from asyncrevoke.client.errors import HandlerCancelledError

if TYPE_CHECKING:
    from unit.handlers.task_groups.scripted_task_group import Setting

    from asyncrevoke.client.model import Record


async def test_an_exception_in_the_body_cancels_tasks_and_their_records_are_not_done(
    setting: Setting,
) -> None:
    a0, a1, b0 = setting.delivered(record(0), record(1), record(2, b"b"))
    tasks = setting.group()

    async def body() -> None:
        async with tasks:
            for each in (a0, a1, b0):
                await tasks.submit(setting.work, each)
            await turns()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await body()
    assert set(setting.work.cancelled) == {a0, b0}
    assert {setting.source.state_of(each) for each in (a0, a1, b0)} == {RecordState.ABANDONED}
    assert tasks.in_flight == 0
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_cancelling_while_the_group_is_left_cancels_its_tasks(setting: Setting) -> None:
    (one,) = setting.delivered(record(0))

    async def body() -> None:
        async with setting.group() as tasks:
            await tasks.submit(setting.work, one)

    task = asyncio.create_task(body())
    await until(lambda: setting.work.running)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert setting.work.cancelled == [one]
    assert setting.source.state_of(one) is RecordState.ABANDONED
    assert setting.source.parked_now == 0


async def test_a_failure_ends_the_iterator_and_is_raised_on_leaving(setting: Setting) -> None:
    a0, a1, b2, b3 = setting.delivered(
        *(record(i, key) for i, key in enumerate([b"a", b"a", b"b", b"b"]))
    )
    boom = ValueError("boom")

    async def body() -> None:
        async with setting.group() as tasks:
            for each in (a0, a1, b2, b3):
                await tasks.submit(setting.work, each)
            with pytest.raises(StopAsyncIteration):
                await setting.source.poll()

    task = asyncio.create_task(body())
    await until(lambda: len(setting.work.running) == 2)
    setting.work.end(a0, error=boom)
    await until(lambda: setting.source.parked_now)
    assert setting.work.running == [b2], "what runs drains"
    setting.work.end()
    with pytest.raises(ValueError, match="boom") as caught:
        await task
    assert caught.value is boom
    assert not hasattr(boom, "__notes__"), "nothing is written into a user's exception"
    stopped = setting.log.fields("handler failed; no further records start")
    assert (stopped["partition"], stopped["offset"]) == ("orders-0", 0)
    assert setting.source.state_of(b2) is RecordState.DONE
    assert {setting.source.state_of(each) for each in (a0, a1, b3)} == {RecordState.ABANDONED}


async def test_a_failure_is_raised_by_the_next_submit_and_running_tasks_end(
    setting: Setting,
) -> None:
    a, b, c = setting.delivered(record(0, b"a"), record(1, b"b"), record(2, b"c"))
    boom = ValueError("boom")

    async def body() -> None:
        async with setting.group(max_in_flight=2) as tasks:
            await tasks.submit(setting.work, a)
            await tasks.submit(setting.work, b)
            await tasks.submit(setting.work, c)

    task = asyncio.create_task(body())
    await until(lambda: len(setting.work.running) == 2)
    setting.work.end(a, error=boom)
    await turns()
    assert not task.done()
    setting.work.end(b)
    with pytest.raises(ValueError, match="boom"):
        await task
    assert setting.work.cancelled == []
    assert setting.source.state_of(b) is RecordState.DONE
    assert setting.source.state_of(c) is RecordState.PENDING


async def test_an_error_of_the_body_is_raised_and_a_failed_task_is_logged(setting: Setting) -> None:
    (one,) = setting.delivered(record(0))

    async def body() -> None:
        async with setting.group() as tasks:
            await tasks.submit(setting.work, one)
            await turns()
            setting.work.end(error=ValueError("boom"))
            await turns()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await body()
    assert setting.log.events("error") == [
        "handler failed; no further records start",
        "task failed, and its group was left with another error",
    ]


async def test_a_failure_may_be_skipped(setting: Setting) -> None:
    a0, a1 = setting.delivered(record(0), record(1))
    async with setting.group(on_error="skip") as tasks:
        await tasks.submit(setting.work, a0)
        await tasks.submit(setting.work, a1)
        await turns()
        setting.work.end(a0, error=ValueError("boom"))
        await until(lambda: a1 in setting.work.running)
        setting.work.end()
    assert setting.source.completions == [a0, a1]
    assert setting.log.events("warning") == ["handler failed; record skipped"]


@pytest.mark.parametrize("reason", [SystemExit(3), KeyboardInterrupt()])
async def test_a_task_that_exits_is_not_skipped(
    setting: Setting, reason: SystemExit | KeyboardInterrupt
) -> None:
    (one,) = setting.delivered(record(0))
    caught: list[BaseException] = []
    try:
        async with setting.group(on_error="skip") as tasks:
            await tasks.submit(setting.work, one)
            await turns()
            setting.work.end(error=reason)
    except (SystemExit, KeyboardInterrupt) as error:
        caught.append(error)
    assert caught == [reason]
    assert setting.source.state_of(one) is RecordState.ABANDONED


async def test_a_cancelled_error_that_the_library_did_not_cause_is_a_failure(
    setting: Setting,
) -> None:
    (one,) = setting.delivered(record(0))

    async def body() -> None:
        async with setting.group() as tasks:
            await tasks.submit(setting.work, one)
            await turns()
            setting.work.end(error=asyncio.CancelledError())

    with pytest.raises(HandlerCancelledError):
        await body()


async def test_a_task_that_does_not_end_when_cancelled_is_abandoned_with_one_log_line(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncrevoke.handlers.execution.worker_pool._GRACE", 0.01)
    (one,) = setting.delivered(record(0))
    release = asyncio.Event()

    async def stubborn(each: Record) -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    tasks = setting.group()

    async def body() -> None:
        async with tasks:
            await tasks.submit(stubborn, one)
            await turns()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await body()
    (line,) = [line for line in setting.log.lines if line[0] == "error"]
    assert "abandoned" in line[1]
    assert line[2]["offset"] == 0
    assert setting.source.state_of(one) is RecordState.ABANDONED
    release.set()
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})
    assert setting.source.completions == [], "it was given up: it cannot count any more"
    assert tasks.in_flight == 0
    assert len(setting.log.events("error")) == 1
