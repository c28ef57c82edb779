"""The handler runner under any schedule of records, revocations and losses."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Literal

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
)

from asyncrevoke.client.model import Record  # noqa: TC001 - handlers' annotations are read

if TYPE_CHECKING:
    from asyncrevoke.client.config import OrderBy


@settings(max_examples=60)
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
                        dropped = source.state_of(each) is RecordState.DROPPED
                        assert dropped == (each.offset > highest), (each.offset, highest)
                        if source.gaps_from <= each.offset < highest and each not in work.started:
                            assert source.state_of(each) is RecordState.ABANDONED, "a gap is kept"
                        if each.offset < min(source.gaps_from, highest):
                            assert source.state_of(each) is not RecordState.ABANDONED, (
                                "a gap is dropped"
                            )
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
        state = run.source.state_of(each)
        assert state in (
            RecordState.DONE,
            RecordState.DROPPED,
            RecordState.ABANDONED,
            RecordState.LOST,
        ), state
        assert state not in (RecordState.DROPPED, RecordState.ABANDONED) or each not in work.started
        assert state is not RecordState.DONE or each in work.started
