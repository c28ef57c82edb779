"""Requests about groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kio.schema.alter_share_group_offsets.v0 import request as alter_share_0
from kio.schema.alter_share_group_offsets.v0 import response as altered_share_0
from kio.schema.consumer_group_describe.v0 import request as describe_0
from kio.schema.consumer_group_describe.v0 import response as described_0
from kio.schema.delete_groups.v2 import request as delete_2
from kio.schema.delete_groups.v2 import response as deleted_2
from kio.schema.delete_share_group_offsets.v0 import request as delete_share_0
from kio.schema.delete_share_group_offsets.v0 import response as deleted_share_0
from kio.schema.describe_groups.v5 import request as describe_5
from kio.schema.describe_groups.v5 import response as described_5
from kio.schema.describe_share_group_offsets.v1 import request as share_offsets_1
from kio.schema.describe_share_group_offsets.v1 import response as shared_offsets_1
from kio.schema.list_groups.v5 import request as list_5
from kio.schema.list_groups.v5 import response as listed_5
from kio.schema.share_group_describe.v1 import request as describe_share_1
from kio.schema.share_group_describe.v1 import response as described_share_1

from asyncrevoke.client.protocol.messages import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    CommitEntry,
    Entities,
    EntityRequest,
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetQuery,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from asyncrevoke.client.model import TopicPartition


class ListGroupsRequest(EntityRequest[listed_5.ListGroupsResponse], frozen=True, kw_only=True):
    """The groups that a broker coordinates; with states since 2.6, with types since 3.8. The state
    and type that a broker does not say are empty."""

    entities: ClassVar[Entities] = (list_5.ListGroupsRequest, listed_5.ListGroupsResponse)


class DescribeGroupsRequest(
    EntityRequest[described_5.DescribeGroupsResponse], frozen=True, kw_only=True
):
    """Classic groups; sent to their coordinator."""

    entities: ClassVar[Entities] = (
        describe_5.DescribeGroupsRequest,
        described_5.DescribeGroupsResponse,
    )
    groups: tuple[str, ...]
    include_authorized_operations: bool = False


class ConsumerGroupDescribeRequest(
    EntityRequest[described_0.ConsumerGroupDescribeResponse], frozen=True, kw_only=True
):
    """Groups of KIP-848; sent to their coordinator."""

    entities: ClassVar[Entities] = (
        describe_0.ConsumerGroupDescribeRequest,
        described_0.ConsumerGroupDescribeResponse,
    )
    group_ids: tuple[str, ...]
    include_authorized_operations: bool = False


class ShareGroupDescribeRequest(
    EntityRequest[described_share_1.ShareGroupDescribeResponse], frozen=True, kw_only=True
):
    """Share groups (KIP-932); sent to their coordinator."""

    entities: ClassVar[Entities] = (
        describe_share_1.ShareGroupDescribeRequest,
        described_share_1.ShareGroupDescribeResponse,
    )
    group_ids: tuple[str, ...]
    include_authorized_operations: bool = False


class DescribeShareGroupOffsetsRequest(
    EntityRequest[shared_offsets_1.DescribeShareGroupOffsetsResponse], frozen=True, kw_only=True
):
    """Start offsets of share groups, and their lag; sent to their coordinator. A lag of -1 is not
    known."""

    entities: ClassVar[Entities] = (
        share_offsets_1.DescribeShareGroupOffsetsRequest,
        shared_offsets_1.DescribeShareGroupOffsetsResponse,
    )
    groups: tuple[share_offsets_1.DescribeShareGroupOffsetsRequestGroup, ...]


class AlterShareGroupOffsetsRequest(
    EntityRequest[altered_share_0.AlterShareGroupOffsetsResponse], frozen=True, kw_only=True
):
    """Sets start offsets of a share group without members; sent to its coordinator."""

    entities: ClassVar[Entities] = (
        alter_share_0.AlterShareGroupOffsetsRequest,
        altered_share_0.AlterShareGroupOffsetsResponse,
    )
    group_id: str
    topics: tuple[alter_share_0.AlterShareGroupOffsetsRequestTopic, ...]


class DeleteShareGroupOffsetsRequest(
    EntityRequest[deleted_share_0.DeleteShareGroupOffsetsResponse], frozen=True, kw_only=True
):
    """Deletes the offsets of topics of a share group without members; sent to its coordinator."""

    entities: ClassVar[Entities] = (
        delete_share_0.DeleteShareGroupOffsetsRequest,
        deleted_share_0.DeleteShareGroupOffsetsResponse,
    )
    group_id: str
    topics: tuple[delete_share_0.DeleteShareGroupOffsetsRequestTopic, ...]


class DeleteGroupsRequest(EntityRequest[deleted_2.DeleteGroupsResponse], frozen=True, kw_only=True):
    """Deletes groups without members, with their offsets; sent to their coordinator."""

    entities: ClassVar[Entities] = (delete_2.DeleteGroupsRequest, deleted_2.DeleteGroupsResponse)
    groups_names: tuple[str, ...]


def committed(group: str) -> OffsetFetchRequest:
    """All offsets that the group has committed; sent to its coordinator."""
    return OffsetFetchRequest(
        group_id=group, partitions=(), all_partitions=True, require_stable=False
    )


def commit(group: str, offsets: Mapping[TopicPartition, int]) -> OffsetCommitRequest:
    """Commit for a group without being its member; sent to its coordinator."""
    entries = [CommitEntry(partition=tp, offset=at) for tp, at in sorted(offsets.items())]
    return OffsetCommitRequest(
        group_id=group, generation=-1, member_id="", group_instance_id=None, entries=tuple(entries)
    )


def ends(partitions: Iterable[TopicPartition]) -> ListOffsetsRequest:
    """The end offsets of partitions; sent to their leader."""
    return offsets_at(partitions, LATEST_TIMESTAMP)


def starts(partitions: Iterable[TopicPartition]) -> ListOffsetsRequest:
    """The first offsets of partitions; sent to their leader."""
    return offsets_at(partitions, EARLIEST_TIMESTAMP)


def offsets_at(partitions: Iterable[TopicPartition], timestamp: int) -> ListOffsetsRequest:
    """The first offsets of records from a time on, in milliseconds since the epoch; sent to their
    leader."""
    return ListOffsetsRequest(
        queries=tuple(OffsetQuery(partition=tp, timestamp=timestamp) for tp in partitions)
    )
