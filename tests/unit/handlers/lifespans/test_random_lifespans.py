"""Random rebalances, stops and failures: the state of the lifespans contains each record once.

A seed is one run. The handlers take time, fail at first for some records, and handle keys or
batches in any order; the state is stored only when a lifespan exits, with what ``stored`` says.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Literal

import pytest

from asyncrevoke import (
    AssignedPartition,
    BatchError,
    Consumer,
    HandlerContext,
    PartitionLostError,
    Record,
    Retry,
    TopicPartition,
)
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from asyncrevoke.client.config import ConsumerOptions

PARTITIONS = [TopicPartition("orders", number) for number in range(2)]
EVENTS = 20
SEEDS = 16


class Run:
    """One consumer after another, whose lifespans load and store the states of the partitions."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.stored: Literal["offset_to_commit", "progress", "either"]
        self.stored = rng.choice(["offset_to_commit", "progress", "either"])
        self.in_batches = rng.random() < 0.3
        self.options: ConsumerOptions = {
            "group_id": "counts",
            "group_protocol": rng.choice(["classic", "consumer"]),
            "revoke_gaps": rng.choice(["process", "process", "drop"]),
            "order_by": rng.choice(["key", "key", "partition", None]),
            "completion_map": rng.choice([512, 32, 0]),
            "commit_interval": rng.choice([0.1, 5.0]),
            "close_timeout": rng.choice([8.0, 30.0]),
            "rebalance_timeout": rng.choice([12.0, 60.0]),
            "concurrency": rng.choice([2, 100]),
        }
        self.states: dict[TopicPartition, tuple[list[int], tuple[int, str]]] = {}
        self.published = dict.fromkeys(PARTITIONS, 0)
        self.lost = self.stored_states = 0
        # Records that fail when they are handled for the first time.
        self._failing: set[tuple[int, int]] = set()

    def consumer(self) -> Consumer:
        consumer = Consumer(**self.options)
        consumer.partition_lifespan(self.lifespan)
        retry = Retry(attempts=9, backoff=3.0, jitter=0)
        if self.in_batches:
            consumer.handler("orders", batch=True, max_records=4, max_wait=1, retry=retry)(
                self.handle_batch
            )
        else:
            consumer.handler("orders", retry=retry)(self.handle)
        return consumer

    async def lifespan(self, partition: AssignedPartition) -> AsyncGenerator[list[int]]:
        name = partition.topic_partition
        offsets, begins = self.states.get(name, ([], (0, "")))
        offsets = list(offsets)
        partition.seek(*begins)
        try:
            yield offsets
            stores_progress = self.stored == "progress"
            if self.stored == "either":
                stores_progress = self.rng.random() < 0.5
            begins = partition.progress if stores_progress else (partition.offset_to_commit, "")
        except PartitionLostError:
            self.lost += 1
            raise
        self.states[name] = offsets, begins
        self.stored_states += 1

    async def handle(
        self, record: Record, context: HandlerContext[object, object, list[int]]
    ) -> None:
        await asyncio.sleep(float(record.value or b"0"))
        self._fail(record)
        context.partition_state.append(record.offset)

    async def handle_batch(
        self, records: list[Record], context: HandlerContext[object, object, list[int]]
    ) -> None:
        await asyncio.sleep(max(float(record.value or b"0") for record in records))
        errors: dict[int, BaseException] = {}
        for number, record in enumerate(records):
            try:
                self._fail(record)
            except ValueError as error:
                errors[number] = error
            else:
                context.partition_state.append(record.offset)
        if errors:
            raise BatchError(errors)

    def _fail(self, record: Record) -> None:
        if (record.partition, record.offset) in self._failing:
            self._failing.remove((record.partition, record.offset))
            raise ValueError("the first attempt fails")

    async def publish(self, t: TestConsumer) -> None:
        rng, partition = self.rng, self.rng.choice(PARTITIONS)
        for _ in range(rng.randint(1, 8)):
            number = self.published[partition]
            self.published[partition] += 1
            if rng.random() < 0.1:
                self._failing.add((partition.partition, number))
            key = rng.choice(["slow", "a", "b", "c", "d", None])
            seconds = rng.uniform(1, 6) if key == "slow" else rng.choice([0.0, 0.1])
            value = b"%.2f" % seconds
            await t.publish("orders", value, key=key, partition=partition.partition)

    def check(self) -> None:
        for partition, end in self.published.items():
            offsets, begins = self.states.get(partition, ([], (0, "")))
            assert sorted(offsets) == list(range(end)), (partition, begins)


async def run(seed: int) -> Run:
    done = Run(seed)
    rng, taken = done.rng, set[TopicPartition]()
    async with TestConsumer(done.consumer(), partitions=len(PARTITIONS)) as t:
        for _ in range(EVENTS):
            await t.advance(rng.choice([0.0, 0.2, 1.0, 5.0]))
            choice, partition = rng.random(), rng.choice(PARTITIONS)
            if choice < 0.5:
                await done.publish(t)
            elif choice < 0.75:
                await move(t, taken, partition)
            elif choice < 0.8:
                await t.lose(partition)
                taken.add(partition)
            elif choice < 0.9:
                t.consumer.stop()
                await released(t, done)
                await t.crash()
                await t.restart(done.consumer())
            else:
                await t.crash()
                await t.restart(done.consumer())
        for partition in sorted(taken):
            await move(t, taken, partition)
        await t.advance(600)
        t.consumer.stop()
        await released(t, done)
        done.check()
    return done


async def move(t: TestConsumer, taken: set[TopicPartition], partition: TopicPartition) -> None:
    """Have the other member take the partition, or give it back."""
    if partition not in taken:
        taken.add(partition)
        await t.revoke(partition)
        return
    taken.remove(partition)
    is_owned = partition in t.assignment()
    if is_owned and t.consumer.config.group_protocol == "classic":
        await t.withdraw(partition)
        return
    await until(t, lambda: partition not in t.assignment(), 70)
    await t.give(partition)


async def released(t: TestConsumer, done: Run) -> None:
    await until(t, lambda: not t.assignment(), done.options.get("close_timeout", 0) + 1)


async def until(t: TestConsumer, condition: Callable[[], bool], most: float) -> None:
    began = t.time
    while not condition():
        assert t.time - began < most
        await t.advance(0.5)


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_the_states_of_lifespans_contain_each_record_once(seed: int) -> None:
    await run(seed)
