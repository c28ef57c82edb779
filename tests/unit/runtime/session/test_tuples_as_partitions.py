"""A tuple of topic and partition is accepted wherever a TopicPartition is; mypy checks it too."""

from __future__ import annotations

from asyncrevoke import Consumer, OffsetAndMetadata, TopicPartition
from asyncrevoke.testing import TestConsumer

ORDERS = TopicPartition("orders", 0)


async def test_methods_of_a_consumer_take_tuples_as_partitions() -> None:
    consumer = Consumer("orders", group_id="billing", commit_mode="manual")
    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"a", timestamp=1000)
        assert len((await consumer.poll()).records) == 1
        consumer.pause(("orders", 0))
        consumer.resume(("orders", 0))
        assert consumer.position(("orders", 0)) == consumer.highwater(("orders", 0)) == 1
        assert consumer.last_stable_offset(("orders", 0)) == 1
        assert await consumer.beginning_offsets(("orders", 0)) == {ORDERS: 0}
        assert await consumer.end_offsets(("orders", 0)) == {ORDERS: 1}
        found = (await consumer.offsets_for_times({("orders", 0): 0}))[ORDERS]
        assert found is not None
        assert found.offset == 0
        await consumer.commit({("orders", 0): 1})
        assert await consumer.committed(("orders", 0)) == {ORDERS: OffsetAndMetadata(1)}
        await consumer.seek_to_beginning(("orders", 0))
        await consumer.seek_to_end(("orders", 0))
        consumer.seek(("orders", 0), 0)
        assert consumer.position(("orders", 0)) == 0


async def test_a_consumer_without_a_group_is_assigned_tuples() -> None:
    consumer = Consumer(group_id=None)
    async with TestConsumer(consumer, partitions=1, topics={"orders": 1}):
        consumer.assign([("orders", 0)])
        assert consumer.assignment() == {ORDERS}
