"""Failures that halt one partition, which stays ours, while the others flow."""

from __future__ import annotations

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

from asyncrevoke.handlers.policy.retry import Retry

BOOM = ValueError("boom")


async def test_a_failure_pauses_its_partition_and_no_other() -> None:
    work = HeldWork()
    async with running(work, on_error="pause") as run:
        fails, behind, runs, later = (
            record(i, key) for i, key in enumerate((b"a", b"a", b"b", b"b"))
        )
        other = record(0, partition=OTHERS)
        run.source.feed(fails, behind, runs, later)
        await until(lambda: len(work.running) == 2)
        work.end(fails, error=BOOM)
        await until(lambda: run.source.paused == [ORDERS])
        assert run.source.dropped_after == [(ORDERS, 2)], "what had not started is given back"
        assert run.source.state_of(fails) is run.source.state_of(behind) is RecordState.ABANDONED
        run.source.feed(other)
        await until(lambda: other in work.running)
        work.end()
        await run.stop()
        assert run.source.state_of(runs) is RecordState.DONE, "what had started ends"
        assert run.source.state_of(later) is RecordState.DROPPED
        assert run.source.state_of(other) is RecordState.DONE
        assert run.source.commit_point([fails, behind, runs]) == 0
        ((_, event, fields),) = (line for line in run.log.lines if line[0] == "error")
        assert event == ("handler failed; partition paused until resume()")
        assert (fields["partition"], fields["offset"]) == ("orders-0", 0)


async def test_unstarted_records_of_a_paused_partition_do_not_start() -> None:
    work = HeldWork()
    async with running(work, on_error="pause") as run:
        fails, runs, behind, high = (
            record(0, b"a"),
            record(1, b"b"),
            record(2, b"b"),
            record(3, b"c"),
        )
        run.source.feed(fails, runs, behind, high)
        await until(lambda: len(work.running) == 3)
        work.end(fails, error=BOOM)
        await until(lambda: run.source.paused)
        work.end()
        await until(lambda: not run.source.in_flight)
        assert run.source.state_of(behind) is RecordState.ABANDONED
        assert run.source.state_of(high) is RecordState.DONE
        await run.stop()


async def test_a_failure_that_pauses_a_partition_abandons_waiting_retries() -> None:
    work = HeldWork()
    retry = Retry(attempts=None, backoff=1, retry_on=OSError)
    async with running(work, on_error="pause", retry=retry) as run:
        waits, fails, runs = record(0, b"a"), record(1, b"b"), record(2, b"c")
        run.source.feed(waits, fails, runs)
        await until(lambda: len(work.running) == 3)
        work.end(waits, error=OSError("try again"))
        await until(lambda: run.clock.timers)
        work.end(fails, error=BOOM)
        await until(lambda: run.source.paused == [ORDERS])
        assert run.clock.timers == []
        work.end(runs, error=OSError("try again"))
        await until(lambda: not run.source.in_flight)
        assert run.clock.timers == [], "no attempt begins in a halted partition"
        assert run.source.state_of(runs) is RecordState.ABANDONED
        await run.stop()


async def test_several_failures_pause_a_partition_once() -> None:
    work = HeldWork()
    async with running(work, on_error="pause") as run:
        run.source.feed(record(0, b"a"), record(1, b"b"))
        await until(lambda: len(work.running) == 2)
        work.end(error=BOOM)
        await until(lambda: not run.source.in_flight)
        assert run.source.paused == [ORDERS]
        await run.stop()


async def test_a_resumed_partition_is_handled_again_from_the_failed_record() -> None:
    work = HeldWork()
    async with running(work, on_error="pause") as run:
        run.source.feed(record(0), record(1))
        await until(lambda: work.running)
        work.end(error=BOOM)
        await until(lambda: run.source.paused)
        run.source.feed(record(0, tracker_id=2), record(1, tracker_id=2))
        for offset in (0, 1):
            await until(lambda: work.running)
            assert work.running[0].offset == offset
            work.end()
            await turns(3)
        await run.stop()
        assert len(run.source.completions) == 2


async def test_a_partition_paused_by_a_failure_is_handled_when_it_is_assigned_again() -> None:
    work = HeldWork()
    async with running(work, on_error="pause", retry=Retry(attempts=2, backoff=1)) as run:
        run.source.feed(record(0))
        await until(lambda: work.running)
        work.end(error=BOOM)
        await until(lambda: run.clock.timers)
        run.clock.advance(2)
        await until(lambda: work.running)
        work.end(error=BOOM)
        await until(lambda: run.source.paused)
        run.source.feed(record(0, tracker_id=2), lost=[ORDERS])
        await until(lambda: work.running)
        work.end(error=BOOM)
        await until(lambda: run.clock.timers)
        run.clock.advance(2)
        await until(lambda: work.running)
        work.end()
        await run.stop()


async def test_a_revocation_of_a_paused_partition_waits_for_running_handlers_only() -> None:
    work = HeldWork()
    async with running(work, on_error="pause") as run:
        below, fails = record(0, b"a"), record(1, b"b")
        run.source.feed(below, fails, record(2, b"b"))
        await until(lambda: len(work.running) == 2)
        work.end(fails, error=BOOM)
        await until(lambda: run.source.paused)
        run.source.feed(revoke=[ORDERS])
        await turns()
        work.end()
        await until(lambda: not run.source.in_flight)
        assert run.source.commit_point([below, fails]) == 1
        await run.stop()
