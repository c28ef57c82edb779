"""The tracked task group: tasks of the user's own loop whose records are counted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from unit.handlers.scripted_source import (
    ORDERS,
    OTHERS,
    RecordState,
    record,
    turns,
    until,
)

from asyncrevoke import Consumer
from asyncrevoke.client.errors import ConfigError, IllegalStateError
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from unit.handlers.task_groups.scripted_task_group import Setting

    from asyncrevoke.client.model import Record


async def test_records_are_done_when_their_tasks_end_and_leaving_waits_for_all(
    setting: Setting,
) -> None:
    a, b = setting.delivered(record(0, b"a"), record(1, b"b"))

    async def body() -> None:
        async with setting.group() as tasks:
            assert await tasks.submit(setting.work, a)
            assert await tasks.submit(setting.work, b)
            assert tasks.in_flight == 2
            assert setting.source.state_of(a) is RecordState.HELD
            assert setting.work.started == []

    task = asyncio.create_task(body())
    await until(lambda: len(setting.work.running) == 2)
    setting.work.end(b)
    await until(lambda: setting.source.state_of(b) is RecordState.DONE)
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
        assert setting.source.state_of(records[2]) is RecordState.PENDING
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
        assert setting.source.state_of(second) is RecordState.PENDING
        setting.work.end()
        await until(lambda: tasks.in_flight == 0)
        assert await tasks.submit(setting.work, second), "the room was not taken"
        await turns()
        setting.work.end()


async def test_a_record_of_a_lost_partition_is_rejected_and_not_run(setting: Setting) -> None:
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
        ({"max_in_flight": 0}, "max_in_flight=0: use 1 to 50"),
        ({"max_in_flight": 51}, "max_in_flight=51: use 1 to 50"),
        ({"concurrency": 0}, "concurrency=0"),
        ({"retry": 3}, "use retry=Retry"),
        ({"on_error": "ignore"}, "on_error='ignore' is unknown"),
        ({"dead_letter": "dlq", "on_error": "skip"}, "leave out one of them"),
    ],
)
async def test_options_that_cannot_work_are_rejected(options: dict[str, Any], says: str) -> None:
    consumer = Consumer("orders", group_id="g", max_in_flight=50)
    async with TestConsumer(consumer):
        with pytest.raises(ConfigError, match=says):
            consumer.task_group(**options)
