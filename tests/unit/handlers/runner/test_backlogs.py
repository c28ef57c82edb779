"""How handlers take a backlog: records of one partition do not wait for that of others."""

import asyncio
import random

import pytest

from asyncrevoke import Consumer, PollResult, Record, TopicPartition
from asyncrevoke.client.runtime.hooks.observers import Observer
from asyncrevoke.testing import TestConsumer

_HANDLER_TIME = 0.1
_BACKLOG = 500


@pytest.mark.parametrize("max_in_flight", [10_000, 2000, 200])
@pytest.mark.parametrize("keys", [10_000, 8], ids=["many keys", "few keys"])
async def test_a_record_starts_within_one_handler_time_beside_backlogs_of_taken_partitions(
    keys: int, max_in_flight: int
) -> None:
    consumer = Consumer(group_id="billing", concurrency=32, max_in_flight=max_in_flight)
    started: dict[int, float] = {}

    @consumer.handler("orders")
    async def handle(record: Record) -> None:
        if record.partition == 6:
            started[record.offset] = test.time
        await asyncio.sleep(_HANDLER_TIME)

    chance = random.Random(1)
    taken = [("orders", partition) for partition in range(6)]
    async with TestConsumer(consumer, partitions=7) as test:
        await test.revoke(*taken)
        for number in range(_BACKLOG * len(taken)):
            key = str(chance.randrange(keys))
            await test.publish("orders", number, key=key, partition=number % len(taken))
        await test.give(*taken)
        for number in range(20):
            await test.advance(chance.uniform(0.0, _HANDLER_TIME))
            published_at = test.time
            kept = await test.publish("orders", number, key=f"kept {number}", partition=6)
            # until() would pass virtual time in steps as long as the machine takes for them.
            while kept.offset not in started:
                await test.advance(0.002)
            assert started[kept.offset] - published_at <= _HANDLER_TIME + 0.01
        assert test.in_flight > 100


async def test_handlers_take_a_backlog_in_larger_polls_than_max_poll_records() -> None:
    class Sizes(Observer):
        def __init__(self) -> None:
            self.polls: list[int] = []

        def on_poll(self, batch: PollResult) -> None:
            if batch.records:
                self.polls.append(len(batch.records))

    consumer = Consumer(group_id="billing", max_poll_records=2, max_in_flight=100)

    @consumer.handler("orders")
    async def handle(value: bytes) -> None: ...

    sizes, partition = Sizes(), TopicPartition("orders", 0)
    consumer.observe(sizes)
    async with TestConsumer(consumer, partitions=1) as t:
        consumer.pause(partition)
        for number in range(12):
            await t.publish("orders", f"{number}", partition=0)
        consumer.resume(partition)
        await t.advance(1)
        assert max(sizes.polls) == 8
