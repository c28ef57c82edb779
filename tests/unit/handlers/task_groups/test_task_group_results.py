"""The tracked task group: results of tasks in the order of their records."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from unit.handlers.scripted_source import (
    OTHERS,
    record,
    turns,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from unit.handlers.task_groups.scripted_task_group import Setting

    from asyncrevoke.client.model import Record


async def offsets(pairs: AsyncIterator[tuple[Record, int]]) -> list[tuple[int, int]]:
    return [(pair.offset, result) async for pair, result in pairs]


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


async def test_a_map_continues_with_less_room_than_records(setting: Setting) -> None:
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


async def test_tasks_of_a_map_that_is_left_early_continue(setting: Setting) -> None:
    records = setting.delivered(record(0, b"a"), record(1, b"b"))

    async def offset(each: Record) -> int:
        await asyncio.sleep(0)
        return each.offset

    async with setting.group() as tasks:
        async for _ in tasks.map(offset, records):
            break
    assert set(setting.source.completions) == set(records)
