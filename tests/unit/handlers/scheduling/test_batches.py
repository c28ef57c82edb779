"""Handlers of batches: when a batch is full, what its failure means, what a drain leaves of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.handlers.scripted_runner import Running, running
from unit.handlers.scripted_source import ORDERS, OTHERS, Fate, record, turns, until

from asyncrevoke.errors import ConfigError, DecodeError
from asyncrevoke.handlers.policy.batch import BatchError
from asyncrevoke.handlers.policy.context import HandlerContext  # noqa: TC001 - read at run time
from asyncrevoke.handlers.policy.retry import Retry
from asyncrevoke.model import Record  # noqa: TC001

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from asyncrevoke.config import OrderBy
    from asyncrevoke.handlers.dead_letters.dead_letter import DeadLetter
    from asyncrevoke.model import TopicPartition

BOOM = ValueError("boom")
RETRY = Retry(attempts=3, backoff=1, jitter=0)


class HeldBatches:
    """Calls with batches that end when the test says so."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.records: list[list[Record]] = []
        self.cancelled: list[list[int]] = []
        self._holds: dict[int, tuple[list[Record], asyncio.Future[None]]] = {}

    @property
    def running(self) -> list[list[int]]:
        return [[each.offset for each in records] for records, _ in self._holds.values()]

    @property
    def partitions(self) -> list[TopicPartition]:
        return [records[0].topic_partition for records, _ in self._holds.values()]

    async def __call__(self, records: list[Record]) -> None:
        offsets = [each.offset for each in records]
        self.calls.append(offsets)
        self.records.append(records)
        hold: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._holds[id(hold)] = records, hold
        try:
            await hold
        except asyncio.CancelledError:
            self.cancelled.append(offsets)
            raise
        finally:
            del self._holds[id(hold)]

    def end(
        self, error: BaseException | None = None, partition: TopicPartition | None = None
    ) -> None:
        for records, hold in list(self._holds.values()):
            if partition in (None, records[0].topic_partition) and not hold.done():
                if error is None:
                    hold.set_result(None)
                else:
                    hold.set_exception(error)


class Letters:
    """Accepts every dead letter."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.errors: list[bytes | None] = []

    async def send(self, topic: str, letter: DeadLetter) -> None:
        headers = dict(letter.headers)
        self.offsets.append(int(headers["asyncrevoke-origin-offset"] or b""))
        self.errors.append(headers["asyncrevoke-error-message"])


def batching(work: HeldBatches, **options: Any) -> AbstractAsyncContextManager[Running]:
    async def handle(values: list[bytes], records: list[Record]) -> None:
        assert values == [each.value for each in records]
        await work(records)

    return running(handle, batch=True, **{"max_records": 3, "max_wait": 1.0, **options})


def some(*offsets: int, **more: Any) -> list[Record]:
    return [record(offset, b"%d" % offset, **more) for offset in offsets]


# -- forming --------------------------------------------------------------------------------------


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
        assert [each.offset for each in run.source.completions] == [0, 1, 2, 3]


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


# -- failures -------------------------------------------------------------------------------------


async def test_after_a_batch_error_failed_values_are_retried_and_the_others_are_done() -> None:
    work = HeldBatches()
    async with batching(work, retry=RETRY, max_records=4) as run:
        run.source.feed(*some(0, 1, 2, 3, 4))
        await until(lambda: work.running)
        work.end(BatchError({2: BOOM, 0: BOOM}))
        await until(lambda: run.clock.timers)
        assert [each.offset for each in run.source.completions] == [1, 3]
        await turns()
        assert work.running == [], "the partition waits"
        run.clock.advance(1)
        await until(lambda: work.running == [[0, 2]])
        work.end(BatchError({1: BOOM}))
        await until(lambda: run.clock.timers)
        run.clock.advance(2)
        await until(lambda: work.running == [[2]])
        work.end()
        await until(lambda: work.running == [[4]])
        work.end()
        await run.stop()
        assert run.source.in_flight == 0


async def test_any_other_exception_fails_all_of_the_batch() -> None:
    work = HeldBatches()
    async with batching(work, retry=RETRY) as run:
        run.source.feed(*some(0, 1, 2))
        await until(lambda: work.running)
        work.end(BOOM)
        await until(lambda: run.clock.timers)
        assert run.source.completions == []
        run.clock.advance(1)
        await until(lambda: work.running == [[0, 1, 2]])
        work.end()
        await run.stop()


async def test_a_batch_error_with_a_wrong_index_fails_all_of_the_batch() -> None:
    work = HeldBatches()
    async with batching(work) as run:
        run.source.feed(*some(0, 1, 2))
        await until(lambda: work.running)
        wrong = BatchError({7: BOOM})
        work.end(wrong)
        assert await run.failure() is wrong
        assert run.source.completions == []


def test_a_batch_error_names_at_least_one_value() -> None:
    with pytest.raises(ConfigError, match="names no failed value"):
        BatchError({})


async def test_after_the_last_attempt_failed_values_go_to_the_dead_letter_topic() -> None:
    work, letters = HeldBatches(), Letters()
    retry = Retry(attempts=2, backoff=1, retry_on=OSError)
    async with batching(work, retry=retry, dead_letter="dlq", dead_letters=letters) as run:
        run.source.feed(*some(0, 1, 2))
        await until(lambda: work.running)
        work.end(BatchError({0: OSError("later"), 1: BOOM}))
        await until(lambda: run.clock.timers)
        assert run.source.commit_point(some(0, 1, 2)) == 0
        run.clock.advance(1)
        await until(lambda: work.running == [[0]])
        assert letters.offsets == [1], "what cannot be tried again goes at once with the next"
        work.end(OSError("still"))
        await until(lambda: not run.source.in_flight)
        assert letters.offsets == [1, 0]
        assert letters.errors == [b"boom", b"still"]
        assert run.source.commit_point(some(0, 1, 2)) == 3
        await run.stop()


async def test_skipped_values_are_done_and_the_partition_goes_on() -> None:
    work = HeldBatches()
    async with batching(work, on_error="skip") as run:
        run.source.feed(*some(0, 1, 2, 3, 4, 5))
        await until(lambda: work.running)
        work.end(BatchError({1: BOOM}))
        await until(lambda: work.running == [[3, 4, 5]])
        assert sorted(each.offset for each in run.source.completions) == [0, 1, 2]
        work.end()
        await run.stop()


async def test_after_the_last_attempt_failed_values_are_skipped() -> None:
    work = HeldBatches()
    retry = Retry(attempts=2, backoff=1, jitter=0)
    async with batching(work, retry=retry, on_error="skip") as run:
        run.source.feed(*some(0, 1, 2))
        await until(lambda: work.running)
        work.end(BOOM)
        await until(lambda: run.clock.timers)
        run.clock.advance(1)
        await until(lambda: work.running)
        work.end(BatchError({2: BOOM}))
        await until(lambda: len(run.source.completions) == 3)
        await run.stop()


async def test_a_failed_batch_may_pause_its_partition() -> None:
    work = HeldBatches()
    async with batching(work, on_error="pause") as run:
        run.source.feed(*some(0, 1, 2, 3, 4))
        await until(lambda: work.running)
        work.end(BatchError({1: BOOM}))
        await until(lambda: run.source.paused == [ORDERS])
        assert run.source.fate(some(1)[0]) is Fate.ABANDONED
        assert run.source.dropped_after == [(ORDERS, 2)]
        assert run.source.in_flight == 0
        await run.stop()


@pytest.mark.parametrize("way", ["dead letter", "skip"])
async def test_a_value_that_does_not_decode_leaves_the_batch_alone(way: str) -> None:
    seen: list[list[int]] = []

    async def handle(numbers: list[int]) -> None:
        seen.append(numbers)

    letters = Letters()
    options: dict[str, Any] = {"on_error": "skip"}
    if way == "dead letter":
        options = {"dead_letter": "dlq", "dead_letters": letters}
    async with running(handle, batch=True, max_records=3, retry=RETRY, **options) as run:
        run.source.feed(*(record(i, value=value) for i, value in enumerate([b"1", b"x", b"3"])))
        await until(lambda: len(run.source.completions) == 3)
        assert seen == [[1, 3]]
        assert letters.offsets == ([1] if way == "dead letter" else [])
        await run.stop()


@pytest.mark.parametrize("on_error", ["stop", "pause"])
async def test_values_before_one_that_does_not_decode_are_handled(
    on_error: Literal["stop", "pause"],
) -> None:
    seen: list[list[int]] = []

    async def handle(numbers: list[int]) -> None:
        seen.append(numbers)

    async with running(handle, batch=True, max_records=4, on_error=on_error) as run:
        values = [b"1", b"2", b"x", b"4"]
        records = [record(i, value=value) for i, value in enumerate(values)]
        run.source.feed(*records)
        if on_error == "stop":
            assert isinstance(await run.failure(), DecodeError)
        else:
            await until(lambda: run.source.paused)
            await run.stop()
        assert seen == [[1, 2]]
        assert run.source.commit_point(records) == 2
        assert run.source.in_flight == 0


async def test_a_batch_of_undecodable_values_calls_no_handler() -> None:
    async def handle(numbers: list[int]) -> None:
        raise AssertionError

    async with running(handle, batch=True, max_records=2, on_error="skip") as run:
        run.source.feed(record(0, value=b"x"), record(1, value=None))
        await until(lambda: len(run.source.completions) == 2)
        await run.stop()


# -- giving up ------------------------------------------------------------------------------------


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
        assert run.source.fate(some(4)[0]) is Fate.DROPPED
        await run.stop()


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


async def test_a_lost_partition_s_batch_is_cancelled_and_a_new_assignment_goes_on() -> None:
    work = HeldBatches()
    async with batching(work) as run:
        run.source.feed(*some(*range(5)))
        await until(lambda: work.running)
        run.source.feed(*some(0, 1, 2, tracker_id=2), lost=[ORDERS])
        await until(lambda: work.cancelled == [[0, 1, 2]])
        await until(lambda: work.running == [[0, 1, 2]])
        work.end()
        await run.stop()
        assert [each.tracker_id for each in run.source.completions] == [2, 2, 2]


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
        assert {run.source.fate(each) for each in some(*range(5))} == {Fate.ABANDONED}


# -- any schedule ---------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
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
                    and source.fate(each) is Fate.PENDING
                ]
                while any(each == partition for each in work.partitions):
                    work.end(partition=partition)
                    await turns(40)
                assert [each for each in left if source.fate(each) is Fate.PENDING] == []
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
        assert run.source.fate(each) not in (Fate.PENDING, Fate.HELD)
