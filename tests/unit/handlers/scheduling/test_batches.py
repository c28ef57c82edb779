"""Handlers of batches: when a batch is full, what its failure means, what a drain leaves of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.handlers.scheduling.held_batches import BOOM, HeldBatches, batching, some
from unit.handlers.scripted_runner import running
from unit.handlers.scripted_source import ORDERS, OTHERS, RecordState, record, turns, until

from asyncrevoke.client.model import Record  # noqa: TC001
from asyncrevoke.handlers.policy.batch import BatchError
from asyncrevoke.handlers.policy.context import HandlerContext  # noqa: TC001 - read at run time
from asyncrevoke.handlers.policy.retry import Retry

if TYPE_CHECKING:
    from asyncrevoke.client.config import OrderBy


async def test_a_batch_is_handled_when_it_is_full_or_its_first_record_has_waited() -> None:
    work = HeldBatches()
    async with batching(work) as run:
        run.source.feed(*some(0, 1))
        await turns()
        run.clock.advance(0.6)
        run.source.feed(*some(2, 3))
        await until(lambda: work.running == [[0, 1, 2]])
        work.end()
        await turns()
        run.clock.advance(0.9)
        await turns()
        assert work.running == []
        run.clock.advance(0.1)
        await until(lambda: work.running == [[3]])
        work.end()
        await run.stop()
        assert [completion.offset for completion in run.source.completions] == [0, 1, 2, 3]


async def test_the_wait_counts_from_the_first_record_and_not_from_the_last() -> None:
    work = HeldBatches()
    async with batching(work) as run:
        run.source.feed(*some(0))
        await turns()
        run.clock.advance(0.6)
        run.source.feed(*some(1))
        await turns()
        run.clock.advance(0.4)
        await until(lambda: work.running == [[0, 1]])
        work.end()
        await run.stop()


@pytest.mark.parametrize("order_by", ["key", "partition"])
async def test_one_batch_of_a_partition_runs_at_a_time(order_by: OrderBy) -> None:
    work = HeldBatches()
    async with batching(work, order_by=order_by) as run:
        run.source.feed(*some(*range(7)), *some(0, 1, 2, partition=OTHERS))
        await until(lambda: len(work.running) == 2)
        await turns()
        assert sorted(work.running) == [[0, 1, 2], [0, 1, 2]]
        work.end(partition=ORDERS)
        await until(lambda: [3, 4, 5] in work.running)
        run.clock.advance(5)  # the last one has waited for long: it goes as soon as it may
        work.end(partition=ORDERS)
        await until(lambda: [6] in work.running)
        work.end()
        await run.stop()


async def test_without_order_several_batches_of_a_partition_run() -> None:
    work = HeldBatches()
    async with batching(work, order_by=None) as run:
        run.source.feed(*some(*range(6)))
        await until(lambda: work.running == [[0, 1, 2], [3, 4, 5]])
        work.end()
        await run.stop()


async def test_a_batch_occupies_one_worker() -> None:
    work = HeldBatches()
    async with batching(work, concurrency=2, order_by=None) as run:
        run.source.feed(*some(*range(9)))
        await until(lambda: len(work.running) == 2)
        await turns()
        assert len(work.running) == 2
        work.end()
        await until(lambda: len(work.running) == 1)
        work.end()
        await run.stop()


async def test_records_from_before_and_after_a_seek_share_no_batch() -> None:
    work = HeldBatches()
    async with batching(work) as run:
        run.source.feed(*some(0))
        await turns()
        run.source.feed(*some(5, tracker_id=2))
        await until(lambda: work.running == [[0]])
        work.end()
        await turns()
        run.clock.advance(1)
        await until(lambda: work.running == [[5]])
        work.end()
        await run.stop()


async def test_values_and_context_reach_the_handler() -> None:
    seen: list[object] = []

    async def handle(numbers: list[int], context: HandlerContext) -> None:
        seen.append((numbers, context.attempt, context.record.offset, context.state))

    async with running(handle, batch=True, max_wait=0, state="db") as run:
        run.source.feed(record(4, value=b"7"), record(5, value=b"8"))
        await until(lambda: seen)
        await run.stop()
        assert seen == [([7, 8], 1, 4, "db")]


@settings(max_examples=60)
@given(st.data())
def test_any_schedule_handles_each_partition_in_order_one_batch_at_a_time(
    data: st.DataObject,
) -> None:
    asyncio.run(_any_schedule(data))


async def _any_schedule(data: st.DataObject) -> None:
    partitions = [ORDERS, OTHERS]
    work = HeldBatches()
    tracker = dict.fromkeys(partitions, 1)
    next_offset = dict.fromkeys(partitions, 0)
    delivered: list[Record] = []
    most = data.draw(st.integers(1, 4))
    async with batching(
        work,
        concurrency=data.draw(st.integers(1, 3)),
        max_records=most,
        retry=Retry(attempts=data.draw(st.sampled_from([1, 3])), backoff=1, jitter=0),
        on_error="skip",
    ) as run:
        source = run.source
        for _ in range(data.draw(st.integers(1, 30))):
            partition = data.draw(st.sampled_from(partitions))
            step = data.draw(
                st.sampled_from(["put", "put", "end", "some", "fail", "wait", "revoke", "lose"])
            )
            if step == "put":
                first, count = next_offset[partition], data.draw(st.integers(1, 9))
                records = some(
                    *range(first, first + count), partition=partition, tracker_id=tracker[partition]
                )
                next_offset[partition] += count
                delivered.extend(records)
                source.feed(*records)
            elif step == "end":
                work.end(partition=partition)
            elif step == "some":
                work.end(BatchError({0: BOOM}), partition=partition)
            elif step == "fail":
                work.end(BOOM, partition=partition)
            elif step == "wait":
                run.clock.advance(data.draw(st.sampled_from([0.5, 1.0, 4.0])))
            elif step == "revoke":
                await turns(40)
                source.feed(revoke=[partition])
                await turns(40)
                work.end(partition=partition)
                await turns(40)
                left = [
                    each
                    for each in delivered
                    if each.topic_partition == partition
                    and each.tracker_id == tracker[partition]
                    and source.state_of(each) is RecordState.PENDING
                ]
                while any(each == partition for each in work.partitions):
                    work.end(partition=partition)
                    await turns(40)
                assert [
                    remaining
                    for remaining in left
                    if source.state_of(remaining) is RecordState.PENDING
                ] == []
                source.revoking.discard(partition)
                tracker[partition] += 1
            elif step == "lose":
                source.feed(lost=[partition])
                tracker[partition] += 1
            await turns(data.draw(st.sampled_from([1, 40])))
            assert len(set(work.partitions)) == len(work.partitions), "two of a partition at once"
        await turns(40)
        run.source.stop()
        while not run.task.done():
            work.end()
            await turns(3)
        await run.task
    for records in work.records:
        assert len({(each.topic_partition, each.tracker_id) for each in records}) == 1
        offsets = [each.offset for each in records]
        assert offsets == sorted(offsets)
        assert len(offsets) <= most
    for partition in partitions:
        calls = [each for each in work.records if each[0].topic_partition == partition]
        lasts: dict[int, int] = {}
        for records in calls:
            tracker_id = records[0].tracker_id
            assert records[0].offset > lasts.get(tracker_id, -1) or records[-1].offset <= lasts.get(
                tracker_id, -1
            ), "either new records, or again those of the last batch"
            lasts[tracker_id] = max(lasts.get(tracker_id, -1), records[-1].offset)
    for each in delivered:
        assert run.source.state_of(each) not in (RecordState.PENDING, RecordState.HELD)
