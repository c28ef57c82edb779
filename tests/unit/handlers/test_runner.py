"""The handler runner: takes records, runs handlers, completes, drains, fails."""

from __future__ import annotations

import asyncio
import contextvars
from collections import defaultdict
from typing import TYPE_CHECKING, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.handlers.scripted_runner import Running, running
from unit.handlers.scripted_source import (
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

from asyncrevoke.errors import (
    ConfigError,
    DecodeError,
    FatalError,
    HandlerCancelledError,
    HandlerExitError,
)
from asyncrevoke.handlers.execution.runner_context import RunnerContext
from asyncrevoke.handlers.registry import Router
from asyncrevoke.handlers.runner import HandlerRunner
from asyncrevoke.model import Record, TopicPartition

if TYPE_CHECKING:
    from asyncrevoke.config import OrderBy
    from asyncrevoke.handlers.policy.registration import OnError


# -- at work --------------------------------------------------------------------------------------


async def test_records_are_completed_as_their_handlers_end_in_any_order() -> None:
    work = HeldWork()
    a, b, c = record(0, b"a"), record(1, b"b"), record(2, b"c")
    async with running(work) as run:
        run.source.feed(a, b, c)
        await until(lambda: len(work.running) == 3)
        work.end(c)
        await until(lambda: run.source.fate(c) is Fate.DONE)
        assert run.source.fate(a) is Fate.PENDING
        work.end(a)
        work.end(b)
        await run.stop()
        assert run.source.completions[0] is c
        assert run.source.in_flight == 0


async def test_records_that_end_in_one_turn_of_the_loop_are_completed_by_one_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "asyncrevoke.handlers.workers.turn._MAX_RUN_WITHOUT_YIELD", 60.0
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


# -- giving up ------------------------------------------------------------------------------------


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
        assert run.source.fate(a3) is run.source.fate(b4) is Fate.DROPPED
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


async def test_stopping_drops_unstarted_records_below_the_last_started_one_too() -> None:
    work = HeldWork()
    slow = [record(i, b"slow") for i in range(4)]
    fast, late = record(4, b"fast"), record(5, b"late")
    async with running(work, concurrency=2) as run:
        run.source.feed(*slow, fast, late)
        await until(lambda: len(work.running) == 2)
        run.source.stop()
        await turns()
        assert [run.source.fate(each) for each in slow[1:]] == [Fate.ABANDONED] * 3
        assert run.source.fate(late) is Fate.DROPPED
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
        assert [run.source.fate(each) for each in slow[2:]] == [Fate.ABANDONED] * 3
        assert run.source.fate(fast[2]) is Fate.DROPPED
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
        assert [each.tracker_id for each in run.source.completions] == [2]


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
        assert "nobody had cancelled it" in str(error)
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
    runs: list[Running] = []

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
        assert run.source.fate(a1) is Fate.DROPPED
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
        assert {run.source.fate(each) for each in (a0, a1, b0)} == {Fate.ABANDONED}


async def test_records_are_completed_though_the_runner_is_cancelled_in_the_same_turn() -> None:
    work = HeldWork()
    first, behind, other = record(0), record(1), record(2, b"b")
    async with running(work) as run:
        run.source.feed(first, behind, other)
        await until(lambda: len(work.running) == 2)
        work.end(first)
        await until(lambda: work.running == [other, behind])
        assert run.source.fate(first) is Fate.PENDING
        run.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run.task
        assert run.source.fate(first) is Fate.DONE
        assert {run.source.fate(each) for each in (behind, other)} == {Fate.ABANDONED}


# -- failing --------------------------------------------------------------------------------------


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
        assert "handled orders-0 at offset 0" in "".join(boom.__notes__)
        assert run.source.fate(a0) is Fate.ABANDONED
        assert run.source.fate(a1) is Fate.ABANDONED, "the key's order would be broken by it"
        assert run.source.commit_point([a0, a1, b2]) == 0
        assert run.source.fate(other[0]) is run.source.fate(b2) is Fate.DONE
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
        assert run.log.events("error") == ["another handler failed while the consumer stops"]


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
        assert run.log.events("error") == ["cancelled while stopping after a handler failure"]
        assert work.cancelled == [b]


async def test_a_failure_may_be_skipped() -> None:
    work = HeldWork()
    first, second = record(0), record(1)
    async with running(work, on_error="skip") as run:
        run.source.feed(first, second)
        await until(lambda: first in work.running)
        work.end(first, error=ValueError("boom"))
        await until(lambda: second in work.running)
        assert run.source.fate(first) is Fate.DONE
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
        assert source.fate(bad) is Fate.DONE


async def test_a_cancelled_error_that_the_library_did_not_cause_is_a_failure() -> None:
    async def awaits_a_cancelled_future(each: Record) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    async with running(awaits_a_cancelled_future) as run:
        run.source.feed(record(0))
        error = await run.failure()
        assert isinstance(error, HandlerCancelledError)
        assert "nobody had cancelled it" in str(error)


async def test_a_handler_cancelled_from_outside_fails_and_others_go_on() -> None:
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
        run.source.fates[ORDERS, 1, 0] = Fate.DONE  # completing it again is refused
        work.end(a)
        assert "ends a second time" in str(await run.failure())
        assert work.cancelled == [b]
        assert run.source.fate(b) is Fate.ABANDONED


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
            if each.offset not in handled and (ORDERS, 1, each.offset) in run.source.fates:
                assert run.source.fate(each) is Fate.DROPPED
        assert run.source.in_flight == 0


# -- any schedule ---------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_schedule_keeps_order_and_completes_or_abandons_every_record_once(
    data: st.DataObject,
) -> None:
    asyncio.run(_any_schedule(data))


async def _any_schedule(data: st.DataObject) -> None:
    order_by: OrderBy | None = data.draw(st.sampled_from(["key", "partition", None]))
    null_keys: Literal["ordered", "unordered"] = data.draw(
        st.sampled_from(["ordered", "unordered"])
    )
    concurrency = data.draw(st.integers(1, 5))
    work = HeldWork()
    partitions = [ORDERS, OTHERS]
    next_offset = dict.fromkeys(partitions, 0)
    tracker = dict.fromkeys(partitions, 1)
    delivered: list[Record] = []

    def lane(each: Record) -> object:
        if order_by is None or (order_by == "key" and not each.key and null_keys == "unordered"):
            return object()
        return each.partition, each.key if order_by == "key" else None

    async with running(
        work, concurrency=concurrency, order_by=order_by, null_keys=null_keys
    ) as run:
        source = run.source
        for _ in range(data.draw(st.integers(1, 25))):
            partition = data.draw(st.sampled_from(partitions))
            step = data.draw(
                st.sampled_from(["records", "records", "end", "end", "revoke", "lose"])
            )
            if step == "records":
                keys = data.draw(st.lists(st.sampled_from([b"a", b"b", b"c", None]), max_size=8))
                records = [
                    record(
                        next_offset[partition] + i,
                        key,
                        partition=partition,
                        tracker_id=tracker[partition],
                    )
                    for i, key in enumerate(keys)
                ]
                next_offset[partition] += len(keys)
                delivered.extend(records)
                if records:
                    source.feed(*records)
            elif step == "end" and work.running:
                work.end(data.draw(st.sampled_from(work.running)))
            elif step == "revoke":
                await turns(40)
                mine = [
                    each.offset
                    for each in work.started
                    if each.topic_partition == partition and each.tracker_id == tracker[partition]
                ]
                highest = max(mine, default=-1)
                source.gaps_from = data.draw(st.integers(0, max(highest, 0) + 2))
                source.feed(revoke=[partition])
                await turns(40)
                for each in delivered:
                    if each.topic_partition == partition and each.tracker_id == tracker[partition]:
                        dropped = source.fate(each) is Fate.DROPPED
                        assert dropped == (each.offset > highest), (each.offset, highest)
                        if source.gaps_from <= each.offset < highest and each not in work.started:
                            assert source.fate(each) is Fate.ABANDONED, "a gap is kept"
                        if each.offset < min(source.gaps_from, highest):
                            assert source.fate(each) is not Fate.ABANDONED, "a gap is dropped"
                tracker[partition] += 1  # released: its next assignment has another tracker
                continue
            elif step == "lose":
                source.feed(lost=[partition])
                tracker[partition] += 1
            await turns(data.draw(st.sampled_from([1, 40])))
            busy = [lane(each) for each in work.running]
            assert len(set(busy)) == len(busy), "two of a lane at once"
            assert work.most_at_once <= concurrency
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
    assert len(set(map(id, work.started))) == len(work.started), "a record handled twice"
    for each in delivered:
        fate = run.source.fate(each)
        assert fate in (Fate.DONE, Fate.DROPPED, Fate.ABANDONED, Fate.LOST), fate
        assert fate not in (Fate.DROPPED, Fate.ABANDONED) or each not in work.started
        assert fate is not Fate.DONE or each in work.started
