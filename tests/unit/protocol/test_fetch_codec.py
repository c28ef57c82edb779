"""Fetch requests and responses to bytes and back, with kio and without."""

from __future__ import annotations

import struct
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.fetch.v11 import response as fetch11
from kio.schema.fetch.v12 import response as fetch12
from kio.schema.fetch.v13 import response as fetch13
from kio.schema.fetch.v16 import response as fetch16
from kio.schema.types import BrokerId, ProducerId, TopicName
from kio.static.primitive import Records, i32, i64
from unit.protocol.sample_requests import NO_THROTTLE, REQUESTS, TOPIC_IDS, TP
from wire.frames import response_frames as frames

from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol import codec, messages
from asyncrevoke.client.protocol.messages import ErrorCode


def _fetch(
    partitions: list[tuple[str, int, int, int, int]],
    forgotten: list[tuple[str, int]],
    rack: str,
    wait: float,
    numbers: tuple[int, int, int, int],
) -> messages.FetchRequest:
    low, most, session_id, epoch = numbers
    return messages.FetchRequest(
        partitions=tuple(
            messages.FetchPartition(
                partition=TopicPartition(topic, number),
                offset=offset,
                max_bytes=size,
                leader_epoch=leader,
            )
            for topic, number, offset, size, leader in partitions
        ),
        forgotten=tuple(TopicPartition(*partition) for partition in forgotten),
        rack=rack,
        max_wait=wait,
        min_bytes=low,
        max_bytes=most,
        read_committed=bool(epoch % 2),
        session_id=session_id,
        session_epoch=epoch,
        topic_ids=TOPIC_IDS,
    )


NUMBERS = st.integers(-1, 2**31 - 1)


NAMES = st.sampled_from(sorted(TOPIC_IDS))


@given(
    st.builds(
        _fetch,
        st.lists(
            st.tuples(NAMES, NUMBERS, st.integers(-1, 2**63 - 1), NUMBERS, NUMBERS), max_size=200
        ),
        st.lists(st.tuples(NAMES, NUMBERS), max_size=1),
        st.text(st.characters(codec="utf-8"), max_size=200),
        st.floats(0, 1e7),
        st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS),
    )
)
def test_what_is_written_without_kio_reads_as_if_kio_had_written_it(
    message: messages.FetchRequest,
) -> None:
    for version in codec.versions(messages.FetchRequest):
        entity = codec._dialect(messages.FetchRequest, version).build(message)
        data = codec.encode_request(message, version)
        assert data == codec._write(entity)


@pytest.mark.parametrize("version", [11, 13, 16])
def test_a_usual_fetch_is_written_without_kio(version: int) -> None:
    dialect = codec._dialect(messages.FetchRequest, version)
    assert dialect.shortcut is not None
    assert dialect.shortcut.write(REQUESTS[-2]) == codec.encode_request(REQUESTS[-2], version)
    assert dialect.shortcut.write(REQUESTS[-1]) is None


def fetched(version: int) -> bytes:
    """One partition, from version 13 on beside topics that nobody has asked about."""
    schema: Any = {11: fetch11, 12: fetch12, 13: fetch13, 16: fetch16}[version]
    more: dict[str, object] = {}
    if version == 12:
        more["current_leader"] = schema.LeaderIdAndEpoch(leader_id=BrokerId(2), leader_epoch=i32(1))
    partition = schema.PartitionData(
        partition_index=i32(3),
        error_code=ErrorCode.none,
        high_watermark=i64(10),
        last_stable_offset=i64(9),
        log_start_offset=i64(1),
        aborted_transactions=(
            schema.AbortedTransaction(producer_id=ProducerId(5), first_offset=i64(2)),
        ),
        preferred_read_replica=BrokerId(4),
        records=Records(b"bytes"),
        **more,
    )
    ids = None, uuid.UUID(int=99), uuid.UUID(bytes=TOPIC_IDS["t"])
    topics: list[dict[str, object]] = [{"topic": TopicName("t")}]
    if version >= 13:
        topics = [{"topic_id": topic_id} for topic_id in ids]
    response = schema.FetchResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        responses=tuple(
            schema.FetchableTopicResponse(**topic, partitions=(partition,)) for topic in topics
        ),
    )
    return frames.header(flexible=version != 11) + frames.body(response)


@pytest.mark.parametrize("version", [11, 12, 13, 16])
def test_what_was_fetched_arrives_whole(version: int) -> None:
    data = fetched(version)
    decoded = codec.decode_response(messages.FetchRequest, version, data, REQUESTS[-2])
    assert decoded.message == messages.FetchResponse(
        error=ErrorCode.none,
        partitions=(
            messages.FetchedPartition(
                partition=TP,
                error=ErrorCode.none,
                high_watermark=10,
                last_stable_offset=9,
                log_start_offset=1,
                aborted=(messages.AbortedTransaction(producer_id=5, first_offset=2),),
                preferred_read_replica=4,
                records=b"bytes",
            ),
        ),
    )


def _response(
    version: int,
    session_id: int,
    topics: list[tuple[str, list[tuple[int, int, int, bytes | None]]]],
) -> bytes:
    """A response of the usual shape."""
    schema: Any = {11: fetch11, 13: fetch13, 16: fetch16}[version]
    responses = tuple(
        schema.FetchableTopicResponse(
            **({"topic": topic} if version == 11 else {"topic_id": _id(topic)}),
            partitions=tuple(
                schema.PartitionData(
                    partition_index=i32(number),
                    error_code=ErrorCode.none,
                    high_watermark=i64(offset),
                    last_stable_offset=i64(offset - 1),
                    log_start_offset=i64(offset // 2),
                    aborted_transactions=None if number % 2 else (),
                    preferred_read_replica=BrokerId(replica),
                    records=None if records is None else Records(records),
                )
                for number, offset, replica, records in partitions
            ),
        )
        for topic, partitions in topics
    )
    response = schema.FetchResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        session_id=i32(session_id),
        responses=responses,
    )
    return frames.header(flexible=version != 11) + frames.body(response)


def _id(topic: str) -> uuid.UUID:
    return uuid.UUID(bytes=TOPIC_IDS[topic]) if topic in TOPIC_IDS else uuid.uuid5(BASE, topic)


BASE = uuid.UUID(int=1)


TOPICS = st.lists(
    st.tuples(
        st.sampled_from([*sorted(TOPIC_IDS), "another"]),
        st.lists(
            st.tuples(
                NUMBERS,
                st.integers(0, 2**63 - 1),
                NUMBERS,
                st.none() | st.binary(max_size=300),
            ),
            max_size=4,
        ),
    ),
    max_size=4,
)


@pytest.mark.parametrize("version", [11, 13, 16])
@given(session_id=NUMBERS, topics=TOPICS)
def test_what_is_read_without_kio_is_what_kio_reads(
    version: int,
    session_id: int,
    topics: list[tuple[str, list[tuple[int, int, int, bytes | None]]]],
) -> None:
    dialect = codec._dialect(messages.FetchRequest, version)
    assert dialect.shortcut is not None
    frame = _response(version, session_id, topics)
    read = dialect.shortcut.read(frame, 4, REQUESTS[-2])
    assert read == codec._read(dialect, version, frame, REQUESTS[-2], in_pieces=False).message
    assert read is not None


@pytest.mark.parametrize("version", [11, 13, 16])
@given(
    at=st.floats(0, 1, exclude_max=True),
    byte=st.integers(0, 255),
    cut=st.none() | st.integers(1, 80),
    more=st.binary(max_size=2),
)
def test_a_corrupt_response_is_read_by_kio_or_as_kio_reads_it(
    version: int, at: float, byte: int, cut: int | None, more: bytes
) -> None:
    partitions: list[tuple[int, int, int, bytes | None]] = [
        (3, 9, -1, b"records"),
        (4, 1, -1, None),
    ]
    frame = bytearray(_response(version, 7, [("t", partitions), ("u", partitions)]))
    frame[int(at * len(frame))] = byte
    corrupt = bytes(frame[: None if cut is None else -cut]) + more
    dialect = codec._dialect(messages.FetchRequest, version)
    assert dialect.shortcut is not None
    read = dialect.shortcut.read(corrupt, 4, REQUESTS[-2])
    if read is not None:
        assert read == codec._read(dialect, version, corrupt, REQUESTS[-2], in_pieces=False).message


@pytest.mark.parametrize("version", [11, 12])
def test_an_unknown_error_code_affects_its_own_partition_only(version: int) -> None:
    data = fetched(version)
    index = data.index(struct.pack(">i", 3))  # the error code follows the partition
    data = data[: index + 4] + struct.pack(">h", 9999) + data[index + 6 :]
    decoded = codec.decode_response(messages.FetchRequest, version, data)
    assert decoded.unknown_errors == (9999,)
    assert isinstance(decoded.message, messages.FetchResponse)
    assert decoded.message.error is ErrorCode.none
    (partition,) = decoded.message.partitions
    assert partition.error is ErrorCode.unknown_server_error
    assert partition.records == b"bytes"


def moved(plain: bytes = b"", *, tags: bytes = b"", size: int = 0) -> bytes:
    """A response of version 16 whose partition has moved to broker 2, with ``tags`` in place of
    ``plain`` and records of so many bytes in another partition."""
    leader = fetch16.LeaderIdAndEpoch(leader_id=BrokerId(2), leader_epoch=i32(7))
    partitions = [
        fetch16.PartitionData(
            partition_index=i32(3),
            error_code=ErrorCode.not_leader_or_follower,
            high_watermark=i64(-1),
            aborted_transactions=None,
            records=None,
            current_leader=leader,
        ),
    ]
    if size:
        partitions.append(
            fetch16.PartitionData(
                partition_index=i32(4),
                error_code=ErrorCode.none,
                high_watermark=i64(9),
                aborted_transactions=(),
                records=Records(bytes(size)),
            )
        )
    topic = fetch16.FetchableTopicResponse(
        topic_id=uuid.UUID(bytes=TOPIC_IDS["t"]), partitions=tuple(partitions)
    )
    response = fetch16.FetchResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        responses=(topic,),
        node_endpoints=(
            fetch16.NodeEndpoint(node_id=BrokerId(2), host="b2", port=i32(9092), rack="a"),
        ),
    )
    data = frames.header(flexible=True) + frames.body(response)
    if plain:
        assert data.count(plain) == 1
        data = data.replace(plain, tags)
    return data


# The tagged fields of the partition that has moved, and those of the response.
LEADER = bytes.fromhex("01 01 09 00000002 00000007 00")
ENDPOINTS = bytes.fromhex("01 00 0f 02 00000002 03 6232 00002384 02 61 00")


def leader_of(data: bytes) -> tuple[tuple[int, int], tuple[messages.BrokerMetadata, ...]]:
    message = codec.decode_response(messages.FetchRequest, 16, data, REQUESTS[-2]).message
    assert isinstance(message, messages.FetchResponse)
    partition = message.partitions[0]
    assert partition.error is ErrorCode.not_leader_or_follower
    return (partition.leader_id, partition.leader_epoch), message.leaders


NAMED = messages.BrokerMetadata(node_id=2, host="b2", port=9092, rack="a")


@pytest.mark.parametrize("size", [0, 100, 2 * codec.LARGE_RESPONSE])
def test_the_leader_of_a_partition_that_moved_is_read_with_its_address(size: int) -> None:
    assert leader_of(moved(size=size)) == ((2, 7), (NAMED,))


@pytest.mark.parametrize("size", [0, 2 * codec.LARGE_RESPONSE])
def test_unknown_tagged_fields_beside_the_leader_are_cut_out(size: int) -> None:
    more = bytes.fromhex("04 00 01 ff 01 09 00000002 00000007 00 02 01 00 e307 02 abcd")
    assert leader_of(moved(LEADER, tags=more, size=size)) == ((2, 7), (NAMED,))
    inside = bytes.fromhex("01 01 0c 00000002 00000007 01 05 01 ff")
    assert leader_of(moved(LEADER, tags=inside, size=size)) == ((2, 7), (NAMED,))
    of_endpoint = bytes.fromhex("01 00 12 02 00000002 03 6232 00002384 02 61 01 05 01 ff")
    assert leader_of(moved(ENDPOINTS, tags=of_endpoint, size=size)) == ((2, 7), (NAMED,))


def test_a_response_without_the_leader_has_none() -> None:
    assert leader_of(moved(LEADER, tags=b"\0")) == ((-1, -1), (NAMED,))
    assert leader_of(moved(ENDPOINTS, tags=b"\0")) == ((2, 7), ())


@pytest.mark.parametrize("size", [0, 2 * codec.LARGE_RESPONSE])
@pytest.mark.parametrize(
    ("plain", "tags"),
    [
        pytest.param(LEADER, "01 01 08 00000002 000007 00", id="too short for its schema"),
        pytest.param(LEADER, "01 01 0a 00000002 00000007 00 00", id="too long for its schema"),
        pytest.param(LEADER, "01 01 7f 00000002 00000007 00", id="longer than the rest"),
        pytest.param(LEADER, "02 01 09 0000000200000007 00 01 09 0000000200000007 00", id="twice"),
        pytest.param(LEADER, "02 01 09 0000000200000007 00 00 01 ff", id="descending"),
        pytest.param(ENDPOINTS, "01 00 05 ffffffff0f", id="a count of billions"),
        pytest.param(ENDPOINTS, "01 00 0f 02 00000002 7f 6232 00002384 02 61 00", id="host"),
        pytest.param(ENDPOINTS, "01 00 01 00", id="null instead of an array"),
    ],
)
def test_a_corrupt_leader_fails_the_response(plain: bytes, tags: str, size: int) -> None:
    with pytest.raises(codec.MalformedResponse):
        leader_of(moved(plain, tags=bytes.fromhex(tags), size=size))
