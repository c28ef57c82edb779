"""Asks the leaders of partitions for offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from asyncrevoke.client.groups.errors import GroupsError
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from asyncrevoke.client.groups.cluster import GroupsClient


async def leaders(brokers: GroupsClient, topics: Iterable[str]) -> dict[TopicPartition, int]:
    """The broker that leads each partition, below 0 if none does."""
    names = sorted(topics)
    if not names:
        return {}
    response = await brokers.metadata(names)
    return {
        TopicPartition(topic.name, partition.partition): partition.leader_id
        for topic in response.topics
        if topic.error is ErrorCode.none
        for partition in topic.partitions
    }


async def listed_offsets(
    brokers: GroupsClient,
    led_by: Mapping[TopicPartition, int],
    request: Callable[[Iterable[TopicPartition]], messages.ListOffsetsRequest],
) -> dict[TopicPartition, int]:
    """The offsets that ``request`` asks for, of the partitions that have a leader which responds;
    the lag of the others is not known."""
    known = brokers.brokers()
    by_leader: dict[int, list[TopicPartition]] = {}
    for tp, leader in led_by.items():
        if leader in known:
            by_leader.setdefault(leader, []).append(tp)
    found: dict[TopicPartition, int] = {}
    for leader, partitions in by_leader.items():
        try:
            response = await brokers.send(leader, request(partitions), messages.ListOffsetsResponse)
        except GroupsError:
            continue
        found |= {
            offset.partition: offset.offset
            for offset in response.offsets
            if offset.error is ErrorCode.none
        }
    return found
