"""A request of each kind, and the versions of all."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, cast

import pytest

from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol import codec, messages
from asyncrevoke.client.protocol.share_messages import (
    AcknowledgementBatch,
    AcknowledgeType,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareGroupHeartbeatRequest,
    SharePartition,
    TopicIdPartition,
)

if TYPE_CHECKING:
    from kio.static.primitive import i32Timedelta

    from asyncrevoke.client.protocol.messages import Request


TP = TopicPartition("t", 3)


TOPIC_IDS = {
    "t": bytes(range(16)),
    "u": bytes(range(16, 32)),
    "v": bytes(range(32, 48)),
}


NO_THROTTLE = cast("i32Timedelta", datetime.timedelta(0))


EVERY_VERSION = [
    pytest.param(kind, version, id=f"{kind.__name__} v{version}")
    for kind in codec.REQUESTS
    for version in codec.versions(kind)
]


REQUESTS: tuple[Request, ...] = (
    messages.MetadataRequest(topics=("a", "b")),
    messages.MetadataRequest(topics=None),
    messages.FindCoordinatorRequest(group_id="g"),
    messages.JoinGroupRequest(
        group_id="g",
        session_timeout=45,
        rebalance_timeout=300,
        member_id="m",
        group_instance_id="i",
        protocols=(("range", b"r"), ("sticky", b"s")),
        reason="because" * 100,
    ),
    messages.SyncGroupRequest(
        group_id="g",
        generation=4,
        member_id="m",
        group_instance_id=None,
        protocol_name="range",
        assignments=(("m", b"all"),),
    ),
    messages.HeartbeatRequest(group_id="g", generation=4, member_id="m", group_instance_id="i"),
    messages.LeaveGroupRequest(group_id="g", member_id="m", group_instance_id=None, reason="r"),
    messages.ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        group_instance_id="i",
        rack="r",
        rebalance_timeout=300,
        topics=("t", "u"),
        assignor="uniform",
        owned=((bytes(range(16)), (3, 4)),),
    ),
    messages.OffsetCommitRequest(
        group_id="g",
        generation=4,
        member_id="m",
        group_instance_id=None,
        entries=(
            messages.CommitEntry(partition=TP, offset=2**62, leader_epoch=5, metadata="é"),
            messages.CommitEntry(partition=TopicPartition("u", 0), offset=1),
            messages.CommitEntry(partition=TopicPartition("t", 4), offset=1),
        ),
        topic_ids=TOPIC_IDS,
    ),
    messages.OffsetFetchRequest(
        group_id="g", partitions=(TP, TopicPartition("u", 0)), topic_ids=TOPIC_IDS
    ),
    messages.DescribeGroupsRequest(group_id="g"),
    ShareGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=0, rack="r", topics=("t", "u")
    ),
    ShareFetchRequest(
        group_id="g",
        member_id="m",
        session_epoch=3,
        partitions=(
            SharePartition(
                partition=TopicIdPartition(TOPIC_IDS["t"], 3),
                acknowledgements=(
                    AcknowledgementBatch(
                        first_offset=5, last_offset=9, type=AcknowledgeType.ACCEPT
                    ),
                    AcknowledgementBatch(first_offset=10, last_offset=10, type=AcknowledgeType.GAP),
                ),
            ),
            SharePartition(partition=TopicIdPartition(TOPIC_IDS["u"], 0)),
            SharePartition(partition=TopicIdPartition(TOPIC_IDS["t"], 4)),
        ),
        forgotten=(TopicIdPartition(TOPIC_IDS["v"], 1), TopicIdPartition(TOPIC_IDS["v"], 0)),
        max_wait=0.5,
        min_bytes=1,
        max_bytes=1000,
        max_records=7,
        batch_size=100,
        exact=True,
    ),
    ShareAcknowledgeRequest(
        group_id="g",
        member_id="m",
        session_epoch=-1,
        partitions=(
            SharePartition(
                partition=TopicIdPartition(TOPIC_IDS["t"], 3),
                acknowledgements=(
                    AcknowledgementBatch(
                        first_offset=0, last_offset=2**40, type=AcknowledgeType.RENEW
                    ),
                ),
            ),
        ),
    ),
    messages.ListOffsetsRequest(
        queries=(messages.OffsetQuery(partition=TP, timestamp=-2, leader_epoch=1),)
    ),
    messages.OffsetsForLeaderEpochRequest(
        queries=(
            messages.EpochQuery(partition=TP, epoch=3, leader_epoch=5),
            messages.EpochQuery(partition=TopicPartition("u", 0), epoch=0),
        )
    ),
    messages.FetchRequest(
        partitions=(
            messages.FetchPartition(partition=TP, offset=7, max_bytes=100, leader_epoch=2),
            messages.FetchPartition(partition=TopicPartition("u", 0), offset=8, max_bytes=100),
            messages.FetchPartition(partition=TopicPartition("t", 4), offset=9, max_bytes=100),
        ),
        max_wait=0.5,
        min_bytes=1,
        max_bytes=1000,
        read_committed=True,
        rack="r",
        topic_ids=TOPIC_IDS,
    ),
    messages.FetchRequest(
        partitions=(messages.FetchPartition(partition=TP, offset=7, max_bytes=100),),
        max_wait=0.5,
        min_bytes=1,
        max_bytes=1000,
        session_id=2**31 - 1,
        session_epoch=1,
        forgotten=(TopicPartition("u", 0), TopicPartition("u", 3), TopicPartition("v", 1)),
        topic_ids=TOPIC_IDS,
    ),
)
