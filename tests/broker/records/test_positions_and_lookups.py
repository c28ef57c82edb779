"""Where a consumer begins, seeks, pauses and looks offsets up, on a real broker."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from broker.records.kafka_topic_records import DEADLINE, TopicRecords, numbers, read, rest

from asyncrevoke import (
    Consumer,
    NoOffsetError,
)

if TYPE_CHECKING:
    from asyncrevoke.config import OffsetReset


pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


async def test_seeking_pausing_and_looking_up_offsets(kafka: TopicRecords) -> None:
    await kafka.produce(60)
    async with kafka.consumer(group_id=None) as consumer, asyncio.timeout(DEADLINE):
        await read(consumer, 60)
        ends = await consumer.end_offsets()
        assert sum(ends.values()) == 60
        assert set((await consumer.beginning_offsets()).values()) == {0}
        assert {tp: consumer.position(tp) for tp in ends} == ends
        assert {tp: consumer.highwater(tp) for tp in ends if ends[tp]} == {
            tp: end for tp, end in ends.items() if end
        }
        assert await consumer.partitions_for_topic(kafka.topic) == {0, 1, 2, 3}
        assert await consumer.partitions_for_topic("no-such-topic") == frozenset()

        tp = max(ends, key=lambda tp: ends[tp])
        consumer.seek(tp, ends[tp] - 3)
        assert len(await read(consumer, 3)) == 3
        assert await rest(consumer) == []

        await consumer.seek_to_beginning()
        assert Counter(await read(consumer, 60)) == numbers(60)
        await consumer.seek_to_beginning()
        await consumer.seek_to_end()
        assert await rest(consumer) == []

        consumer.pause(tp)
        assert consumer.paused() == {tp}
        consumer.seek(tp, 0)
        assert await rest(consumer) == []
        consumer.resume(tp)
        assert len(await read(consumer, ends[tp])) == ends[tp]

        first = (await consumer.offsets_for_times({tp: 0}))[tp]
        assert first is not None
        assert first.offset == 0
        assert (await consumer.offsets_for_times({tp: 2**50}))[tp] is None


async def test_partitions_assigned_by_hand_are_read_and_committed(kafka: TopicRecords) -> None:
    await kafka.produce(60)
    consumer = Consumer(bootstrap_servers=kafka.bootstrap, group_id=kafka.group)
    wanted = {kafka.partition(0), kafka.partition(1)}
    async with asyncio.timeout(DEADLINE), consumer:
        consumer.assign(wanted)
        values = await rest(consumer)
        assert consumer.assignment() == wanted
        await consumer.commit()
        found = await consumer.committed()
        assert sum(offset.offset for offset in found.values() if offset) == len(values)


async def test_a_pattern_finds_topics_and_unsubscribing_leaves_them(kafka: TopicRecords) -> None:
    await kafka.produce(20)
    consumer = Consumer(
        pattern=f"{kafka.topic[:-4]}.*", bootstrap_servers=kafka.bootstrap, group_id=kafka.group
    )
    async with asyncio.timeout(DEADLINE), consumer:
        await read(consumer, 20)
        assert consumer.subscription() == {kafka.topic}
        await consumer.poll(timeout=0)
        await consumer.unsubscribe()
        assert consumer.assignment() == frozenset()
        assert await kafka.committed() == 20
        consumer.subscribe(kafka.topic)
        await kafka.produce(5)
        assert Counter(await read(consumer, 5)) == numbers(5, 20)


@pytest.mark.parametrize(("back", "expected"), [(timedelta(hours=1), 10), ("latest", 0)])
async def test_where_to_begin_can_be_chosen(
    kafka: TopicRecords, back: OffsetReset, expected: int
) -> None:
    await kafka.produce(10)
    async with kafka.consumer(auto_offset_reset=back) as consumer:
        assert len(await rest(consumer)) == expected


async def test_no_committed_offset_may_be_an_error(kafka: TopicRecords) -> None:
    async with kafka.consumer(auto_offset_reset="error") as consumer:
        async with asyncio.timeout(DEADLINE):
            with pytest.raises(NoOffsetError):
                await anext(consumer)
