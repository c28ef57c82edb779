"""Reads what responses about groups of several types have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, TypeVar

from asyncrevoke.client.groups.errors import GroupsError
from asyncrevoke.client.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kio.schema.consumer_group_describe.v0 import response as of_consumers
    from kio.schema.describe_groups.v5 import response as of_classic
    from kio.schema.describe_share_group_offsets.v1 import response as share_offsets
    from kio.schema.share_group_describe.v1 import response as of_share

    Described = TypeVar(
        "Described",
        of_classic.DescribedGroup,
        of_consumers.DescribedGroup,
        of_share.DescribedGroup,
        share_offsets.DescribeShareGroupOffsetsResponseGroup,
    )

Partitions: TypeAlias = tuple[TopicPartition, ...]


def described_group(groups: Sequence[Described], name: str) -> Described:
    """The described group of this name. Raises GroupsError if the response has another one."""
    if [group.group_id for group in groups] != [name]:
        raise GroupsError(
            f"the broker has responded with {len(groups)} groups when asked for {name!r} alone"
        )
    return groups[0]


def assigned_partitions(assignment: of_consumers.Assignment | of_share.Assignment) -> Partitions:
    """The partitions of an assignment, sorted."""
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, int(number))
            for topic in assignment.topic_partitions
            for number in topic.partitions
        )
    )


def host_name(host: str) -> str:
    """A member's host without the slash that Java writes before it."""
    return host.removeprefix("/")
