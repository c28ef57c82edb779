"""``position()`` in the callbacks for partitions that are not assigned any more."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from asyncrevoke import Consumer, RebalanceListener, TopicPartition
from asyncrevoke.client.errors import IllegalStateError
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from asyncrevoke.client.config import GroupProtocol

each_protocol = pytest.mark.parametrize("protocol", ["classic", "consumer"])


class Asking(RebalanceListener):
    """Asks for the positions of what is revoked or lost, in the callback and in a task of it."""

    def __init__(self) -> None:
        self.consumer: Consumer | None = None
        self.said: dict[str, dict[TopicPartition, int | None]] = {}
        self.afterwards: list[asyncio.Task[int | None]] = []

    async def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None:
        await self._ask("revoked", revoked)

    async def on_partitions_lost(self, lost: frozenset[TopicPartition]) -> None:
        await self._ask("lost", lost)

    async def _ask(self, kind: str, partitions: frozenset[TopicPartition]) -> None:
        assert self.consumer is not None
        self.said[kind] = {partition: self.consumer.position(partition) for partition in partitions}
        await asyncio.sleep(0.1)
        assert self.consumer.position(min(partitions)) == self.said[kind][min(partitions)]
        self.afterwards.append(asyncio.create_task(self._position_later(min(partitions))))

    async def _position_later(self, partition: TopicPartition) -> int | None:
        assert self.consumer is not None
        await asyncio.sleep(5)
        return self.consumer.position(partition)


@each_protocol
@pytest.mark.parametrize("kind", ["revoked", "lost"])
async def test_a_callback_is_told_where_its_partition_stood(
    protocol: GroupProtocol, kind: str
) -> None:
    listener = Asking()
    consumer = listener.consumer = Consumer(
        group_id="billing", listener=listener, group_protocol=protocol
    )

    @consumer.handler("orders")
    async def bill(order: bytes) -> None: ...

    orders = TopicPartition("orders", 0)
    async with TestConsumer(consumer, partitions=1) as t:
        for _ in range(3):
            await t.publish("orders", b"1")
        await t.advance(1)
        if kind == "revoked":
            await t.revoke(orders)
        else:
            await t.lose()
        await t.advance(0.15)
        assert listener.said[kind][orders] == 3
        if kind == "revoked":
            with pytest.raises(IllegalStateError, match="not assigned"):
                consumer.position(orders)
        await t.advance(10)
        (later,) = listener.afterwards
        if kind == "revoked":
            assert isinstance(later.exception(), IllegalStateError), "the callback has ended"
        else:
            assert later.result() == 3, "of the partition that is assigned again"


async def test_a_loop_that_has_read_in_part_stands_before_what_it_has_not_read() -> None:
    listener = Asking()
    consumer = listener.consumer = Consumer(
        "orders", group_id="billing", listener=listener, commit_mode="manual"
    )
    orders = TopicPartition("orders", 0)
    async with TestConsumer(consumer, partitions=1) as t:
        for _ in range(5):
            await t.publish("orders", b"1")
        batch = await consumer.poll(timeout=5, max_records=2)
        assert len(batch.records) == 2
        await consumer.aclose()
    assert listener.said["revoked"] == {orders: 2}
