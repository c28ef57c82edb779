"""Handlers that are called again: what waits meanwhile, for how long, and what ends it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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

from asyncrevoke.client.errors import ConfigError, HandlerCancelledError
from asyncrevoke.client.model import Record, TopicPartition  # noqa: TC001
from asyncrevoke.handlers.policy.context import HandlerContext  # noqa: TC001 - read at run time
from asyncrevoke.handlers.policy.retry import Retry

if TYPE_CHECKING:
    from asyncrevoke.client.config import OrderBy

BOOM = ValueError("boom")
FOREVER = Retry(attempts=None, backoff=1, jitter=0)


# -- the policy -----------------------------------------------------------------------------------


def test_waits_double_up_to_max_backoff() -> None:
    retry = Retry(attempts=None, backoff=0.5, max_backoff=3, jitter=0)
    assert [retry.delay(calls, lambda: 0.9) for calls in range(1, 6)] == [0.5, 1, 2, 3, 3]
    assert retry.delay(10**6, lambda: 0.9) == 3


def test_waits_vary_by_the_jitter_either_way() -> None:
    retry = Retry(backoff=10, jitter=0.1)
    waits = [retry.delay(1, lambda: fraction) for fraction in (0.0, 0.5, 1.0)]  # noqa: B023
    assert waits == pytest.approx([9, 10, 11])


def test_attempts_count_the_first_call() -> None:
    assert [Retry(attempts=3).allows(BOOM, calls) for calls in (1, 2, 3)] == [True, True, False]
    assert not Retry(attempts=1).allows(BOOM, 1)
    assert Retry(attempts=None).allows(BOOM, 10**9)


def test_only_exceptions_that_retry_on_names_are_retried() -> None:
    retry = Retry(retry_on=(OSError, ValueError))
    assert retry.allows(ConnectionError(), 1)
    assert not retry.allows(KeyError(), 1)
    assert not Retry().allows(asyncio.CancelledError(), 1)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"attempts": 0}, "at least 1, or None"),
        ({"attempts": True}, "whole number"),
        ({"attempts": 2.0}, "whole number"),
        ({"backoff": -1}, "in seconds"),
        ({"backoff": "1"}, "in seconds"),
        ({"max_backoff": float("nan")}, "in seconds"),
        ({"backoff": 60}, "use max_backoff=60"),
        ({"jitter": 1.5}, "from 0 to 1"),
        ({"retry_on": BaseException}, "types of Exception"),
        ({"retry_on": (OSError, "timeout")}, "types of Exception"),
        ({"retry_on": ()}, "leave out retry="),
    ],
)
def test_a_policy_that_cannot_work_is_rejected_when_it_is_made(
    options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        Retry(**options)


# -- waiting --------------------------------------------------------------------------------------


async def test_a_failed_record_is_called_again_after_its_wait_and_is_then_done() -> None:
    work = HeldWork()
    async with running(work, retry=Retry(attempts=3, backoff=0.5, jitter=0)) as run:
        only = record(0)
        run.source.feed(only)
        for wait in (0.5, 1.0):
            await until(lambda: work.running)
            work.end(error=BOOM)
            await until(lambda: run.clock.timers)
            assert run.clock.timers == [run.clock.now + wait]
            run.clock.advance(wait - 0.01)
            await turns()
            assert not work.running
            run.clock.advance(0.01)
        await until(lambda: work.running)
        work.end()
        await until(lambda: run.source.state_of(only) is RecordState.DONE)
        assert work.offsets == [0, 0, 0]
        assert [fields["attempt"] for _, _, fields in run.log.lines] == [1, 2]
        await run.stop()


async def test_after_the_last_attempt_on_error_applies() -> None:
    work = HeldWork()
    retry = Retry(attempts=2, backoff=1, jitter=0)
    async with running(work, retry=retry, on_error="skip") as run:
        first, second = record(0), record(1)
        run.source.feed(first, second)
        await until(lambda: work.running)
        work.end(error=BOOM)
        await until(lambda: run.clock.timers)
        run.clock.advance(1)
        await until(lambda: work.running)
        work.end(error=BOOM)
        await until(lambda: work.running == [second])
        assert run.source.state_of(first) is RecordState.DONE
        work.end()
        await run.stop()


async def test_after_the_last_attempt_the_consumer_stops_by_default() -> None:
    work = HeldWork()
    async with running(work, retry=Retry(attempts=2, backoff=1)) as run:
        only = record(0)
        run.source.feed(only)
        await until(lambda: work.running)
        work.end(error=BOOM)
        await until(lambda: run.clock.timers)
        run.clock.advance(1)
        await until(lambda: work.running)
        last = ValueError("last")
        work.end(error=last)
        assert await run.failure() is last
        assert run.source.state_of(only) is RecordState.ABANDONED


@pytest.mark.parametrize(
    ("order_by", "flowing"),
    [("key", [b"b"]), ("partition", []), (None, [b"b", b"a"])],
)
async def test_while_a_record_waits_its_lane_waits(
    order_by: OrderBy | None, flowing: list[bytes]
) -> None:
    work = HeldWork()
    async with running(work, retry=FOREVER, order_by=order_by) as run:
        failing, other = record(0, b"a"), record(0, b"a", partition=OTHERS)
        run.source.feed(failing)
        await until(lambda: work.running)
        work.end(error=BOOM)
        await until(lambda: run.clock.timers)
        run.source.feed(record(1, b"b"), record(2, b"a"), other)
        await turns()
        assert [each.key for each in work.running if each.topic_partition == ORDERS] == flowing
        assert other in work.running, "other partitions flow"
        work.end()
        await turns()
        run.clock.advance(1)
        while run.source.in_flight:
            work.end()
            await turns(2)
        await run.stop()


async def test_a_record_that_waits_for_its_retry_occupies_no_worker() -> None:
    work = HeldWork()
    async with running(work, retry=FOREVER, concurrency=1) as run:
        run.source.feed(record(0, b"a"), record(1, b"b"))
        await until(lambda: work.running)
        work.end(error=BOOM)
        await until(lambda: work.offsets == [0, 1])
        work.end()
        await turns()
        run.clock.advance(1)
        await until(lambda: work.offsets == [0, 1, 0])
        work.end()
        await run.stop()


async def test_a_due_retry_runs_before_ready_records() -> None:
    work = HeldWork()
    async with running(work, retry=FOREVER, concurrency=1) as run:
        run.source.feed(*(record(i, b"%d" % i) for i in range(4)))
        await until(lambda: work.running)
        work.end(error=BOOM)
        await until(lambda: work.offsets == [0, 1])
        run.clock.advance(1)
        work.end()
        await until(lambda: work.offsets == [0, 1, 0])
        while run.source.in_flight:
            work.end()
            await turns(2)
        await run.stop()


async def test_a_cancelled_error_that_the_library_did_not_cause_is_retried() -> None:
    calls: list[int] = []

    async def handle(value: bytes, record: Record) -> None:
        calls.append(record.offset)
        if len(calls) == 1:
            raise asyncio.CancelledError

    async with running(handle, retry=FOREVER) as run:
        run.source.feed(record(0))
        await until(lambda: run.clock.timers)
        assert isinstance(run.log.lines[0][2]["exc_info"], HandlerCancelledError)
        run.clock.advance(1)
        await until(lambda: run.source.completions)
        await run.stop()


async def test_a_value_that_does_not_decode_is_not_retried() -> None:
    async def handle(value: int) -> None: ...

    async with running(handle, retry=FOREVER, on_error="skip") as run:
        run.source.feed(record(0, value=b"no number"))
        await until(lambda: run.source.completions)
        assert run.log.events("warning") == ["handler failed; record skipped"]
        await run.stop()


# -- giving up ------------------------------------------------------------------------------------


async def test_a_record_that_waits_for_its_retry_is_abandoned_at_a_revocation() -> None:
    work = HeldWork()
    async with running(work, retry=FOREVER) as run:
        waits, behind, runs, late = record(0, b"a"), record(1, b"a"), record(2, b"b"), record(3)
        run.source.feed(waits, behind, runs)
        await until(lambda: len(work.running) == 2)
        work.end(waits, error=BOOM)
        await until(lambda: run.clock.timers)
        run.source.feed(late)
        await until(lambda: late in work.running)
        run.source.feed(revoke=[ORDERS])
        await until(lambda: run.source.state_of(waits) is RecordState.ABANDONED)
        assert run.source.state_of(behind) is RecordState.ABANDONED, (
            "the key's order would be broken by it"
        )
        assert run.clock.timers == []
        work.end()
        await until(lambda: not run.source.in_flight)
        assert run.source.state_of(runs) is run.source.state_of(late) is RecordState.DONE
        assert run.source.commit_point([waits, behind, runs, late]) == 0
        await run.stop()
        assert work.offsets == [0, 2, 3]


async def test_a_due_retry_without_a_worker_is_abandoned_at_a_revocation() -> None:
    work = HeldWork()
    async with running(work, retry=FOREVER, concurrency=1) as run:
        waits, runs = record(0, b"a"), record(1, b"b")
        run.source.feed(waits, runs)
        await until(lambda: work.running == [waits])
        work.end(error=BOOM)
        await until(lambda: work.running == [runs])
        run.clock.advance(1)
        run.source.feed(revoke=[ORDERS])
        await until(lambda: run.source.state_of(waits) is RecordState.ABANDONED)
        work.end()
        await run.stop()
        assert work.offsets == [0, 1]


async def test_a_record_that_fails_during_a_revocation_is_not_retried() -> None:
    work = HeldWork()
    async with running(work, retry=FOREVER) as run:
        fails, behind, high = record(0, b"a"), record(1, b"a"), record(2, b"b")
        run.source.feed(fails, behind, high)
        await until(lambda: len(work.running) == 2)
        run.source.feed(revoke=[ORDERS])
        await turns()
        work.end(fails, error=BOOM)
        work.end(high)
        await until(lambda: not run.source.in_flight)
        assert run.source.state_of(fails) is run.source.state_of(behind) is RecordState.ABANDONED
        assert run.source.state_of(high) is RecordState.DONE
        assert run.clock.timers == []
        await run.stop()


async def test_closing_waits_for_no_retry_and_starts_none() -> None:
    work = HeldWork()
    async with running(work, retry=FOREVER) as run:
        waits, fails, runs = record(0, b"a"), record(1, b"b"), record(2, b"c")
        run.source.feed(waits, fails, runs)
        await until(lambda: len(work.running) == 3)
        work.end(waits, error=BOOM)
        await until(lambda: run.clock.timers)
        run.source.stop()
        await until(lambda: run.source.parked_now)
        work.end(fails, error=BOOM)
        await until(lambda: run.source.state_of(fails) is RecordState.ABANDONED)
        assert run.clock.timers == []
        work.end(runs)
        await run.stop()
        assert run.source.state_of(waits) is RecordState.ABANDONED
        assert run.source.state_of(runs) is RecordState.DONE


async def test_a_lost_partition_s_waiting_records_are_forgotten() -> None:
    work = HeldWork()
    async with running(work, retry=FOREVER) as run:
        waits, behind = record(0), record(1)
        run.source.feed(waits, behind)
        await until(lambda: work.running)
        work.end(error=BOOM)
        await until(lambda: run.clock.timers)
        run.source.feed(record(0, tracker_id=2), lost=[ORDERS])
        await until(lambda: work.running and work.running[0].tracker_id == 2)
        assert run.clock.timers == []
        work.end()
        await run.stop()
        assert [each.tracker_id for each in work.started] == [1, 2]


async def test_a_cancelled_runner_abandons_records_that_wait_for_a_retry() -> None:
    work = HeldWork()
    async with running(work, retry=FOREVER) as run:
        waits, behind = record(0), record(1)
        run.source.feed(waits, behind)
        await until(lambda: work.running)
        work.end(error=BOOM)
        await until(lambda: run.clock.timers)
        run.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run.task
        assert run.source.state_of(waits) is run.source.state_of(behind) is RecordState.ABANDONED


# -- the context ----------------------------------------------------------------------------------


async def test_the_context_has_the_attempt_the_key_and_the_state() -> None:
    seen: list[object] = []

    async def handle(value: bytes, context: HandlerContext[str], record: Record) -> None:
        seen.append((context.attempt, context.idempotency_key, context.state, value))
        assert context.record is record
        context.log.info("working", more=1)
        if context.attempt < 3:
            raise BOOM

    async with running(handle, retry=FOREVER, state="database") as run:
        run.source.feed(record(7))
        for _ in range(2):
            await until(lambda: run.clock.timers)
            run.clock.advance(100)
        await until(lambda: run.source.completions)
        await run.stop()
        key = ("orders", 0, 7)
        assert seen == [(attempt, key, "database", b"v") for attempt in (1, 2, 3)]
        lines = [fields for level, _, fields in run.log.lines if level == "info"]
        assert lines[1] == {"partition": "orders-0", "offset": 7, "attempt": 2, "more": 1}


async def test_a_context_may_go_by_name() -> None:
    seen: list[int] = []

    async def handle(value: bytes, limit: int = 3, *, context: HandlerContext) -> None:
        seen.append(context.attempt)

    async with running(handle) as run:
        run.source.feed(record(7))
        await until(lambda: seen == [1])
        await run.stop()


async def test_a_context_as_the_first_parameter_is_a_config_error() -> None:
    async def handle(context: HandlerContext) -> None: ...

    with pytest.raises(ConfigError, match="put one before it"):
        async with running(handle):
            raise AssertionError


# -- any schedule ---------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.data())
def test_with_retries_a_lane_is_handled_in_order_and_one_at_a_time(data: st.DataObject) -> None:
    asyncio.run(_any_schedule(data))


async def _any_schedule(data: st.DataObject) -> None:
    order_by: Literal["key", "partition"] = data.draw(st.sampled_from(["key", "partition"]))
    partitions = [ORDERS, OTHERS]
    work = HeldWork()
    tracker = dict.fromkeys(partitions, 1)
    next_offset = dict.fromkeys(partitions, 0)
    delivered: list[Record] = []

    def lane(each: Record) -> object:
        return each.topic_partition, each.key if order_by == "key" else None

    retry = Retry(attempts=data.draw(st.sampled_from([2, 3, None])), backoff=1, jitter=0)
    async with running(
        work,
        concurrency=data.draw(st.integers(1, 4)),
        order_by=order_by,
        retry=retry,
        on_error="skip",
    ) as run:
        source = run.source
        for _ in range(data.draw(st.integers(1, 30))):
            partition = data.draw(st.sampled_from(partitions))
            step = data.draw(
                st.sampled_from(["put", "put", "end", "fail", "fail", "wait", "revoke", "lose"])
            )
            if step == "put":
                keys = data.draw(st.lists(st.sampled_from([b"a", b"b", None]), max_size=6))
                first = next_offset[partition]
                records = [
                    record(first + i, key, partition=partition, tracker_id=tracker[partition])
                    for i, key in enumerate(keys)
                ]
                next_offset[partition] += len(keys)
                delivered.extend(records)
                if records:
                    source.feed(*records)
            elif step == "end" and work.running:
                work.end(data.draw(st.sampled_from(work.running)))
            elif step == "fail" and work.running:
                work.end(data.draw(st.sampled_from(work.running)), error=BOOM)
            elif step == "wait":
                run.clock.advance(data.draw(st.sampled_from([0.5, 1.0, 4.0])))
            elif step == "revoke":
                await turns(40)
                source.feed(revoke=[partition])
                await turns(40)

                def pending(of: TopicPartition = partition) -> list[Record]:
                    return [
                        each
                        for each in delivered
                        if each.topic_partition == of
                        and each.tracker_id == tracker[of]
                        and source.state_of(each) is RecordState.PENDING
                    ]

                for _ in range(len(delivered)):
                    if not pending():
                        break
                    # One that is to run to its end may have to wait for another's worker.
                    mine = [each for each in work.running if each.topic_partition == partition]
                    work.end(*(mine or work.running))
                    await turns(40)
                assert pending() == [], "nothing holds the release"
                source.revoking.discard(partition)
                tracker[partition] += 1
            elif step == "lose":
                source.feed(lost=[partition])
                tracker[partition] += 1
            await turns(data.draw(st.sampled_from([1, 40])))
            busy = [lane(each) for each in work.running]
            assert len(set(busy)) == len(busy), "two of a lane at once"
        await turns(40)
        run.source.stop()
        while not run.task.done():
            work.end()
            await turns(3)
        await run.task
    begun: dict[object, list[tuple[int, int]]] = defaultdict(list)
    for each in work.started:
        begun[lane(each)].append((each.tracker_id, each.offset))
    assert all(order == sorted(order) for order in begun.values()), "a lane out of order"
    for each in delivered:
        state = run.source.state_of(each)
        assert state not in (RecordState.PENDING, RecordState.HELD), state
        assert state is not RecordState.DROPPED or each not in work.started
        assert state is not RecordState.DONE or each in work.started
