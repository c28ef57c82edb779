"""How many bytes the records of partitions take, as brokers report the sizes of logs (KIP-113)."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, ClassVar

from kio.schema.describe_log_dirs.v1 import request as describe
from kio.schema.describe_log_dirs.v1 import response as described
from kio.schema.types import TopicName
from kio.static.primitive import i32

from asyncrevoke.client.groups.cluster import GroupsClient
from asyncrevoke.client.groups.errors import GroupsError
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.messages import Entities, EntityRequest, ErrorCode
from asyncrevoke.replays.ranges.range_consumer import consumer_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from asyncrevoke.client.config import ConsumerConfig


class DescribeLogDirsRequest(
    EntityRequest[described.DescribeLogDirsResponse], frozen=True, kw_only=True
):
    """Requests the sizes of the logs that a broker has of these partitions."""

    entities: ClassVar[Entities] = (
        describe.DescribeLogDirsRequest,
        described.DescribeLogDirsResponse,
    )
    topics: tuple[describe.DescribableLogDirTopic, ...]


async def bytes_per_offset(
    config: ConsumerConfig,
    partitions: Iterable[TopicPartition],
    logs: Mapping[TopicPartition, range] | None = None,
) -> dict[TopicPartition, float]:
    """The mean number of bytes of each offset, from the size of the log at the partition's leader:
    compressed, and without segments that were moved to remote storage. ``logs`` are the offsets of
    the logs; None: ask for them.

    Empty if the leaders do not report the sizes of all partitions, for which the user needs
    DESCRIBE on the cluster, or do not respond.
    """
    wanted = sorted(set(partitions))
    if logs is None:
        async with consumer_of(config) as consumer:
            logs = await consumer.offset_ranges(wanted)
    try:
        async with GroupsClient(config) as brokers:
            sizes = await _sizes(brokers, wanted)
    except GroupsError:
        return {}  # the sizes are of use, and not needed
    if not sizes.keys() >= set(wanted):
        return {}
    return {tp: sizes[tp] / max(1, len(logs[tp])) for tp in wanted}


async def _sizes(
    brokers: GroupsClient, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """The bytes of the logs of these partitions. Raises GroupsError."""
    metadata = await brokers.metadata(sorted({tp.topic for tp in partitions}))
    wanted = set(partitions)
    by_leader: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for topic in metadata.topics:
        for partition in topic.partitions:
            if TopicPartition(topic.name, partition.partition) in wanted:
                by_leader[partition.leader_id][topic.name].append(partition.partition)
    sizes: dict[TopicPartition, int] = {}
    for leader, numbers in by_leader.items():
        request = DescribeLogDirsRequest(
            topics=tuple(
                describe.DescribableLogDirTopic(
                    topic=TopicName(name), partitions=tuple(map(i32, some))
                )
                for name, some in numbers.items()
            )
        )
        for folder in (await brokers.ask(leader, request)).results:
            if folder.error_code is not ErrorCode.none:
                continue  # its partitions are then missing
            for found in folder.topics:
                for log in found.partitions:
                    if not log.is_future_key:  # a copy that is being moved to another folder
                        sizes[TopicPartition(found.name, log.partition_index)] = log.partition_size
    return sizes
