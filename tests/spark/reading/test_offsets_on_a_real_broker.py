"""Ranges of a real topic, with an open transaction and records that retention has removed."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.spark.errors import DataLossError
from asyncrevoke.spark.reading.offsets import begin_at_time, find_ranges, resolve_ranges
from asyncrevoke.spark.reading.places import GroupOffsets
from asyncrevoke.spark.reading.topic_selection import TopicSelection

if TYPE_CHECKING:
    from asyncrevoke.broker import RunningBroker
    from asyncrevoke.spark.reading.places import Place

pytestmark = [pytest.mark.broker, pytest.mark.kafka_topic(partitions=2)]


async def produce(broker: RunningBroker, topic: str, count: int) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for n in range(count):
            await producer.send(topic, b"%d" % n, partition=n % 2, timestamp_ms=1000 * n)


async def test_places_are_found_by_end_offset_and_time(
    kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    await produce(kafka_broker, kafka_topic, 20)
    address = kafka_broker.bootstrap_servers

    def spans(**places: object) -> list[tuple[int, int]]:
        return [(r.start, r.end) for r in resolve_ranges(address, kafka_topic, **places)]  # type: ignore[arg-type]

    assert spans() == [(0, 10), (0, 10)]
    assert spans(start=3, end={0: 5, 1: 6}) == [(3, 5), (3, 6)]
    moment = datetime.fromtimestamp(9, UTC)  # the record of 9 s is the fifth of partition 1
    assert spans(start=moment) == [(5, 10), (4, 10)]
    assert spans(end=moment) == [(0, 5), (0, 4)]
    assert spans(start=datetime.fromtimestamp(10**6, UTC)) == [(10, 10), (10, 10)]
    assert spans(start={0: -1, 1: -2}, end={0: -1, 1: 3}) == [(10, 10), (0, 3)]
    assert spans(start={kafka_topic: {0: moment, 1: 7}}) == [(5, 10), (7, 10)]
    everything = resolve_ranges(address, kafka_topic)
    assert {each.topic_id for each in everything} != {None}
    config = ConsumerConfig(bootstrap_servers=address)
    filtered = await begin_at_time(config, everything, 10**9)  # 1970-01-12
    assert [(r.start, r.end) for r in filtered] == [(10, 10), (10, 10)]
    with pytest.raises(ConfigError, match=r"names the partitions \[0\] .* \[0, 1\] are read"):
        spans(start={0: 1})
    with pytest.raises(ConfigError, match=r"names the partitions \[0\] of 'other', and \[\] are"):
        spans(start={"other": {0: 1}, kafka_topic: {0: 1, 1: 1}})


async def test_several_topics_are_planned_at_once(
    kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    other = f"{kafka_topic}-b"
    await asyncio.to_thread(kafka_broker.create_topic, other, 1)
    await produce(kafka_broker, kafka_topic, 20)
    config = ConsumerConfig(bootstrap_servers=kafka_broker.bootstrap_servers)

    async def spans(topics: TopicSelection, **places: Place) -> list[tuple[str, int, int, int]]:
        found = await find_ranges(
            config, topics, places.get("start", "earliest"), places.get("end", "latest")
        )
        return [candidate[:4] for candidate in found]

    everything = [(kafka_topic, 0, 0, 10), (kafka_topic, 1, 0, 10), (other, 0, 0, 0)]
    assert await spans(TopicSelection((other, kafka_topic))) == everything
    assert await spans(TopicSelection(pattern=f"{kafka_topic}.*")) == everything
    assert await spans(TopicSelection((kafka_topic,), None, {kafka_topic: (1,)})) == everything[1:2]
    places: Place = {kafka_topic: {0: 4, 1: -1}, other: {0: -2}}
    assert await spans(TopicSelection((other, kafka_topic)), start=places) == [
        (kafka_topic, 0, 4, 10),
        (kafka_topic, 1, 10, 10),
        (other, 0, 0, 0),
    ]
    with pytest.raises(ConfigError, match="2 topics are read: give offsets by topic"):
        await spans(TopicSelection((other, kafka_topic)), start={0: 1})
    with pytest.raises(ConfigError, match="there is no topic that matches 'nothing'"):
        await spans(TopicSelection(pattern="nothing"))
    with pytest.raises(ConfigError, match="there is no topic 'nowhere'"):
        await spans(TopicSelection((kafka_topic, "nowhere")))


async def commit(address: str, topic: str, offset: int) -> None:
    """Commit an offset of the first partition, for the group with the topic's name."""
    partition = TopicPartition(topic, 0)
    member = AIOKafkaConsumer(bootstrap_servers=address, group_id=topic, enable_auto_commit=False)
    async with member:
        member.assign([partition])
        await member.commit({partition: offset})


async def test_a_range_begins_at_the_committed_offset_of_a_group(
    kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    await produce(kafka_broker, kafka_topic, 20)
    address = kafka_broker.bootstrap_servers
    await commit(address, kafka_topic, 7)
    ranges = resolve_ranges(address, kafka_topic, start=GroupOffsets(kafka_topic))
    assert [(r.start, r.end) for r in ranges] == [(7, 10), (0, 10)]
    with pytest.raises(ConfigError, match="has committed nothing"):
        resolve_ranges(address, kafka_topic, start=GroupOffsets("nobody-" + kafka_topic))


@pytest.mark.parametrize(
    ("places", "sentence"),
    [
        ({"start": 1_793_000_000_000}, "epoch milliseconds use start=2026-10-26T"),
        ({"end": 1_793_000_000_000}, "epoch milliseconds use end=2026-10-26T"),
        ({"start": {0: 0, 1: 11}}, r'-1 ends at offset 10: use start="latest"'),
        ({"start": 5, "end": 3}, "start=5 is after end=3"),
        ({"start": {0: 2, 1: 6}, "end": {0: 9, 1: 4}}, "start=6 is offset 6 of .*-1, after end=4"),
        ({"end": 5000}, r'end=5000 is an offset, and .*-0 ends at offset 10: use end="latest"'),
        ({"end": {0: 10, 1: 11}}, r"end=11 is an offset, and .*-1 ends at offset 10"),
        ({"end": "earliest"}, "no record is before the earliest offset"),
    ],
)
async def test_places_between_which_no_record_can_lie_get_a_sentence(
    kafka_broker: RunningBroker, kafka_topic: str, places: dict[str, Place], sentence: str
) -> None:
    await produce(kafka_broker, kafka_topic, 20)
    with pytest.raises(ConfigError, match=sentence):
        resolve_ranges(kafka_broker.bootstrap_servers, kafka_topic, **places)  # type: ignore[arg-type]


async def test_a_group_with_commits_beyond_the_end_of_the_log_is_an_error(
    kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    await produce(kafka_broker, kafka_topic, 20)
    address = kafka_broker.bootstrap_servers
    await commit(address, kafka_topic, 17)
    with pytest.raises(DataLossError, match=r"offset 17 of .*-0, which ends at offset 10"):
        resolve_ranges(address, kafka_topic, start=GroupOffsets(kafka_topic))


async def test_a_range_ends_where_an_open_transaction_begins(
    kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    await produce(kafka_broker, kafka_topic, 4)
    address = kafka_broker.bootstrap_servers
    producer = AIOKafkaProducer(bootstrap_servers=address, transactional_id=kafka_topic)
    async with producer, producer.transaction():
        await (await producer.send(kafka_topic, b"open", partition=0))
        assert [r.end for r in resolve_ranges(address, kafka_topic)] == [2, 2]
        first, second = resolve_ranges(address, kafka_topic, end=3)
        assert (first.end, first.unstable) == (2, 1)
        assert (second.end, second.unstable) == (2, 1)
        at_open = resolve_ranges(address, kafka_topic, start={0: 3, 1: 2})
        assert [each.size for each in at_open] == [0, 0]
        uncommitted = resolve_ranges(address, kafka_topic, isolation_level="read_uncommitted")
        assert [r.end for r in uncommitted] == [3, 2]


async def test_without_an_error_a_range_ends_where_its_log_does(
    kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    await produce(kafka_broker, kafka_topic, 20)
    address = kafka_broker.bootstrap_servers
    for end in (5000, {0: 5000, 1: 11}):
        ranges = resolve_ranges(address, kafka_topic, end=end, missing="clip")
        assert [(offset_range.start, offset_range.end) for offset_range in ranges] == [
            (0, 10),
            (0, 10),
        ]


async def test_a_start_offset_below_the_log_start_is_an_error_or_reported(
    kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    await produce(kafka_broker, kafka_topic, 20)
    address = kafka_broker.bootstrap_servers
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    try:
        await admin.delete_records({TopicPartition(kafka_topic, 0): RecordsToDelete(6)})
    finally:
        await admin.close()
    with pytest.raises(DataLossError, match="begins at offset 6, and 4 offsets before it"):
        resolve_ranges(address, kafka_topic, start=2)
    first, second = resolve_ranges(address, kafka_topic, start=2, missing="clip")
    assert (first.start, first.missing) == (6, 4)
    assert (second.start, second.missing) == (2, 0)


def test_a_topic_that_is_not_there_gets_a_sentence(kafka_broker: RunningBroker) -> None:
    with pytest.raises(ConfigError, match="there is no topic 'no-such-topic'"):
        resolve_ranges(kafka_broker.bootstrap_servers, "no-such-topic")
