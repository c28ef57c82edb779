"""The tracked task group: tasks of the user's own loop whose records are counted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from unit.scripted_source import (
    ORDERS,
    OTHERS,
    Fate,
    HeldWork,
    LogLines,
    ScriptedSource,
    record,
    turns,
    until,
)

from asyncrevoke.errors import HandlerCancelledError, IllegalStateError
from asyncrevoke.handlers.task_group import TrackedTaskGroup

if TYPE_CHECKING:
    from asyncrevoke.config import OrderBy
    from asyncrevoke.handlers.task_group import OnTaskError
    from asyncrevoke.model import Record


class Setting:
    """A source, a log, work that the test ends, and groups on them."""

    def __init__(self) -> None:
        self.source = ScriptedSource()
        self.log = LogLines()
        self.work = HeldWork()

    def group(
        self,
        *,
        concurrency: int = 8,
        max_in_flight: int = 100,
        order_by: OrderBy | None = "key",
        on_error: OnTaskError = "stop",
    ) -> TrackedTaskGroup:
        return TrackedTaskGroup(
            self.source,
            concurrency=concurrency,
            max_in_flight=max_in_flight,
            order_by=order_by,
            on_error=on_error,
            log=self.log,
        )

    def delivered(self, *records: Record) -> list[Record]:
        self.source.deliver(self.source.batch(*records))
        return list(records)


@pytest.fixture
def setting() -> Setting:
    return Setting()


async def test_records_are_done_when_their_tasks_end_and_leaving_waits_for_all(
    setting: Setting,
) -> None:
    a, b = setting.delivered(record(0, b"a"), record(1, b"b"))

    async def body() -> None:
        async with setting.group() as tasks:
            assert await tasks.submit(setting.work, a)
            assert await tasks.submit(setting.work, b)
            assert tasks.in_flight == 2
            assert setting.source.fate(a) is Fate.HELD
            assert setting.work.started == []

    task = asyncio.create_task(body())
    await until(lambda: len(setting.work.running) == 2)
    setting.work.end(b)
    await until(lambda: setting.source.fate(b) is Fate.DONE)
    await turns()
    assert not task.done()
    assert setting.source.parked_now == 1, "leaving is a poll boundary"
    setting.work.end(a)
    await task
    assert setting.source.completions == [b, a]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_arguments_beside_the_record_are_passed_on(setting: Setting) -> None:
    (one,) = setting.delivered(record(0))
    got: list[tuple[int, str, int]] = []

    async def work(each: Record, name: str, count: int) -> None:
        got.append((each.offset, name, count))

    async with setting.group() as tasks:
        await tasks.submit(work, one, "n", 3)
    assert got == [(0, "n", 3)]


async def test_tasks_of_one_key_run_in_the_order_of_submission(setting: Setting) -> None:
    records = setting.delivered(record(0, b"a"), record(1, b"a"), record(2, b"b"))
    async with setting.group() as tasks:
        for each in records:
            await tasks.submit(setting.work, each)
        await turns()
        assert setting.work.offsets == [0, 2]
        setting.work.end()
        await until(lambda: setting.work.offsets == [0, 2, 1])
        setting.work.end()


async def test_submit_waits_for_room_which_is_a_poll_boundary(setting: Setting) -> None:
    records = setting.delivered(*(record(i, b"%d" % i) for i in range(3)))
    async with setting.group(max_in_flight=2, concurrency=1) as tasks:
        await tasks.submit(setting.work, records[0])
        await tasks.submit(setting.work, records[1])
        assert setting.source.parks == 0, "room is max_in_flight, not concurrency"
        third = asyncio.create_task(tasks.submit(setting.work, records[2]))
        await turns()
        assert not third.done()
        assert setting.source.parked_now == 1
        assert setting.source.fate(records[2]) is Fate.PENDING
        setting.work.end()
        assert await third
        assert setting.source.parked_now == 0
        while setting.source.in_flight:
            setting.work.end()
            await turns()


async def test_a_cancelled_submit_has_registered_nothing(setting: Setting) -> None:
    first, second = setting.delivered(record(0, b"a"), record(1, b"b"))
    async with setting.group(max_in_flight=1) as tasks:
        await tasks.submit(setting.work, first)
        waiting = asyncio.create_task(tasks.submit(setting.work, second))
        await turns()
        waiting.cancel()
        await asyncio.wait([waiting])
        assert setting.source.fate(second) is Fate.PENDING
        setting.work.end()
        await until(lambda: tasks.in_flight == 0)
        assert await tasks.submit(setting.work, second), "the room was not taken"
        await turns()
        setting.work.end()


async def test_a_record_of_a_lost_partition_is_refused_and_not_run(setting: Setting) -> None:
    (gone,) = setting.delivered(record(0))
    setting.source.deliver(setting.source.batch(lost=[ORDERS]))
    async with setting.group(max_in_flight=1) as tasks:
        for _ in range(3):
            assert not await tasks.submit(setting.work, gone)
        assert tasks.in_flight == 0
    assert setting.work.started == []


async def test_a_record_is_submitted_once(setting: Setting) -> None:
    (one,) = setting.delivered(record(0))
    async with setting.group() as tasks:
        assert await tasks.submit(setting.work, one)
        assert not await tasks.submit(setting.work, one)
        await turns()
        setting.work.end()
    assert setting.work.started == [one]


async def test_a_lost_partition_s_tasks_are_cancelled_and_make_room(setting: Setting) -> None:
    a0, a1, b0, b1 = setting.delivered(
        record(0), record(1), record(0, partition=OTHERS), record(1, b"x", partition=OTHERS)
    )
    async with setting.group(max_in_flight=3) as tasks:
        for each in (a0, a1, b0):
            await tasks.submit(setting.work, each)
        await turns()
        waiting = asyncio.create_task(tasks.submit(setting.work, b1))
        await turns()
        assert not waiting.done()
        lost = setting.source.batch(lost=[ORDERS])
        setting.source.deliver(lost)
        tasks.observe(lost)
        assert await waiting
        await until(lambda: setting.work.cancelled == [a0])
        await turns()
        assert tasks.in_flight == 2
        setting.work.end()
    assert setting.source.completions == [b0, b1]
    assert a1 not in setting.work.started


async def test_a_revoke_cancels_nothing_and_drops_nothing(setting: Setting) -> None:
    a0, a1 = setting.delivered(record(0), record(1))
    async with setting.group() as tasks:
        await tasks.submit(setting.work, a0)
        await tasks.submit(setting.work, a1)
        tasks.observe(setting.source.batch(revoke=[ORDERS]))
        await turns()
        setting.work.end()
        await turns()
        setting.work.end()
    assert setting.source.completions == [a0, a1]


async def test_an_exception_in_the_body_cancels_tasks_whose_records_do_not_count(
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
    assert {setting.source.fate(each) for each in (a0, a1, b0)} == {Fate.ABANDONED}
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
    assert setting.source.fate(one) is Fate.ABANDONED
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
    assert "orders-0 at offset 0" in "".join(boom.__notes__)
    assert setting.source.fate(b2) is Fate.DONE
    assert {setting.source.fate(each) for each in (a0, a1, b3)} == {Fate.ABANDONED}


async def test_a_failure_is_raised_by_the_next_submit_and_what_runs_drains(
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
    assert setting.source.fate(b) is Fate.DONE
    assert setting.source.fate(c) is Fate.PENDING


async def test_another_error_of_the_body_wins_and_the_failure_is_logged(setting: Setting) -> None:
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
    assert setting.log.events("error") == ["a task failed, and another error left its group"]


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
    assert setting.log.events("warning") == ["a task failed: its record is skipped"]


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
    assert setting.source.fate(one) is Fate.ABANDONED


async def test_a_cancellation_that_nobody_asked_for_is_a_failure(setting: Setting) -> None:
    (one,) = setting.delivered(record(0))

    async def body() -> None:
        async with setting.group() as tasks:
            await tasks.submit(setting.work, one)
            await turns()
            setting.work.end(error=asyncio.CancelledError())

    with pytest.raises(HandlerCancelledError):
        await body()


async def test_a_task_that_does_not_end_when_cancelled_is_left_behind_and_named(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncrevoke.handlers.workers._GRACE", 0.01)
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
    assert "left behind" in line[1]
    assert line[2]["offset"] == 0
    assert setting.source.fate(one) is Fate.ABANDONED
    release.set()
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})
    assert setting.source.completions == [], "it was given up: it cannot count any more"
    assert tasks.in_flight == 0
    assert len(setting.log.events("error")) == 1


async def test_submit_works_inside_the_group_only(setting: Setting) -> None:
    (one,) = setting.delivered(record(0))
    group = setting.group()
    with pytest.raises(IllegalStateError, match="async with"):
        await group.submit(setting.work, one)
    async with group:
        pass
    with pytest.raises(IllegalStateError, match="async with"):
        await group.submit(setting.work, one)
    with pytest.raises(IllegalStateError, match="once"):
        await group.__aenter__()
