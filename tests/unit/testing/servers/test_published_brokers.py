"""Handlers, results, retry topics and dead letters on brokers of each published kind."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from unit.testing.servers.published_brokers import BROKERS, NOT_OFFERED
from unit.testing.servers.published_cluster import PublishedConsumer

from asyncrevoke import Consumer, RetryTopic, TopicPartition
from asyncrevoke.client.producing.requests import InitProducerIdRequest

if TYPE_CHECKING:
    from unit.testing.servers.published_brokers import PublishedBroker

    from asyncrevoke.client.config import GroupProtocol

KINDS = [kind for kind in BROKERS if not kind.offsets_stay_unstable]


def idempotent(kind: PublishedBroker) -> bool:
    return kind.ranges.get(InitProducerIdRequest) != NOT_OFFERED


async def handle_20_records(kind: PublishedBroker, consumer: Consumer) -> None:
    """Two records of 20 fail, are retried after a minute, and become dead letters."""
    handled: list[int] = []

    @consumer.handler(
        "orders",
        publish_to="invoices",
        retry_topic=RetryTopic("orders.retry", delay=60, attempts=1),
        dead_letter="orders.failed",
    )
    async def bill(order: dict[str, int]) -> dict[str, int]:
        handled.append(order["id"])
        if order["id"] % 10 == 7:
            raise ValueError("it cannot be billed")
        return {"invoice": order["id"]}

    async with PublishedConsumer(kind, consumer, partitions=3) as t:
        for number in range(20):
            await t.publish("orders", {"id": number}, key=str(number % 5))
            if number % 4 == 3:
                await t.advance(2)
        await t.advance(200)
        assert sorted(handled) == sorted([*range(20), 7, 17])
        assert len(t.records("invoices")) == 18
        assert len(t.dead_letters("orders.failed")) == 2
        ends = [len(log.records) or None for log in t.brokers.topics["orders"]]
        assert [t.committed("orders", number) for number in range(3)] == ends


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_handlers_results_retries_and_dead_letters_work(kind: PublishedBroker) -> None:
    await handle_20_records(kind, Consumer(group_id="billing", idempotent=idempotent(kind)))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.name == "Azure Event Hubs"])
async def test_group_protocol_auto_joins_by_the_classic_protocol(kind: PublishedBroker) -> None:
    protocol: GroupProtocol = "auto"
    await handle_20_records(kind, Consumer(group_id="billing", group_protocol=protocol))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_a_pattern_finds_topics_that_are_created_later(kind: PublishedBroker) -> None:
    consumer = Consumer(pattern="orders-.*", group_id="billing")
    read: list[bytes | None] = []

    async def loop() -> None:
        async for batch in consumer:
            read.extend(record.value for record in batch.records)

    async with PublishedConsumer(kind, consumer, topics={"orders-a": 2, "clicks": 1}) as t:
        task = asyncio.create_task(loop())
        await t.publish("orders-a", "a")
        await t.publish("clicks", "c")
        await t.publish("orders-b", "b")
        await t.advance(250)
        assert set(read) == {b"a", b"b"}
        assert t.committed("orders-b", 0) == 1
        consumer.stop()
        await asyncio.wait((task,))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_a_loop_reads_from_a_time_on(kind: PublishedBroker) -> None:
    consumer = Consumer("orders", group_id="billing")
    read: list[bytes | None] = []

    async def loop() -> None:
        async for batch in consumer:
            read.extend(record.value for record in batch.records)

    async with PublishedConsumer(kind, consumer, partitions=1) as t:
        for number in range(6):
            await t.publish("orders", str(number), timestamp=1000 * number)
        found = await consumer.offsets_for_times({("orders", 0): 3000})
        offset = found[TopicPartition("orders", 0)]
        assert offset is not None
        assert offset.offset == 3 - kind.approximate_by
        consumer.seek(("orders", 0), offset.offset)
        task = asyncio.create_task(loop())
        await t.advance(10)
        assert read[-3:] == [b"3", b"4", b"5"]
        assert len(read) == 3 + kind.approximate_by
        assert t.committed("orders", 0) is None or t.committed("orders", 0) == 6
        consumer.stop()
        await asyncio.wait((task,))


def test_the_page_about_other_brokers_has_a_row_for_each_kind() -> None:
    page = Path(__file__).parents[4] / "docs" / "reference" / "brokers.md"
    rows = {line.split(" | ")[0].removeprefix("| ") for line in page.read_text().splitlines()}
    # The one with an open transaction is in the row of the others of its kind.
    assert {kind.name.partition(" with ")[0] for kind in BROKERS} <= rows
