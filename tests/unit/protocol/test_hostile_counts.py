"""A count of structures beyond what any broker has is refused before they are read."""

from __future__ import annotations

import struct
import time

import pytest

from asyncrevoke.client.protocol import codec, messages
from asyncrevoke.client.protocol.codec import MalformedResponse
from asyncrevoke.client.protocol.guard import varint_bytes

MOST = 101_000
# Correlation id, tags of the header.
OLD, FLEXIBLE = struct.pack(">i", 7), struct.pack(">ib", 7, 0)
FETCH = struct.pack(">ihi", 0, 0, 0)
TOPIC_ID = bytes(range(16))
# Throttle time.
NONE = struct.pack(">i", 0)


def fetch_v11(topics: int) -> bytes:
    """Topics without a name and without partitions, the smallest there are."""
    return OLD + FETCH + struct.pack(">i", topics) + struct.pack(">hi", 0, 0) * topics


def fetch_v13(topics: int) -> bytes:
    return FLEXIBLE + FETCH + varint_bytes(topics + 1) + (TOPIC_ID + b"\1\0") * topics + b"\0"


def fetched_partitions(count: int) -> bytes:
    partition = struct.pack(">ihqqqB", 0, 0, 0, 0, 0, 1) + struct.pack(">i", -1) + b"\1\0"
    topic = TOPIC_ID + varint_bytes(count + 1) + partition * count + b"\0"
    return FLEXIBLE + FETCH + varint_bytes(2) + topic + b"\0"


def aborted_transactions(count: int) -> bytes:
    partition = struct.pack(">ihqqqi", 0, 0, 0, 0, 0, count) + bytes(16) * count
    topic = struct.pack(">hi", 0, 1) + partition + struct.pack(">ii", -1, 0)
    return OLD + FETCH + struct.pack(">i", 1) + topic


def offset_commit_v9(topics: int) -> bytes:
    return FLEXIBLE + NONE + varint_bytes(topics + 1) + b"\1\1\0" * topics + b"\0"


def left_members(count: int) -> bytes:
    members = varint_bytes(count + 1) + b"\1\0\0\0\0" * count
    return FLEXIBLE + NONE + b"\0\0" + members + b"\0"


@pytest.mark.parametrize(
    ("kind", "version", "frame"),
    [
        (messages.FetchRequest, 11, fetch_v11(2_000_000)),
        (messages.FetchRequest, 13, fetch_v13(500_000)),
        (messages.FetchRequest, 13, fetched_partitions(300_000)),
        (messages.FetchRequest, 11, aborted_transactions(500_000)),
        (messages.OffsetCommitRequest, 9, offset_commit_v9(2_000_000)),
        (messages.LeaveGroupRequest, 5, left_members(1_000_000)),
    ],
    ids=["topics", "topics by id", "partitions", "aborted", "committed topics", "members"],
)
def test_millions_of_structures_are_refused_by_their_count(
    kind: type[messages.Request], version: int, frame: bytes
) -> None:
    codec.decode_response(messages.HeartbeatRequest, 3, struct.pack(">iih", 7, 0, 0))
    began = time.process_time()
    with pytest.raises(MalformedResponse, match="it declares more than"):
        codec.decode_response(kind, version, frame)
    # Reading them takes seconds.
    assert time.process_time() - began < 0.5


def test_arrays_are_counted_together() -> None:
    partition = struct.pack(">ihqqqB", 0, 0, 0, 0, 0, 1) + struct.pack(">i", -1) + b"\1\0"
    half = TOPIC_ID + varint_bytes(MOST // 2 + 2) + partition * (MOST // 2 + 1) + b"\0"
    frame = FLEXIBLE + FETCH + varint_bytes(3) + half * 2 + b"\0"
    with pytest.raises(MalformedResponse, match=f"more than {MOST} structures PartitionData"):
        codec.decode_response(messages.FetchRequest, 13, frame)


def test_as_many_partitions_as_a_member_may_have_are_read() -> None:
    message = codec.decode_response(messages.OffsetCommitRequest, 9, offset_commit_v9(MOST)).message
    assert message == messages.OffsetCommitResponse(errors=())
