"""The first and last offsets of partitions, and the offsets of places between them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.client.core.metadata.topic import topic_id_text
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.printable import shown_option
from asyncrevoke.spark.reading.places import EARLIEST, LATEST, GroupOffsets, Place, offsets_by_topic

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.replays.ranges.range_consumer import RangeConsumer
    from asyncrevoke.spark.reading.topic_selection import TopicSelection


class LogBounds(NamedTuple):
    """The first offset and the end of each partition, for one isolation level.

    ``topic_ids`` has the selected topics that exist, with their ids (KIP-516) in the notation of
    Kafka's tools. An id is None if the broker has none.
    """

    topic_ids: Mapping[str, str | None]
    first: Mapping[TopicPartition, int]
    last: Mapping[TopicPartition, int]

    @classmethod
    async def of(cls, consumer: RangeConsumer, selection: TopicSelection) -> LogBounds:
        """Ask the brokers. Raises ConfigError if a topic of the selection does not exist."""
        known = await cls.of_existing(consumer, selection)
        missing = [name for name in selection.names if name not in known.topic_ids]
        if missing or not known.topic_ids:
            topic = selection._replace(names=tuple(missing[:1])) if missing else selection
            raise ConfigError(
                f"there is no {topic} at {', '.join(consumer.config.bootstrap_servers)}, "
                "or this user may not describe it: check the name and the address"
            )
        return known

    @classmethod
    async def of_existing(cls, consumer: RangeConsumer, selection: TopicSelection) -> LogBounds:
        """Like :meth:`of`, but skips topics that do not exist."""
        topics = await consumer.describe_topics(selection.described)
        numbers = selection.partitions_of(topics)
        partitions = [TopicPartition(name, number) for name in numbers for number in numbers[name]]
        if not partitions:
            return cls({}, {}, {})
        ranges = await consumer.offset_ranges(partitions)
        return cls(
            {name: shown_topic_id(topics[name].topic_id) for name in numbers},
            {tp: offsets.start for tp, offsets in ranges.items()},
            {tp: offsets.stop for tp, offsets in ranges.items()},
        )

    async def offsets(
        self, consumer: RangeConsumer, config: ConsumerConfig, place: Place, name: str
    ) -> Mapping[TopicPartition, int]:
        """The offset of a place in each partition."""
        if place == "earliest":
            return self.first
        if place == "latest":
            return self.last
        if isinstance(place, datetime):
            return await self._at_times(consumer, dict.fromkeys(self.first, place))
        if isinstance(place, GroupOffsets):
            return await self._committed(config, place, name)
        if isinstance(place, Mapping):
            return await self._by_partition(consumer, place, name)
        assert isinstance(place, int)
        return dict.fromkeys(self.first, place)

    async def _at_times(
        self, consumer: RangeConsumer, times: Mapping[TopicPartition, datetime]
    ) -> dict[TopicPartition, int]:
        found = await consumer.offsets_for_times(times)
        return {tp: self.last[tp] if (at := found.get(tp)) is None else at.offset for tp in times}

    async def _committed(
        self, config: ConsumerConfig, place: GroupOffsets, name: str
    ) -> dict[TopicPartition, int]:
        committed = await group_offsets(config, place.group_id)
        if not any(tp in committed for tp in self.first):
            raise ConfigError(
                f"group {shown_option(place.group_id)} has committed nothing for topic "
                f"{', '.join(map(shown_option, self.topic_ids))}: "
                f'check its name with `asyncrevoke groups`, or use {name}="earliest"'
            )
        return {tp: committed.get(tp, self.first[tp]) for tp in self.first}

    async def _by_partition(
        self,
        consumer: RangeConsumer,
        place: Mapping[int, int | datetime] | Mapping[str, Mapping[int, int | datetime]],
        name: str,
    ) -> dict[TopicPartition, int]:
        by_topic = offsets_by_topic(place, list(self.topic_ids), name)
        known: dict[str, set[int]] = {topic: set() for topic in self.topic_ids}
        for tp in self.first:
            known[tp.topic].add(tp.partition)
        for topic in sorted({*by_topic, *known}):
            if set(by_topic.get(topic, ())) != known.get(topic, set()):
                raise ConfigError(
                    f"{name}= names the partitions {sorted(by_topic.get(topic, ()))} of "
                    f"{shown_option(topic)}, and {sorted(known.get(topic, ()))} are read: give an "
                    "offset for each of them, -2 for the earliest and -1 for the latest"
                )
        given = {tp: by_topic[tp.topic][tp.partition] for tp in self.first}
        times = {tp: at for tp, at in given.items() if isinstance(at, datetime)}
        found = await self._at_times(consumer, times) if times else {}
        ends = {EARLIEST: self.first, LATEST: self.last}
        for tp, at in given.items():
            if not isinstance(at, datetime):
                found[tp] = ends[at][tp] if at in ends else at
        return found


def shown_topic_id(topic_id: bytes | None) -> str | None:
    """A topic id as Kafka's tools write it: URL-safe Base64 without padding."""
    return None if topic_id is None else topic_id_text(topic_id)


async def group_offsets(config: ConsumerConfig, group_id: str) -> dict[TopicPartition, int]:
    """The committed offsets of a group. Raises GroupsError."""
    # With the schemas of their requests, a tenth of what a process imports to plan a read.
    from asyncrevoke.client.groups.cluster import GroupsClient
    from asyncrevoke.client.groups.observer import committed_offsets

    async with GroupsClient(config) as cluster:
        return await committed_offsets(cluster, group_id)
