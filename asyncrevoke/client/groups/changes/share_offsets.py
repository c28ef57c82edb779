"""Sets and deletes the start offsets of share groups without members (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.alter_share_group_offsets.v0.request import (
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kio.schema.delete_share_group_offsets.v0.request import DeleteShareGroupOffsetsRequestTopic
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i32, i64

from asyncrevoke.client.groups import requests
from asyncrevoke.client.groups.errors import GroupsError, NoGroupError, retry_transient_errors
from asyncrevoke.client.groups.observer import describe_group
from asyncrevoke.client.groups.share_groups import check_share, describe_share_group
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.printable import printable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from asyncrevoke.client.groups.cluster import GroupsClient
    from asyncrevoke.client.groups.facts import ShareGroupFacts, SharePartitionFacts

_TO_ALTER: Final = "READ on the group and its topics"
_TO_DELETE: Final = "DELETE on the group and READ on its topics"


async def set_start_offsets(
    brokers: GroupsClient, name: str, offsets: Mapping[TopicPartition, int]
) -> None:
    """Set the start offsets of a share group, which brokers create if it does not exist. Raises
    GroupsError, which names the partitions that were not set."""
    by_topic: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = {}
    for tp, offset in offsets.items():
        partition = AlterShareGroupOffsetsRequestPartition(
            partition_index=i32(tp.partition), start_offset=i64(offset)
        )
        by_topic.setdefault(tp.topic, []).append(partition)
    request = requests.AlterShareGroupOffsetsRequest(
        group_id=name,
        topics=tuple(
            AlterShareGroupOffsetsRequestTopic(
                topic_name=TopicName(topic), partitions=tuple(partitions)
            )
            for topic, partitions in by_topic.items()
        ),
    )

    async def ask() -> Mapping[str, tuple[ErrorCode, str | None]]:
        response = await brokers.ask(await brokers.coordinator(name), request)
        _check(response.error_code, name, _TO_ALTER)
        return {
            str(TopicPartition(topic.topic_name, int(partition.partition_index))): (
                partition.error_code,
                partition.error_message,
            )
            for topic in response.responses
            for partition in topic.partitions
        }

    _check_each(await retry_transient_errors(ask), list(map(str, offsets)), "were not set")


async def offsets_of_topics(
    brokers: GroupsClient, name: str, topics: Collection[str]
) -> Sequence[SharePartitionFacts]:
    """The partitions of these topics that a share group has offsets of. Raises GroupsError, also
    for a topic that it has none of."""
    group = await _share_group(brokers, name)
    if group.members:
        _check(ErrorCode.non_empty_group, name, _TO_DELETE)
    found = [partition for partition in group.partitions if partition.topic in topics]
    if missing := sorted(set(topics) - {partition.topic for partition in found}):
        raise GroupsError(f"group {name!r} has no offsets of {', '.join(missing)}")
    return found


async def delete_offsets(brokers: GroupsClient, name: str, topics: Iterable[str]) -> None:
    """Delete the offsets of topics. Raises GroupsError, which names the topics whose offsets were
    not deleted."""
    wanted = sorted(topics)
    request = requests.DeleteShareGroupOffsetsRequest(
        group_id=name,
        topics=tuple(
            DeleteShareGroupOffsetsRequestTopic(topic_name=TopicName(topic)) for topic in wanted
        ),
    )

    async def ask() -> Mapping[str, tuple[ErrorCode, str | None]]:
        response = await brokers.ask(await brokers.coordinator(name), request)
        _check(response.error_code, name, _TO_DELETE)
        return {
            topic.topic_name: (topic.error_code, topic.error_message)
            for topic in response.responses
        }

    _check_each(await retry_transient_errors(ask), wanted, "were not deleted")


async def _share_group(brokers: GroupsClient, name: str) -> ShareGroupFacts:
    """Raises GroupsError."""
    try:
        return await describe_share_group(brokers, name)
    except NoGroupError:
        other = await describe_group(brokers, name)
        raise GroupsError(
            f"{name!r} is no share group but a {other.type} group: change its offsets with "
            "asyncrevoke groups reset-offsets"
        ) from None


def _check(code: ErrorCode, name: str, right: str) -> None:
    if code is ErrorCode.non_empty_group:
        raise GroupsError(
            f"group {name!r} has members: stop them first, as a broker changes the offsets of a "
            "share group only while it is empty"
        )
    check_share(code, f"changing the offsets of group {name!r}", right)


def _check_each(
    results: Mapping[str, tuple[ErrorCode, str | None]], wanted: Sequence[str], what: str
) -> None:
    """Raise GroupsError with those that were not changed, or that the response lacks."""
    failed: list[str] = []
    for each in wanted:
        code, message = results.get(each, (None, "the broker did not respond about it"))
        if code is None or code is not ErrorCode.none:
            name = "" if code is None else f"{code.name}: "
            failed.append(f"{each} ({name}{printable(message or 'no text')})")
    if failed:
        raise GroupsError(f"offsets of {', '.join(failed)} {what}")
