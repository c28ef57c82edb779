"""Transactions with offsets of a group, as librdkafka reads records and offsets."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from broker.requests.read_committed import PARTITIONS, read_committed
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import TopicPartition as ConfluentPartition

from asyncrevoke import Consumer
from asyncrevoke.broker import KafkaBroker
from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.model import GroupMetadata, TopicPartition
from asyncrevoke.client.producing.message import PublishedRecord
from asyncrevoke.client.producing.publishing.producer import ProducerWithOwnConnections
from asyncrevoke.client.producing.transactions.group_offsets import (
    GroupOffsets,
    OffsetsRejectedError,
)
from asyncrevoke.client.protocol.messages import CommitEntry, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncrevoke.client.config import GroupProtocol

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

VERSIONS = [2, 1, pytest.param(0, marks=pytest.mark.variant)]


@pytest.fixture(scope="module", params=VERSIONS)
def broker(request: pytest.FixtureRequest) -> Iterator[KafkaBroker]:
    with KafkaBroker(features={"transaction.version": request.param}) as broker:
        yield broker


def committed(broker: KafkaBroker, group_id: str, topic: str) -> list[int]:
    """The offsets of the group, without those of open transactions; -1001 if there is none."""
    reader = ConfluentConsumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group_id,
            "isolation.level": "read_committed",
        }
    )
    try:
        partitions = [ConfluentPartition(topic, number) for number in range(PARTITIONS)]
        return [found.offset for found in reader.committed(partitions, timeout=20.0)]
    finally:
        reader.close()


def offsets(identity: GroupMetadata, topic: str, *numbers: int) -> GroupOffsets:
    entries = (
        CommitEntry(partition=TopicPartition(topic, partition), offset=offset, metadata="map")
        for partition, offset in enumerate(numbers)
    )
    return GroupOffsets(identity, tuple(entries))


@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
async def test_records_and_offsets_of_a_member_are_visible_together_or_not_at_all(
    broker: KafkaBroker, group_protocol: GroupProtocol
) -> None:
    source, target, group_id = (f"{name}-{group_protocol}" for name in ("in", "out", "group"))
    for topic in (source, target):
        broker.create_topic(topic, PARTITIONS)
    servers = broker.bootstrap_servers
    none = -1001

    def records(*values: bytes) -> list[PublishedRecord]:
        return [PublishedRecord(target, None, value, value, [], None) for value in values]

    own = ProducerWithOwnConnections(
        ConsumerConfig(bootstrap_servers=servers), transactional_id=group_id
    )
    consumer = Consumer(
        source,
        bootstrap_servers=servers,
        group_id=group_id,
        group_protocol=group_protocol,
        commit_mode="manual",
    )
    async with own as producer, consumer:
        while len(consumer.assignment()) < PARTITIONS:
            await consumer.poll(timeout=0.5)
        member = consumer.group_metadata()
        assert member.generation > 0
        await producer.commit_transaction(records(b"a", b"b"), offsets(member, source, 1, 2))
        assert committed(broker, group_id, source) == [1, 2, none]
        await producer.commit_transaction([], offsets(member, source, 3))
        assert committed(broker, group_id, source) == [3, 2, none]
        stale = member._replace(generation=member.generation + 1)
        with pytest.raises(OffsetsRejectedError) as raised:
            await producer.commit_transaction(records(b"c"), offsets(stale, source, 9, 9, 9))
        assert set(raised.value.errors.values()) == {ErrorCode.illegal_generation}
        assert len(raised.value.errors) == PARTITIONS
        too_large = offsets(member, source, 8, 8)
        large = CommitEntry(partition=TopicPartition(source, 2), offset=8, metadata="x" * 5000)
        with pytest.raises(OffsetsRejectedError) as raised:
            await producer.commit_transaction(
                records(b"d"), too_large._replace(entries=(*too_large.entries, large))
            )
        assert raised.value.errors == {large.partition: ErrorCode.offset_metadata_too_large}
        assert committed(broker, group_id, source) == [3, 2, none]
        await producer.commit_transaction(records(b"e"), offsets(member, source, 4, 4, 4))
    assert committed(broker, group_id, source) == [4, 4, 4]
    assert read_committed(broker, target) == Counter([b"a", b"b", b"e"])
