"""The handler runner: what revocations, losses and closing drop and cancel."""

from __future__ import annotations

import asyncio

import pytest
from unit.handlers.scripted_runner import RunningHandlers, running
from unit.handlers.scripted_source import (
    ORDERS,
    OTHERS,
    HeldWork,
    RecordState,
    record,
    turns,
    until,
)

from asyncrevoke.client.model import Record  # noqa: TC001 - handlers' annotations are read
from asyncrevoke.handlers.policy.retry import Retry


async def test_a_revocation_drops_records_after_the_last_started_one_at_once() -> None:
    work = HeldWork()
    a0, a1, b2, a3, b4 = (record(i, key) for i, key in enumerate([b"a", b"a", b"b", b"a", b"b"]))
    other = [record(i, b"a", partition=OTHERS) for i in range(2)]
    async with running(work) as run:
        run.source.feed(a0, a1, b2, a3, b4, *other)
        await until(lambda: {a0, b2, other[0]} == set(work.running))
        run.source.feed(revoke=[ORDERS])
        await until(lambda: run.source.dropped_after)
        assert run.source.dropped_after == [(ORDERS, 2)]
        assert run.source.state_of(a3) is run.source.state_of(b4) is RecordState.DROPPED
        work.end(a0)
        await until(lambda: a1 in work.running)
        work.end()
        await until(lambda: other[1] in work.running)
        work.end()
        await run.stop()
        assert a3 not in work.started
        assert b4 not in work.started
        assert run.source.commit_point([a0, a1, b2]) == 3
        assert run.source.dropped_after == [(ORDERS, 2)]


async def test_stopping_handles_a_gap_and_drops_records_after_the_last_started_one() -> None:
    work = HeldWork()
    slow = [record(i, b"slow") for i in range(3)]
    fast, late = record(3, b"fast"), record(4, b"late")
    async with running(work, concurrency=2) as run:
        run.source.feed(*slow, fast, late)
        await until(lambda: len(work.running) == 2)
        run.source.stop()
        await turns()
        assert run.source.state_of(late) is RecordState.DROPPED
        for each in (fast, *slow):
            await until(lambda: each in work.running)  # noqa: B023 - awaited here
            work.end(each)
        async with asyncio.timeout(5):
            await run.task
        assert run.source.commit_point([*slow, fast]) == 4
        assert late not in work.started


async def test_a_failure_while_stopping_ends_the_gap() -> None:
    work = HeldWork()
    slow = [record(i, b"slow") for i in range(4)]
    fast = record(4, b"fast")
    async with running(work, concurrency=2) as run:
        run.source.feed(*slow, fast)
        await until(lambda: len(work.running) == 2)
        run.source.stop()
        await turns()
        work.end(fast, error=ZeroDivisionError())
        await turns()
        assert [run.source.state_of(each) for each in slow[1:]] == [RecordState.ABANDONED] * 3
        work.end()
        with pytest.raises(ZeroDivisionError):
            await run.task
        assert work.started == [slow[0], fast]


async def test_stopping_drops_gaps_if_the_source_allows_it() -> None:
    work = HeldWork()
    slow = [record(i, b"slow") for i in range(4)]
    fast, late = record(4, b"fast"), record(5, b"late")
    async with running(work, concurrency=2) as run:
        run.source.gaps_from = 0
        run.source.feed(*slow, fast, late)
        await until(lambda: len(work.running) == 2)
        run.source.stop()
        await turns()
        assert [run.source.state_of(each) for each in slow[1:]] == [RecordState.ABANDONED] * 3
        assert run.source.state_of(late) is RecordState.DROPPED
        work.end()
        work.end()
        async with asyncio.timeout(5):
            await run.task
        assert work.started == [slow[0], fast]
        assert run.source.commit_point([*slow, fast]) == 1


async def test_a_revocation_drops_gaps_if_the_source_allows_it() -> None:
    work = HeldWork()
    slow = [record(i, b"slow") for i in range(5)]
    fast = [record(5 + i, b"fast %d" % i) for i in range(3)]
    async with running(work, concurrency=3) as run:
        run.source.gaps_from = 2
        run.source.feed(*slow, *fast)
        await until(lambda: len(work.running) == 3)
        assert work.running == [slow[0], *fast[:2]]
        run.source.feed(revoke=[ORDERS])
        await until(lambda: run.source.dropped_after)
        assert run.source.dropped_after == [(ORDERS, 6)]
        assert [run.source.state_of(each) for each in slow[2:]] == [RecordState.ABANDONED] * 3
        assert run.source.state_of(fast[2]) is RecordState.DROPPED
        assert run.source.in_flight == 4
        work.end()
        await until(lambda: work.running == [slow[1]])
        work.end()
        await until(lambda: run.source.in_flight == 0)
        await run.stop()
        assert set(work.started) == {*slow[:2], *fast[:2]}


async def test_a_revocation_that_is_listed_again_drops_nothing_more() -> None:
    work = HeldWork()
    first, second = record(0), record(1)
    async with running(work) as run:
        run.source.feed(first, second)
        await until(lambda: first in work.running)
        for _ in range(3):
            run.source.feed(revoke=[ORDERS])
        await turns()
        assert run.source.dropped_after == [(ORDERS, 0)]
        work.end()
        await run.stop()


async def test_a_revocation_abandons_a_record_that_was_started_before_it_was_read_again() -> None:
    work = HeldWork()
    again, other = record(0), record(0, partition=OTHERS)
    async with running(work, concurrency=1, retry=Retry(attempts=2, backoff=20)) as run:
        run.source.gaps_from = 0
        run.source.feed(again)
        await until(lambda: work.running)
        work.end(error=ValueError("boom"))
        await until(lambda: run.clock.timers)
        run.source.feed(revoke=[ORDERS])
        await until(lambda: run.source.state_of(again) is RecordState.ABANDONED)
        run.source.revoking.clear()
        run.source.feed(other, again)
        await until(lambda: work.running == [other])
        assert run.source.state_of(again) is RecordState.PENDING
        run.source.feed(revoke=[ORDERS])
        await until(lambda: run.source.state_of(again) is RecordState.ABANDONED)
        work.end()
        await run.stop()


async def test_after_a_withdrawn_revocation_dropped_records_are_handled() -> None:
    work = HeldWork()
    first, second = record(0), record(1)
    async with running(work) as run:
        run.source.feed(first, second)
        await until(lambda: first in work.running)
        run.source.feed(revoke=[ORDERS])
        await until(lambda: run.source.dropped_after)
        run.source.feed(record(1), record(2))
        await turns()
        assert work.offsets == [0]
        for offset in (0, 1, 2):
            await until(lambda: work.running)
            assert work.running[0].offset == offset
            work.end()
            await turns(3)
        await run.stop()
        assert work.offsets == [0, 1, 2]


async def test_a_lost_partition_s_handlers_are_cancelled_and_its_queue_is_dropped() -> None:
    work = HeldWork()
    a0, a1, other = record(0, b"a"), record(1, b"a"), record(0, b"a", partition=OTHERS)
    async with running(work) as run:
        run.source.feed(a0, a1, other)
        await until(lambda: len(work.running) == 2)
        run.source.feed(lost=[ORDERS])
        await until(lambda: work.cancelled == [a0])
        await turns()
        assert work.running == [other]
        assert work.started == [a0, other]
        work.end()
        await run.stop()
        assert run.source.completions == [other]


async def test_a_worker_runs_other_records_after_its_handler_was_cancelled() -> None:
    work = HeldWork()
    async with running(work, concurrency=1) as run:
        run.source.feed(record(0))
        await until(lambda: work.running)
        run.source.feed(record(0, tracker_id=2), lost=[ORDERS])
        await until(lambda: work.running and work.running[0].tracker_id == 2)
        work.end()
        await run.stop()
        assert [completion.tracker_id for completion in run.source.completions] == [2]


async def test_a_worker_undoes_the_cancellation_of_a_lost_record() -> None:
    cancelling: list[int] = []

    async def handle(each: Record) -> None:
        if each.tracker_id == 1:
            await asyncio.Event().wait()
        task = asyncio.current_task()
        assert task is not None
        cancelling.append(task.cancelling())
        raise asyncio.CancelledError

    async with running(handle, concurrency=1) as run:
        run.source.feed(record(0))
        await turns()
        run.source.feed(record(0, tracker_id=2), lost=[ORDERS])
        error = await run.failure()
        assert "without being cancelled" in str(error)
        assert cancelling == [0]


async def test_a_handler_that_fails_while_it_is_cancelled_is_only_logged() -> None:
    async def handle(each: Record) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("while cleaning up")

    async with running(handle) as run:
        run.source.feed(record(0))
        await turns()
        run.source.feed(lost=[ORDERS])
        await until(lambda: run.log.lines)
        assert run.log.events("warning") == [
            "handler failed when cancelled; record will be processed again"
        ]
        await run.stop()


async def test_a_handler_may_time_itself_out() -> None:
    outcomes: list[str] = []

    async def handle(each: Record) -> None:
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError:
            outcomes.append("timed out")

    async with running(handle) as run:
        run.source.feed(record(0), record(1))
        await until(lambda: len(run.source.completions) == 2)
        assert outcomes == ["timed out", "timed out"]
        await run.stop()


async def test_a_new_assignment_waits_for_the_cancelled_handler_of_its_key() -> None:
    may_end = asyncio.Event()
    started: list[int] = []

    async def slow_to_end(each: Record) -> None:
        started.append(each.tracker_id)
        if each.tracker_id == 1:
            try:
                await asyncio.Event().wait()
            finally:
                await may_end.wait()

    async with running(slow_to_end) as run:
        run.source.feed(record(0))
        await until(lambda: started == [1])
        run.source.feed(record(0, tracker_id=2), lost=[ORDERS])
        await turns()
        assert started == [1]
        may_end.set()
        await until(lambda: started == [1, 2])
        await run.stop()


async def test_a_handler_may_lose_its_own_partition_without_awaiting() -> None:
    handled: list[int] = []
    runs: list[RunningHandlers] = []

    async def loses(each: Record) -> None:
        handled.append(each.offset)
        if each.offset == 0:
            runs[0].source.deliver(runs[0].source.batch(lost=[ORDERS]))
            runs[0].runner.lose([ORDERS])

    async with running(loses, concurrency=1) as run:
        runs.append(run)
        run.source.feed(record(0))
        await until(lambda: handled == [0])
        run.source.feed(record(7, tracker_id=2))
        await until(lambda: handled == [0, 7])
        await run.stop()


async def test_closing_drops_unstarted_records_of_every_partition() -> None:
    work = HeldWork()
    a0, a1, b0 = record(0), record(1), record(5, partition=OTHERS)
    async with running(work) as run:
        run.source.feed(a0, a1, b0)
        await until(lambda: len(work.running) == 2)
        run.source.stop()
        await until(lambda: run.source.parked_now)
        assert run.source.dropped_after == [(ORDERS, 0)]
        assert not run.task.done()
        work.end()
        await run.stop()
        assert run.source.state_of(a1) is RecordState.DROPPED
        assert run.source.in_flight == 0


async def test_cancelling_the_runner_cancels_handlers_and_abandons_their_records() -> None:
    work = HeldWork()
    a0, a1, b0 = record(0), record(1), record(2, b"b")
    async with running(work) as run:
        run.source.feed(a0, a1, b0)
        await until(lambda: len(work.running) == 2)
        run.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run.task
        assert set(work.cancelled) == {a0, b0}
        assert {run.source.state_of(each) for each in (a0, a1, b0)} == {RecordState.ABANDONED}


async def test_records_are_completed_though_the_runner_is_cancelled_in_the_same_turn() -> None:
    work = HeldWork()
    first, behind, other = record(0), record(1), record(2, b"b")
    async with running(work) as run:
        run.source.feed(first, behind, other)
        await until(lambda: len(work.running) == 2)
        work.end(first)
        await until(lambda: work.running == [other, behind])
        assert run.source.state_of(first) is RecordState.PENDING
        run.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run.task
        assert run.source.state_of(first) is RecordState.DONE
        assert {run.source.state_of(each) for each in (behind, other)} == {RecordState.ABANDONED}
