"""Lower versions of the requests whose responses are used as kio decodes them."""

from __future__ import annotations

import random
from typing import Any

import pytest
from kio.schema.create_topics.v5 import response as created5
from kio.schema.create_topics.v7 import response as created7
from kio.schema.errors import ErrorCode
from kio.schema.produce.v7 import request as produce7
from kio.schema.produce.v7 import response as produced7
from kio.schema.types import TopicName
from kio.serial import entity_reader
from kio.static.primitive import i16, i32, i64
from wire.frames import response_frames as frames
from wire.frames.entity_requests import ENTITY_REQUESTS

from asyncrevoke.broker.admin import CreateTopicsRequest
from asyncrevoke.client.groups.requests import ListGroupsRequest
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.producing.requests import (
    InitProducerIdRequest,
    PartitionResponse,
    ProduceRequest,
    partition_responses,
    produce_request,
    produced_batches,
)
from asyncrevoke.client.protocol import codec, messages
from asyncrevoke.client.protocol.dialects.versions import APIS

TP = TopicPartition("t", 3)
VERSIONS = [
    pytest.param(kind, version, id=f"{kind.__name__} v{version}")
    for kind in ENTITY_REQUESTS
    for version in codec.versions(kind)
]
# What Apache Kafka 2.4 offers, by its clients' jar.
KAFKA_2_4 = {0: 8, 15: 5, 16: 3, 19: 5, 20: 4, 22: 2, 30: 1, 32: 2, 37: 1, 42: 2, 44: 1}
# What Redpanda 24.3 offers.
REDPANDA = {0: 7, 15: 5, 16: 4, 19: 6, 20: 5, 22: 3, 30: 3, 32: 3, 37: 3, 42: 2, 44: 0}
# What these do not offer: the request, and a part of what helps.
NOT_OFFERED = {
    "ConsumerGroupDescribe": "shown as classic",
    "ShareGroupDescribe": "need Apache Kafka 4.2",
    "DescribeShareGroupOffsets": "without lag",
    "AlterShareGroupOffsets": "need Apache Kafka 4.2",
    "DeleteShareGroupOffsets": "need Apache Kafka 4.2",
}


@pytest.mark.parametrize("highest", [KAFKA_2_4, REDPANDA])
@pytest.mark.parametrize("kind", ENTITY_REQUESTS)
def test_kafka_2_4_and_redpanda_are_served(
    kind: type[messages.EntityRequest[Any]], highest: dict[int, int]
) -> None:
    offered = {key: (0, version) for key, version in highest.items()}
    if helps := NOT_OFFERED.get(codec.request_name(kind)):
        with pytest.raises(codec.UnsupportedVersion, match=helps):
            codec.choose_version(kind, offered)
    else:
        assert codec.choose_version(kind, offered) in codec.versions(kind)


@pytest.mark.parametrize("kind", ENTITY_REQUESTS)
def test_each_request_has_its_row_in_the_table(kind: type[messages.EntityRequest[Any]]) -> None:
    api = APIS[codec.request_name(kind)]
    request, response = kind.entities
    assert api.key == int(request.__api_key__) == int(response.__api_key__)
    by_name = next(version for version, _ in api.versions if version < api.by_id_from)
    assert by_name == int(request.__version__) == int(response.__version__)


@pytest.mark.parametrize(("kind", "version"), VERSIONS)
def test_a_response_of_each_version_has_the_fields_of_the_preferred_one(
    kind: type[messages.EntityRequest[Any]], version: int
) -> None:
    rng = random.Random(version)
    _, preferred = kind.entities
    for _ in range(50):
        message = codec.decode_response(kind, version, frames.frame(kind, version, rng)).message
        assert isinstance(message, messages.EntityResponse)
        assert type(message.entity) is preferred
        # Its fields are values of the preferred version.
        frames.body(message.entity)


def test_results_are_written_in_version_7_without_the_reason_of_a_rejection() -> None:
    request = produce_request([(TP, bytearray(b"batch"))], 30.0)
    data = codec.encode_request(request, 7)
    entity: Any = codec._dialect(ProduceRequest, 7).build(request)
    assert entity_reader(produce7.ProduceRequest)(data, 0) == (entity, len(data))
    assert list(produced_batches(entity)) == [(TP, b"batch")]
    assert int(entity.acks) == -1
    response = produced7.ProduceResponse(
        responses=(
            produced7.TopicProduceResponse(
                name=TopicName("t"),
                partition_responses=(
                    produced7.PartitionProduceResponse(
                        index=i32(3), error_code=ErrorCode.invalid_record, base_offset=i64(17)
                    ),
                ),
            ),
        )
    )
    frame = frames.header(flexible=False) + frames.body(response)
    decoded: Any = codec.decode_response(ProduceRequest, 7, frame).message
    expected = PartitionResponse(ErrorCode.invalid_record, None, 17)
    assert partition_responses(decoded.entity) == {TP: expected}


def test_a_new_producer_id_is_requested_by_version_3_where_it_is_offered() -> None:
    """Tansu 0.6 offers version 2, whose request has no producer id and epoch, and rejects it."""
    request = InitProducerIdRequest()
    assert codec.choose_version(InitProducerIdRequest, {22: (0, 4)}) == 3
    none_yet = (-1).to_bytes(8, "big", signed=True) + (-1).to_bytes(2, "big", signed=True)
    timeout = (60_000).to_bytes(4, "big")
    assert codec.encode_request(request, 3) == b"\0" + timeout + none_yet + b"\0"
    assert codec.choose_version(InitProducerIdRequest, {22: (0, 2)}) == 2
    assert codec.encode_request(request, 2) == b"\0" + timeout + b"\0"


def test_a_created_topic_has_no_id_in_version_5() -> None:
    fields: dict[str, Any] = {"name": TopicName("t"), "error_code": ErrorCode.none}
    fields |= {"num_partitions": i32(3), "replication_factor": i16(1), "error_message": None}
    topic = created5.CreatableTopicResult(**fields, configs=())
    response = created5.CreateTopicsResponse(throttle_time=frames.NO_THROTTLE, topics=(topic,))  # type: ignore[arg-type]
    frame = frames.header(flexible=True) + frames.body(response)
    decoded: Any = codec.decode_response(CreateTopicsRequest, 5, frame).message
    expected = created7.CreatableTopicResult(**fields, topic_id=None, configs=())
    assert decoded.entity.topics == (expected,)


def test_what_a_version_cannot_express_is_an_error() -> None:
    class Filtered(ListGroupsRequest, frozen=True, kw_only=True):
        states_filter: tuple[str, ...] = ("Stable",)

    dialect = codec._dialect(ListGroupsRequest, 3)
    with pytest.raises(ValueError, match="has no states_filter"):
        codec._build(dialect, Filtered(), 3)
