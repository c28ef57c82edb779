"""Requests about groups, in the versions of Apache Kafka 2.5 and newer."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from kio.schema.consumer_group_describe.v0 import request as describe_0
from kio.schema.consumer_group_describe.v0 import response as described_0
from kio.schema.describe_groups.v5.request import DescribeGroupsRequest
from kio.schema.describe_groups.v5.response import DescribeGroupsResponse
from kio.schema.list_groups.v3 import request as list_3
from kio.schema.list_groups.v3 import response as listed_3
from kio.schema.list_groups.v4 import request as list_4
from kio.schema.list_groups.v4 import response as listed_4
from kio.schema.list_groups.v5 import request as list_5
from kio.schema.list_groups.v5 import response as listed_5
from kio.schema.list_offsets.v5.request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kio.schema.list_offsets.v5.response import ListOffsetsResponse
from kio.schema.metadata.v8.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v8.response import MetadataResponse
from kio.schema.offset_commit.v8.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.offset_commit.v8.response import OffsetCommitResponse
from kio.schema.offset_fetch.v7.request import OffsetFetchRequest
from kio.schema.offset_fetch.v7.response import OffsetFetchResponse
from kio.schema.types import BrokerId, GroupId, TopicName
from kio.static.primitive import i8, i32, i64

from asyncrevoke.groups.kio_request import KioRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from asyncrevoke.model import TopicPartition

ListedGroups: TypeAlias = (
    listed_5.ListGroupsResponse | listed_4.ListGroupsResponse | listed_3.ListGroupsResponse
)

_LATEST = -1


def list_groups() -> KioRequest[ListedGroups]:
    """The groups that a broker coordinates; with states since 2.6, with types since 3.8."""
    return KioRequest(
        (list_5.ListGroupsRequest(), listed_5.ListGroupsResponse),
        (list_4.ListGroupsRequest(), listed_4.ListGroupsResponse),
        (list_3.ListGroupsRequest(), listed_3.ListGroupsResponse),
    )


def describe_classic(group: str) -> KioRequest[DescribeGroupsResponse]:
    """A classic group; asked of its coordinator."""
    request = DescribeGroupsRequest(groups=(GroupId(group),), include_authorized_operations=False)
    return KioRequest((request, DescribeGroupsResponse))


def describe_consumer_group(group: str) -> KioRequest[described_0.ConsumerGroupDescribeResponse]:
    """A group of KIP-848; asked of its coordinator."""
    request = describe_0.ConsumerGroupDescribeRequest(
        group_ids=(GroupId(group),), include_authorized_operations=False
    )
    return KioRequest((request, described_0.ConsumerGroupDescribeResponse))


def committed(group: str) -> KioRequest[OffsetFetchResponse]:
    """All that the group has committed; asked of its coordinator."""
    request = OffsetFetchRequest(group_id=GroupId(group), topics=None, require_stable=False)
    return KioRequest((request, OffsetFetchResponse))


def commit(group: str, offsets: Mapping[TopicPartition, int]) -> KioRequest[OffsetCommitResponse]:
    """Commit for a group without being its member; asked of its coordinator."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for tp, offset in sorted(offsets.items()):
        partition = OffsetCommitRequestPartition(
            partition_index=i32(tp.partition), committed_offset=i64(offset), committed_metadata=""
        )
        topics.setdefault(tp.topic, []).append(partition)
    request = OffsetCommitRequest(
        group_id=GroupId(group),
        generation_id_or_member_epoch=i32(-1),
        member_id="",
        topics=tuple(
            OffsetCommitRequestTopic(name=TopicName(name), partitions=tuple(partitions))
            for name, partitions in topics.items()
        ),
    )
    return KioRequest((request, OffsetCommitResponse))


def metadata(topics: Iterable[str]) -> KioRequest[MetadataResponse]:
    """Partitions and their leaders."""
    request = MetadataRequest(
        topics=tuple(MetadataRequestTopic(name=TopicName(name)) for name in topics),
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    return KioRequest((request, MetadataResponse))


def ends(partitions: Mapping[str, Sequence[int]]) -> KioRequest[ListOffsetsResponse]:
    """The ends of partitions; asked of their leader."""
    request = ListOffsetsRequest(
        replica_id=BrokerId(-1),
        isolation_level=i8(0),
        topics=tuple(
            ListOffsetsTopic(
                name=TopicName(topic),
                partitions=tuple(
                    ListOffsetsPartition(partition_index=i32(number), timestamp=i64(_LATEST))
                    for number in numbers
                ),
            )
            for topic, numbers in partitions.items()
        ),
    )
    return KioRequest((request, ListOffsetsResponse))
