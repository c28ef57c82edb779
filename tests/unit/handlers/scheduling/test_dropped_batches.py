"""Handlers of batches: what a revocation, a loss and closing drop of them."""

from __future__ import annotations

import asyncio

import pytest
from unit.handlers.scheduling.held_batches import BOOM, RETRY, HeldBatches, batching, some
from unit.handlers.scripted_source import ORDERS, OTHERS, RecordState, turns, until

from asyncrevoke.handlers.policy.batch import BatchError


async def test_a_revocation_drops_collected_records_and_waits_for_the_running_batch() -> None:
    work = HeldBatches()
    async with batching(work) as run:
        run.source.feed(*some(*range(8)))
        await until(lambda: work.running == [[0, 1, 2]])
        run.source.feed(revoke=[ORDERS])
        await until(lambda: run.source.dropped_after == [(ORDERS, 2)])
        work.end()
        await run.stop()
        assert work.calls == [[0, 1, 2]]
        assert run.source.in_flight == 0


async def test_a_revocation_drops_batches_that_have_not_started() -> None:
    work = HeldBatches()
    async with batching(work, concurrency=1, order_by=None) as run:
        run.source.feed(*some(*range(8)))
        await until(lambda: work.running == [[0, 1, 2]])
        run.source.feed(revoke=[ORDERS])
        await until(lambda: run.source.dropped_after == [(ORDERS, 2)])
        work.end()
        await run.stop()
        assert work.calls == [[0, 1, 2]]


async def test_a_batch_that_waits_for_its_retry_is_abandoned_at_a_revocation() -> None:
    work = HeldBatches()
    async with batching(work, retry=RETRY) as run:
        run.source.feed(*some(*range(5)))
        await until(lambda: work.running)
        work.end(BatchError({1: BOOM}))
        await until(lambda: run.clock.timers)
        run.source.feed(revoke=[ORDERS])
        await until(lambda: not run.source.in_flight)
        assert run.source.commit_point(some(0, 1, 2)) == 1
        assert run.source.state_of(some(4)[0]) is RecordState.DROPPED
        await run.stop()


async def test_a_revocation_divides_a_batch_that_begins_with_a_record_read_again() -> None:
    work = HeldBatches()
    async with batching(work, concurrency=2, order_by=None, retry=RETRY) as run:
        run.source.gaps_from = 0
        run.source.feed(*some(*range(6)))
        await until(lambda: len(work.running) == 2)
        work.fail_first(BatchError({1: BOOM}))
        await until(lambda: run.clock.timers)
        run.source.feed(revoke=[ORDERS])
        await until(lambda: run.source.state_of(some(1)[0]) is RecordState.ABANDONED)
        run.source.revoking.clear()
        run.source.feed(*some(0, 1, 2, partition=OTHERS), *some(1, 6, 7))
        await until(lambda: len(work.running) == 2)
        run.source.feed(revoke=[ORDERS])
        await until(lambda: run.source.dropped_after == [(ORDERS, 5)])
        assert run.source.state_of(some(1)[0]) is RecordState.ABANDONED
        work.end()
        await run.stop()
        assert [run.source.state_of(each) for each in some(3, 4, 5)] == [RecordState.DONE] * 3


async def test_after_a_withdrawn_revocation_batches_are_collected_again() -> None:
    work = HeldBatches()
    async with batching(work) as run:
        run.source.feed(*some(0, 1))
        await turns()
        run.source.feed(revoke=[ORDERS])
        await until(lambda: run.source.dropped_after == [(ORDERS, -1)])
        run.source.revoking.clear()
        run.source.feed(*some(0, 1, 2))
        await until(lambda: work.running == [[0, 1, 2]])
        work.end()
        await run.stop()


async def test_the_batch_of_a_lost_partition_is_cancelled_and_a_new_assignment_is_handled() -> None:
    work = HeldBatches()
    async with batching(work) as run:
        run.source.feed(*some(*range(5)))
        await until(lambda: work.running)
        run.source.feed(*some(0, 1, 2, tracker_id=2), lost=[ORDERS])
        await until(lambda: work.cancelled == [[0, 1, 2]])
        await until(lambda: work.running == [[0, 1, 2]])
        work.end()
        await run.stop()
        assert [completion.tracker_id for completion in run.source.completions] == [2, 2, 2]


async def test_closing_drops_collected_records() -> None:
    work = HeldBatches()
    async with batching(work) as run:
        run.source.feed(*some(0, 1))
        await turns()
        await run.stop()
        assert work.calls == []
        assert run.source.dropped_after == [(ORDERS, -1)]


async def test_cancelling_the_runner_abandons_all_of_a_batch() -> None:
    work = HeldBatches()
    async with batching(work) as run:
        run.source.feed(*some(*range(5)))
        await until(lambda: work.running)
        run.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run.task
        assert {run.source.state_of(each) for each in some(*range(5))} == {RecordState.ABANDONED}
