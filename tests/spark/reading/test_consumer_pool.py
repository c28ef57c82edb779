"""Consumers that stay connected between ranges."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaProducer
from spark.real_topics import create_again, produce

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.errors import AuthenticationError
from asyncrevoke.spark.errors import DataLossError
from asyncrevoke.spark.reading.offsets import OffsetRange, resolve_ranges
from asyncrevoke.spark.reading.range_reader import RangeReader
from asyncrevoke.spark.reading.worker import ConsumerKind, ConsumerPool

if TYPE_CHECKING:
    from asyncrevoke.broker import RunningBroker
    from asyncrevoke.replays.ranges.range_consumer import RangeConsumer

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]


class Counted(ConsumerPool):
    """Notes which consumers it gave."""

    def __init__(self, idle_seconds: float = 60.0) -> None:
        super().__init__(idle_seconds)
        self.taken: list[RangeConsumer] = []
        self.expired = asyncio.Event()

    async def take(self, kind: ConsumerKind) -> RangeConsumer:
        consumer = await super().take(kind)
        self.taken.append(consumer)
        return consumer

    def _expire(self, consumer: RangeConsumer) -> None:
        super()._expire(consumer)
        self.expired.set()


async def read(config: ConsumerConfig, wanted: OffsetRange, pool: ConsumerPool) -> list[int]:
    found: list[int] = []
    async with RangeReader(config, wanted, consumers=pool) as reader:
        while records := await reader.read():
            found += [record.offset for record in records]
    return found


async def planned(config: ConsumerConfig, topic: str) -> OffsetRange:
    """All of partition 0."""
    ranges = await asyncio.to_thread(resolve_ranges, config, topic)
    return ranges[0]


@pytest.fixture
async def config(kafka_broker: RunningBroker, kafka_topic: str) -> ConsumerConfig:
    servers = kafka_broker.bootstrap_servers
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for n in range(50):
            await producer.send_and_wait(kafka_topic, b"%d" % n, partition=0)
    return ConsumerConfig(bootstrap_servers=servers)


async def test_ranges_one_after_another_are_read_by_one_consumer(
    config: ConsumerConfig, kafka_topic: str
) -> None:
    pool, wanted = Counted(), await planned(config, kafka_topic)
    # In any order, also the same range again: what was paused and given up is read anew.
    for start, end in ((0, 20), (20, 50), (5, 9), (5, 9)):
        found = await read(config, wanted._replace(start=start, end=end), pool)
        assert found == list(range(start, end))
        assert pool.taken[-1].health().revoking == 0
    assert len(set(pool.taken)) == 1
    await pool.aclose()


async def test_two_ranges_at_a_time_have_a_consumer_each(
    config: ConsumerConfig, kafka_topic: str
) -> None:
    pool = Counted()
    wanted = await planned(config, kafka_topic)
    both = await asyncio.gather(*(read(config, wanted, pool) for _ in range(2)))
    assert both == [list(range(50))] * 2
    assert len(set(pool.taken)) == 2
    await pool.aclose()


async def test_a_consumer_whose_range_was_not_read_to_its_end_is_closed(
    config: ConsumerConfig, kafka_topic: str
) -> None:
    pool, wanted = Counted(), await planned(config, kafka_topic)
    async with RangeReader(config, wanted, most=10, consumers=pool) as reader:
        assert await reader.read()
        assert not reader.ended
    with pytest.raises(DataLossError):
        await read(config, wanted._replace(topic_id="another"), pool)
    assert await read(config, wanted._replace(start=3, end=5), pool) == [3, 4]
    assert len(set(pool.taken)) == 3
    await pool.aclose()


async def test_a_consumer_of_other_options_is_not_taken(
    config: ConsumerConfig, kafka_topic: str
) -> None:
    pool = Counted()
    wanted = (await planned(config, kafka_topic))._replace(end=2)
    await read(config, wanted, pool)
    for level in ("read_uncommitted", "read_committed"):
        await read(replace(config, isolation_level=level), wanted, pool)
    assert len(set(pool.taken)) == 2
    await read(config, wanted._replace(topic_id=None), pool)
    await read(config, wanted._replace(topic_id=None), pool)
    assert len(set(pool.taken)) == 4
    await pool.aclose()


async def test_an_idle_consumer_is_closed(config: ConsumerConfig, kafka_topic: str) -> None:
    pool = Counted(0.01)
    wanted = (await planned(config, kafka_topic))._replace(end=2)
    await read(config, wanted, pool)
    async with asyncio.timeout(60):
        await pool.expired.wait()
    await pool.aclose()
    await read(config, wanted, pool)
    assert len(set(pool.taken)) == 2
    await pool.aclose()


async def test_a_consumer_that_has_failed_is_replaced(
    config: ConsumerConfig, kafka_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = Counted()
    wanted = (await planned(config, kafka_topic))._replace(end=2)
    await read(config, wanted, pool)
    failed = pool.taken[0].health()._replace(error=AuthenticationError("rejected"))
    monkeypatch.setattr(pool.taken[0], "health", lambda: failed)
    assert await read(config, wanted, pool) == [0, 1]
    assert len(set(pool.taken)) == 2
    await pool.aclose()


async def test_a_topic_that_was_created_again_is_read_by_a_kept_consumer(
    config: ConsumerConfig, kafka_topic: str, kafka_broker: RunningBroker
) -> None:
    pool = Counted()
    await read(config, await planned(config, kafka_topic), pool)
    await asyncio.to_thread(create_again, kafka_broker, kafka_topic, 1)
    await asyncio.to_thread(produce, kafka_broker, kafka_topic, 5)
    assert await read(config, await planned(config, kafka_topic), pool) == [0, 1, 2, 3, 4]
    await pool.aclose()
