"""The tracked task group: tasks of the user's own loop whose records are counted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from unit.handlers.scripted_runner import ScriptedClock
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

from asyncrevoke import Consumer
from asyncrevoke.errors import ConfigError, HandlerCancelledError, IllegalStateError
from asyncrevoke.handlers.execution.runner_context import RunnerContext
from asyncrevoke.handlers.policy.retry import Retry
from asyncrevoke.handlers.task_group import TrackedTaskGroup
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from asyncrevoke.config import OrderBy
    from asyncrevoke.handlers.dead_letters.dead_letter import DeadLetter
    from asyncrevoke.handlers.policy.registration import OnError
    from asyncrevoke.model import Record


class Letters:
    """A dead letter topic that may refuse to take any."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, DeadLetter]] = []
        self.refuses: Exception | None = None
        self.closed = False

    async def send(self, topic: str, letter: DeadLetter) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.sent.append((topic, letter))

    async def aclose(self) -> None:
        self.closed = True


class Setting:
    """A source, a log, work that the test ends, and groups on them."""

    def __init__(self) -> None:
        self.source = ScriptedSource()
        self.log = LogLines()
        self.work = HeldWork()
        self.clock = ScriptedClock()
        self.letters = Letters()

    def group(
        self,
        *,
        concurrency: int = 8,
        max_in_flight: int = 100,
        order_by: OrderBy | None = "key",
        on_error: OnError = "stop",
        retry: Retry | None = None,
        dead_letter: str | None = None,
    ) -> TrackedTaskGroup:
        context = RunnerContext(
            concurrency=concurrency,
            max_in_flight=max_in_flight,
            order_by=order_by,
            dead_letters=self.letters,
            clock=self.clock,
            random=lambda: 0.5,
            log=self.log,
        )
        return TrackedTaskGroup(
            self.source, context, on_error=on_error, retry=retry, dead_letter=dead_letter
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


async def test_a_lost_partition_s_tasks_are_cancelled_and_free_their_room(setting: Setting) -> None:
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


async def test_a_revocation_cancels_and_drops_no_task(setting: Setting) -> None:
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
    assert setting.source.fate(b) is Fate.DONE
    assert setting.source.fate(c) is Fate.PENDING


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
    assert setting.log.events("error") == ["task failed, and its group was left with another error"]


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
    assert setting.source.fate(one) is Fate.ABANDONED


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
    monkeypatch.setattr("asyncrevoke.handlers.workers.worker_pool._GRACE", 0.01)
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


# -- failures that are no end ---------------------------------------------------------------------


async def test_a_failed_task_is_called_again_while_its_lane_waits(setting: Setting) -> None:
    a0, a1, b = setting.delivered(record(0), record(1), record(2, b"b"))
    async with setting.group(retry=Retry(attempts=2, backoff=4)) as tasks:
        for each in (a0, a1, b):
            await tasks.submit(setting.work, each)
        await turns()
        setting.work.end(a0, error=ValueError("boom"))
        setting.work.end(b)
        await turns()
        assert setting.source.completions == [b]
        assert tasks.in_flight == 2, "what waits for its next attempt is in flight"
        setting.clock.advance(3.9)
        await turns()
        assert setting.work.running == []
        setting.clock.advance(0.2)
        await turns()
        assert setting.work.running == [a0]
        setting.work.end()
        await until(lambda: a1 in setting.work.running)
        setting.work.end()
        await until(lambda: tasks.in_flight == 0)
    assert setting.source.completions == [b, a0, a1]


async def test_a_record_that_waits_for_a_retry_is_abandoned_when_its_partition_is_revoked(
    setting: Setting,
) -> None:
    a0, a1, b = setting.delivered(record(0), record(1), record(2, b"b"))
    async with setting.group(retry=Retry(attempts=None, backoff=4)) as tasks:
        for each in (a0, a1, b):
            await tasks.submit(setting.work, each)
        await turns()
        setting.work.end(a0, error=ValueError("boom"))
        await turns()
        tasks.observe(setting.source.batch(revoke=[ORDERS]))
        assert {setting.source.fate(each) for each in (a0, a1)} == {Fate.ABANDONED}
        assert tasks.in_flight == 1
        setting.work.end(b, error=ValueError("while it is revoked"))
        await turns()
        assert setting.source.fate(b) is Fate.ABANDONED
    assert setting.clock.timers == []


async def test_leaving_abandons_records_that_wait_for_a_retry_and_waits_for_other_tasks(
    setting: Setting,
) -> None:
    a0, a1, b = setting.delivered(record(0), record(1), record(2, b"b"))

    async def body() -> None:
        async with setting.group(retry=Retry(attempts=None, backoff=4)) as tasks:
            for each in (a0, a1, b):
                await tasks.submit(setting.work, each)
            await turns()
            setting.work.end(a0, error=ValueError("boom"))

    leaving = asyncio.create_task(body())
    await until(lambda: setting.work.running == [b])
    await turns()
    setting.work.end()
    await leaving
    assert setting.source.completions == [b]
    assert {setting.source.fate(each) for each in (a0, a1)} == {Fate.ABANDONED}
    assert setting.clock.timers == []


async def test_a_stop_ends_retries_with_the_next_failure(setting: Setting) -> None:
    (one,) = setting.delivered(record(0))
    async with setting.group(retry=Retry(attempts=None, backoff=1)) as tasks:
        await tasks.submit(setting.work, one)
        await turns()
        setting.source.stop()
        setting.work.end(error=ValueError("boom"))
        await until(lambda: tasks.in_flight == 0)
    assert setting.source.fate(one) is Fate.ABANDONED


async def test_a_record_is_written_to_the_dead_letter_topic_after_its_last_attempt(
    setting: Setting,
) -> None:
    a0, a1 = setting.delivered(record(0), record(1))
    async with setting.group(dead_letter="dlq", retry=Retry(attempts=2, backoff=1)) as tasks:
        await tasks.submit(setting.work, a0)
        await tasks.submit(setting.work, a1)
        for _ in range(2):
            await turns()
            setting.work.end(a0, error=ValueError("boom"))
            await turns()
            setting.clock.advance(2)
        await until(lambda: a1 in setting.work.running)
        setting.work.end()
    assert setting.source.completions == [a0, a1]
    ((topic, letter),) = setting.letters.sent
    assert (topic, letter.value) == ("dlq", b"v")
    assert setting.letters.closed


async def test_a_dead_letter_that_cannot_be_sent_pauses_its_partition(setting: Setting) -> None:
    a0, a1, other = setting.delivered(record(0), record(1), record(0, partition=OTHERS))
    setting.letters.refuses = ConnectionError("no broker")
    async with setting.group(dead_letter="dlq") as tasks:
        await tasks.submit(setting.work, a0)
        await tasks.submit(setting.work, other)
        await turns()
        setting.work.end(a0, error=ValueError("boom"))
        await turns()
        assert setting.source.paused == [ORDERS]
        assert not await tasks.submit(setting.work, a1), "after it in a paused partition"
        setting.work.end(other)
    assert setting.source.fate(a0) is Fate.ABANDONED
    assert setting.source.completions == [other]


async def test_a_failure_may_pause_its_partition(setting: Setting) -> None:
    a0, b, a1 = setting.delivered(record(0), record(1, b"b"), record(2))
    async with setting.group(on_error="pause") as tasks:
        for each in (a0, b, a1):
            await tasks.submit(setting.work, each)
        await turns()
        setting.work.end(a0, error=ValueError("boom"))
        await turns()
        assert setting.work.running == [b], "what runs of it goes on"
        setting.work.end()
        await until(lambda: tasks.in_flight == 0)
        assert setting.source.paused == [ORDERS]
        setting.source.paused.clear()  # resumed: it goes on under another tracker
        (again,) = setting.delivered(record(0, tracker_id=2))
        assert await tasks.submit(setting.work, again)
        await turns()
        setting.work.end()
    assert {setting.source.fate(each) for each in (a0, a1)} == {Fate.ABANDONED}
    assert setting.source.completions == [b, again]


# -- results --------------------------------------------------------------------------------------


async def offsets(pairs: AsyncIterator[tuple[Record, int]]) -> list[tuple[int, int]]:
    return [(each.offset, result) async for each, result in pairs]


async def test_map_yields_results_in_the_order_of_the_records(setting: Setting) -> None:
    records = setting.delivered(record(0, b"a"), record(1, b"b"), record(2, b"c"))

    async def twice(each: Record, plus: int) -> int:
        await setting.work(each)
        return 2 * each.offset + plus

    async with setting.group() as tasks:
        mapped = asyncio.create_task(offsets(tasks.map(twice, records, 100)))
        await turns()
        assert setting.work.running == records, "all of them run at once"
        assert setting.source.parked_now == 1, "waiting for a result is a poll boundary"
        for each in reversed(records):
            setting.work.end(each)
            await turns()
        assert await mapped == [(0, 100), (1, 102), (2, 104)]
        assert setting.source.completions == records[::-1], "done when its task ended"


async def test_map_yields_a_result_while_later_ones_run(setting: Setting) -> None:
    records = setting.delivered(record(0, b"a"), record(1, b"b"))

    async def offset(each: Record) -> int:
        await setting.work(each)
        return each.offset

    async with setting.group() as tasks:
        mapped = tasks.map(offset, records)
        first = asyncio.ensure_future(anext(mapped))
        await turns()
        setting.work.end(records[0])
        assert (await first)[1] == 0
        assert setting.work.running == records[1:]
        setting.work.end()
        assert [result async for _, result in mapped] == [1]


async def test_map_goes_on_with_less_room_than_records(setting: Setting) -> None:
    records = setting.delivered(*(record(n, b"%d" % n) for n in range(20)))

    async def offset(each: Record) -> int:
        await asyncio.sleep(0)
        return each.offset

    async with setting.group(max_in_flight=3) as tasks:
        assert await offsets(tasks.map(offset, records)) == [(n, n) for n in range(20)]


async def test_map_leaves_out_records_without_a_result(setting: Setting) -> None:
    records = setting.delivered(
        record(0, b"a"), record(1, b"b"), record(2, b"c"), record(0, partition=OTHERS)
    )

    async def offset(each: Record) -> int:
        await setting.work(each)
        return each.offset

    async with setting.group(on_error="skip") as tasks:
        mapped = asyncio.create_task(offsets(tasks.map(offset, records)))
        await turns()
        setting.work.end(records[1], error=ValueError("boom"))
        lost = setting.source.batch(lost=[OTHERS])
        setting.source.deliver(lost)
        tasks.observe(lost)
        await turns()
        setting.work.end()
        assert await mapped == [(0, 0), (2, 2)]


async def test_map_raises_the_failure_after_the_results_before_it(
    setting: Setting,
) -> None:
    records = setting.delivered(record(0, b"a"), record(1, b"b"), record(2, b"b"))
    got: list[int] = []

    async def offset(each: Record) -> int:
        await setting.work(each)
        return each.offset

    async def body() -> None:
        async with setting.group() as tasks:
            async for each, _ in tasks.map(offset, records):
                got.append(each.offset)

    running = asyncio.create_task(body())
    await turns()
    setting.work.end(records[0])
    setting.work.end(records[1], error=ValueError("boom"))
    with pytest.raises(ValueError, match="boom"):
        await running
    assert got == [0]
    assert records[2] not in setting.work.started


async def test_tasks_of_a_map_that_is_left_early_go_on(setting: Setting) -> None:
    records = setting.delivered(record(0, b"a"), record(1, b"b"))

    async def offset(each: Record) -> int:
        await asyncio.sleep(0)
        return each.offset

    async with setting.group() as tasks:
        async for _ in tasks.map(offset, records):
            break
    assert set(setting.source.completions) == set(records)


# -- on a consumer --------------------------------------------------------------------------------


async def test_a_consumer_s_group_maps_commits_and_writes_dead_letters() -> None:
    consumer = Consumer("orders", group_id="g")
    got: list[tuple[int, int]] = []

    async def length(each: Record) -> int:
        if each.value == b"bad":
            raise ValueError("boom")
        return len(each.value or b"")

    async def loop() -> None:
        async with consumer.task_group(max_in_flight=2, dead_letter="dlq") as tasks:
            async for batch in consumer:
                async for each, result in tasks.map(length, batch.records):
                    got.append((each.offset, result))

    async with TestConsumer(consumer, partitions=1) as t:
        looping = asyncio.create_task(loop())
        for value in (b"a", b"bad", b"ccc"):
            await t.publish("orders", value)
        await t.advance(2)
        assert got == [(0, 1), (2, 3)]
        assert t.committed("orders", 0) == 3
        assert [letter.value for letter in t.dead_letters("dlq")] == [b"bad"]
        consumer.stop()
        await looping


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_in_flight": 0}, "max_in_flight=0: from 1 to 50"),
        ({"max_in_flight": 51}, "max_in_flight=51: from 1 to 50"),
        ({"concurrency": 0}, "concurrency=0"),
        ({"retry": 3}, "use retry=Retry"),
        ({"on_error": "ignore"}, "on_error='ignore' is unknown"),
        ({"dead_letter": "dlq", "on_error": "skip"}, "leave out one of them"),
    ],
)
async def test_options_that_cannot_work_are_refused(options: dict[str, Any], says: str) -> None:
    consumer = Consumer("orders", group_id="g", max_in_flight=50)
    async with TestConsumer(consumer):
        with pytest.raises(ConfigError, match=says):
            consumer.task_group(**options)
