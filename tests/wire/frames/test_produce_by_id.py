"""Produce 13 identifies topics by id (KIP-516), without kio, and as kio and kafka-python do."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.produce.v13 import request as produce13
from kio.schema.produce.v13 import response as produced13
from kio.serial import entity_reader
from kio.static.primitive import i32, i64
from wire.frames import response_frames as frames
from wire.frames import second_codec

from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.producing.requests import (
    PartitionResponse,
    ProduceRequest,
    partition_responses,
    produce_request,
)
from asyncrevoke.client.protocol import codec

ORDERS, BILLS = b"o" * 16, b"b" * 16
IDS = {"orders": ORDERS, "bills": BILLS}
PRODUCE = 0
BATCHES = [
    (TopicPartition("orders", 3), bytearray(b"batch" * 40)),
    (TopicPartition("bills", 0), bytearray(b"")),
    (TopicPartition("orders", 200), bytearray(b"x" * 20_000)),
]


def version_for(request: ProduceRequest, highest: int) -> int:
    by_id = codec.has_topic_ids(request)
    return codec.choose_version(ProduceRequest, {PRODUCE: (3, highest)}, by_id=by_id)


@pytest.mark.parametrize("batches", [BATCHES, BATCHES[:1], BATCHES * 100])
@pytest.mark.parametrize("timeout", [30.0, 0.25])
def test_the_request_is_written_as_kio_writes_it(
    batches: list[tuple[TopicPartition, bytearray]], timeout: float
) -> None:
    request = produce_request(batches, timeout, IDS)
    dialect = codec._dialect(ProduceRequest, 13)
    assert dialect.shortcut is not None
    written = dialect.shortcut.write(request)
    assert written == codec._build(dialect, request, 13) == codec.encode_request(request, 13)


def test_kafka_python_reads_the_request() -> None:
    data = codec.encode_request(produce_request(BATCHES, 30.0, IDS), 13)
    read, end = entity_reader(produce13.ProduceRequest)(data, 0)
    theirs, their_end = second_codec.decode(produce13.ProduceRequest, data)
    assert end == their_end == len(data)
    assert second_codec.differences(read, theirs) == []
    assert [topic.topic_id for topic in read.topic_data] == [
        uuid.UUID(bytes=ORDERS),
        uuid.UUID(bytes=BILLS),
    ]


def test_names_are_used_without_ids_and_below_version_13() -> None:
    with_ids, without = (produce_request(BATCHES, 30.0, ids) for ids in (IDS, None))
    assert version_for(with_ids, 13) == 13
    assert version_for(with_ids, 12) == version_for(without, 13) == 8
    assert version_for(with_ids, 7) == 7
    for version in (8, 7):
        by_name = codec.encode_request(without, version)
        assert codec.encode_request(with_ids, version) == by_name


def test_an_unknown_id_is_an_error() -> None:
    request = produce_request(BATCHES, 30.0, {"orders": ORDERS})
    with pytest.raises(ValueError, match="the id of topic 'bills' is unknown"):
        codec.encode_request(request, 13)


def test_the_response_has_the_names_of_the_request() -> None:
    def topic(topic_id: bytes, index: int, error: ErrorCode) -> produced13.TopicProduceResponse:
        return produced13.TopicProduceResponse(
            topic_id=uuid.UUID(bytes=topic_id),
            partition_responses=(
                produced13.PartitionProduceResponse(
                    index=i32(index),
                    error_code=error,
                    base_offset=i64(17),
                    error_message="no",
                    record_errors=(),
                ),
            ),
        )

    response = produced13.ProduceResponse(
        responses=(
            topic(BILLS, 0, ErrorCode.unknown_topic_id),
            topic(b"?" * 16, 1, ErrorCode.none),
            topic(ORDERS, 3, ErrorCode.none),
        )
    )
    frame = frames.header(flexible=True) + frames.body(response)
    request = produce_request(BATCHES, 30.0, IDS)
    decoded: Any = codec.decode_response(ProduceRequest, 13, frame, request).message
    assert partition_responses(decoded.entity) == {
        TopicPartition("bills", 0): PartitionResponse(ErrorCode.unknown_topic_id, "no", 17),
        TopicPartition("orders", 3): PartitionResponse(ErrorCode.none, "no", 17),
    }
