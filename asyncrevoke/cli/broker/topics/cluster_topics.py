"""Describes the topics of a cluster."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec
from kio.schema.describe_configs.v1 import request as describe_configs
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v13 import request as metadata_13
from kio.schema.metadata.v13 import response as described_13
from kio.schema.types import TopicName

from asyncrevoke.client.groups import requests
from asyncrevoke.client.groups.cluster import check
from asyncrevoke.client.groups.configs import TOPIC, DescribeConfigsRequest
from asyncrevoke.client.groups.errors import GroupsError
from asyncrevoke.client.groups.partition_offsets import listed_offsets
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.printable import printable
from asyncrevoke.client.protocol.messages import Entities, EntityRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asyncrevoke.client.groups.cluster import GroupsClient

# org.apache.kafka.common.requests.DescribeConfigsResponse.ConfigSource
_SET_ON_TOPIC: Final = 1
_NO_ID: Final = uuid.UUID(int=0)


class MetadataRequest(EntityRequest[described_13.MetadataResponse], frozen=True, kw_only=True):
    """Topics with all that a broker says of them; None: all topics."""

    entities: ClassVar[Entities] = (metadata_13.MetadataRequest, described_13.MetadataResponse)
    topics: tuple[metadata_13.MetadataRequestTopic, ...] | None
    allow_auto_topic_creation: bool = False
    include_topic_authorized_operations: bool = False


class TopicSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One topic among all. ``replicas`` is the largest number of copies of a partition.
    ``offline`` is how many partitions have no leader, ``behind`` how many have a replica that is
    not in sync with its leader."""

    topic: str
    partitions: int
    replicas: int
    offline: int
    behind: int
    internal: bool


class PartitionReplicas(msgspec.Struct, frozen=True, kw_only=True):
    """A partition. ``leader`` is None if it has none. ``start`` and ``end`` are the first offset of
    its log and the one of the next record, None if its leader does not respond."""

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    start: int | None
    end: int | None


class TopicFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A topic. ``topic_id`` is None before Apache Kafka 2.8. ``config`` has what is set on the
    topic itself; None: the user may not describe it (DESCRIBE_CONFIGS)."""

    topic: str
    topic_id: str | None
    internal: bool
    partitions: tuple[PartitionReplicas, ...]
    config: dict[str, str | None] | None


async def list_topics(brokers: GroupsClient, *, internal: bool = False) -> list[TopicSummary]:
    """All topics that the user may describe, by name; ``internal``: those of Kafka too. Raises
    GroupsError."""
    response = await brokers.ask_any(MetadataRequest(topics=None))
    return [
        TopicSummary(
            topic=str(topic.name),
            partitions=len(topic.partitions),
            replicas=max((len(each.replica_nodes) for each in topic.partitions), default=0),
            offline=sum(each.leader_id < 0 for each in topic.partitions),
            behind=sum(len(each.isr_nodes) < len(each.replica_nodes) for each in topic.partitions),
            internal=topic.is_internal,
        )
        for topic in sorted(response.topics, key=lambda topic: str(topic.name))
        if topic.error_code is ErrorCode.none and (internal or not topic.is_internal)
    ]


async def describe_topics(brokers: GroupsClient, names: Sequence[str]) -> list[TopicFacts]:
    """These topics, in the same order. Raises GroupsError, also if one of them does not exist."""
    wanted = tuple(
        metadata_13.MetadataRequestTopic(topic_id=None, name=TopicName(name)) for name in names
    )
    response = await brokers.ask_any(MetadataRequest(topics=wanted))
    found = {str(topic.name): topic for topic in response.topics}
    for name in names:
        _check_topic(found.get(name), name)
    led_by = {
        TopicPartition(name, int(each.partition_index)): int(each.leader_id)
        for name in names
        for each in found[name].partitions
    }
    starts = await listed_offsets(brokers, led_by, requests.starts)
    ends = await listed_offsets(brokers, led_by, requests.ends)
    configs = await _configs(brokers, names)
    return [_facts(found[name], starts, ends, configs.get(name)) for name in names]


def _check_topic(topic: described_13.MetadataResponseTopic | None, name: str) -> None:
    if topic is None or topic.error_code is ErrorCode.unknown_topic_or_partition:
        raise GroupsError(f"there is no topic {name!r}, or this user may not describe it")
    if topic.error_code is not ErrorCode.leader_not_available:
        check(topic.error_code, f"describing topic {name!r}")


def _facts(
    topic: described_13.MetadataResponseTopic,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    config: dict[str, str | None] | None,
) -> TopicFacts:
    name = str(topic.name)
    partitions: list[PartitionReplicas] = []
    for each in sorted(topic.partitions, key=lambda each: each.partition_index):
        tp = TopicPartition(name, int(each.partition_index))
        partitions.append(
            PartitionReplicas(
                partition=tp.partition,
                leader=int(each.leader_id) if each.leader_id >= 0 else None,
                replicas=tuple(map(int, each.replica_nodes)),
                in_sync=tuple(map(int, each.isr_nodes)),
                start=starts.get(tp),
                end=ends.get(tp),
            )
        )
    known = topic.topic_id not in (None, _NO_ID)
    return TopicFacts(
        topic=name,
        topic_id=str(topic.topic_id) if known else None,
        internal=topic.is_internal,
        partitions=tuple(partitions),
        config=config,
    )


async def _configs(brokers: GroupsClient, names: Sequence[str]) -> dict[str, dict[str, str | None]]:
    """What is set on each topic; nothing of topics whose configuration the user may not see."""
    resources = tuple(
        describe_configs.DescribeConfigsResource(
            resource_type=TOPIC, resource_name=name, configuration_keys=None
        )
        for name in names
    )
    response = await brokers.ask_any(DescribeConfigsRequest(resources=resources))
    configs: dict[str, dict[str, str | None]] = {}
    for result in response.results:
        if result.error_code is ErrorCode.none:
            configs[result.resource_name] = {
                option.name: option.value
                for option in sorted(result.configs, key=lambda option: option.name)
                if option.config_source == _SET_ON_TOPIC
            }
        elif result.error_code is not ErrorCode.topic_authorization_failed:
            reason = f": {printable(result.error_message)}" if result.error_message else ""
            raise GroupsError(
                f"the configuration of topic {result.resource_name!r}: the broker returned "
                f"{result.error_code.name}{reason}"
            )
    return configs
