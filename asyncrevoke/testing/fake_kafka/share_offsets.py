"""What the coordinator of a share group tells of its start offsets and lags."""

from __future__ import annotations

from datetime import timedelta
from itertools import groupby
from typing import TYPE_CHECKING

from kio.schema.describe_share_group_offsets.v1.response import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i32, i32Timedelta, i64

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.client.groups.requests import DescribeShareGroupOffsetsRequest
    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.testing.fake_kafka.share_partition import SharePartition


def share_offsets_response(
    message: DescribeShareGroupOffsetsRequest, shares: Mapping[TopicPartition, SharePartition]
) -> DescribeShareGroupOffsetsResponse:
    """The response for all partitions that the group has a start offset of."""
    known = sorted(partition for partition, share in shares.items() if share.start is not None)
    topics = tuple(
        DescribeShareGroupOffsetsResponseTopic(
            topic_name=TopicName(topic),
            topic_id=None,
            partitions=tuple(_described(each.partition, shares[each]) for each in partitions),
        )
        for topic, partitions in groupby(known, key=lambda partition: partition.topic)
    )
    groups = tuple(
        DescribeShareGroupOffsetsResponseGroup(
            group_id=asked.group_id, topics=topics, error_code=ErrorCode.none
        )
        for asked in message.groups
    )
    return DescribeShareGroupOffsetsResponse(
        throttle_time=i32Timedelta.parse(timedelta()), groups=groups
    )


def _described(number: int, share: SharePartition) -> DescribeShareGroupOffsetsResponsePartition:
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=i32(number),
        start_offset=i64(share.start or 0),
        leader_epoch=i32(share.log.leader_epoch),
        lag=i64(share.lag),
        error_code=ErrorCode.none,
    )
