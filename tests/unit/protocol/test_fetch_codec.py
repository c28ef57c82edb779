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
from kio.schema.types import BrokerId, ProducerId, TopicName
from kio.static.primitive import Records, i32, i64
from unit.protocol.sample_requests import NO_THROTTLE, REQUESTS, TOPIC_IDS, TP
from wire.frames import response_frames as frames

from asyncrevoke.model import TopicPartition
from asyncrevoke.protocol import codec, messages
from asyncrevoke.protocol.messages import ErrorCode


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


@pytest.mark.parametrize("version", [11, 13])
def test_a_usual_fetch_is_written_without_kio(version: int) -> None:
    dialect = codec._dialect(messages.FetchRequest, version)
    assert dialect.shortcut is not None
    assert dialect.shortcut.write(REQUESTS[-2]) == codec.encode_request(REQUESTS[-2], version)
    assert dialect.shortcut.write(REQUESTS[-1]) is None


def fetched(version: int) -> bytes:
    """One partition, in version 13 beside topics that nobody has asked about."""
    schema: Any = {11: fetch11, 12: fetch12, 13: fetch13}[version]
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
    if version == 13:
        topics = [{"topic_id": topic_id} for topic_id in ids]
    response = schema.FetchResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        responses=tuple(
            schema.FetchableTopicResponse(**topic, partitions=(partition,)) for topic in topics
        ),
    )
    return frames.header(flexible=version != 11) + frames.body(response)


@pytest.mark.parametrize("version", [11, 12, 13])
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


def _answer(
    version: int,
    session_id: int,
    topics: list[tuple[str, list[tuple[int, int, int, bytes | None]]]],
) -> bytes:
    """A response of the usual shape."""
    schema: Any = fetch11 if version == 11 else fetch13
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


@pytest.mark.parametrize("version", [11, 13])
@given(session_id=NUMBERS, topics=TOPICS)
def test_what_is_read_without_kio_is_what_kio_reads(
    version: int,
    session_id: int,
    topics: list[tuple[str, list[tuple[int, int, int, bytes | None]]]],
) -> None:
    dialect = codec._dialect(messages.FetchRequest, version)
    assert dialect.shortcut is not None
    frame = _answer(version, session_id, topics)
    read = dialect.shortcut.read(frame, 4, REQUESTS[-2])
    assert read == codec._read(dialect, version, frame, REQUESTS[-2], in_pieces=False).message
    assert read is not None


@pytest.mark.parametrize("version", [11, 13])
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
    frame = bytearray(_answer(version, 7, [("t", partitions), ("u", partitions)]))
    frame[int(at * len(frame))] = byte
    spoiled = bytes(frame[: None if cut is None else -cut]) + more
    dialect = codec._dialect(messages.FetchRequest, version)
    assert dialect.shortcut is not None
    read = dialect.shortcut.read(spoiled, 4, REQUESTS[-2])
    if read is not None:
        assert read == codec._read(dialect, version, spoiled, REQUESTS[-2], in_pieces=False).message


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
