"""The requests of producers, and the checks of their responses."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, cast

from kio.schema.init_producer_id.v3.request import InitProducerIdRequest as InitProducerIdEntity
from kio.schema.init_producer_id.v3.response import InitProducerIdResponse
from kio.schema.produce.v8 import request as produce
from kio.schema.produce.v8 import response as produced
from kio.schema.produce.v8.response import ProduceResponse
from kio.schema.types import ProducerId, TopicName, TransactionalId
from kio.static.primitive import Records, i16, i32, i32Timedelta, i64

from asyncrevoke.client.core.io.effects import Node
from asyncrevoke.client.core.io.response_checks import find_contradiction
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.producing.queueing.partition_queue import PartitionQueue
from asyncrevoke.client.protocol.messages import EntityRequest, EntityResponse, ErrorCode, Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from asyncrevoke.client.protocol.messages import Entities, Response

_ALL: Final = i16(-1)


class ProduceRequest(EntityRequest[ProduceResponse], frozen=True, kw_only=True):
    """Writes record batches. ``topic_ids`` are the ids of all topics by name; None: only versions
    with topic names can express the request."""

    entities: ClassVar[Entities] = (produce.ProduceRequest, ProduceResponse)
    topic_data: tuple[produce.TopicProduceData, ...]
    timeout: i32Timedelta
    acks: i16 = _ALL
    transactional_id: TransactionalId | None = None
    topic_ids: dict[str, bytes] | None = None


class InitProducerIdRequest(EntityRequest[InitProducerIdResponse], frozen=True, kw_only=True):
    """Requests a producer id without transactions."""

    entities: ClassVar[Entities] = (InitProducerIdEntity, InitProducerIdResponse)
    transactional_id: None = None
    transaction_timeout: i32Timedelta = i32Timedelta.parse(datetime.timedelta(seconds=60))


class Outgoing(NamedTuple):
    """A request to send; ``queues`` are the queues whose first batches are in it."""

    node: Node
    message: Request
    queues: tuple[PartitionQueue, ...] = ()


class PartitionResponse(NamedTuple):
    """The response for one partition of a Produce request.

    ``offset`` is the offset of the first written record, -1 if unknown.
    """

    error: ErrorCode
    detail: str | None
    offset: int


def produce_request(
    batches: Iterable[tuple[TopicPartition, bytearray]],
    timeout: float,
    topic_ids: dict[str, bytes] | None = None,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """A Produce request with one batch for each partition.

    The replicas have ``timeout`` seconds to write. With ``topic_ids``, of all topics by name, no
    broker writes to a topic that was created again, if it offers Produce 13.
    """
    topics: dict[str, list[produce.PartitionProduceData]] = {}
    for partition, records in batches:
        topics.setdefault(partition.topic, []).append(
            produce.PartitionProduceData(
                index=i32(partition.partition), records=cast("Records", bytes(records))
            )
        )
    return ProduceRequest(
        topic_data=tuple(
            produce.TopicProduceData(name=TopicName(topic), partition_data=tuple(data))
            for topic, data in topics.items()
        ),
        timeout=i32Timedelta.parse(datetime.timedelta(seconds=timeout)),
        transactional_id=None if transactional_id is None else TransactionalId(transactional_id),
        topic_ids=topic_ids,
    )


def partition_responses(response: ProduceResponse) -> dict[TopicPartition, PartitionResponse]:
    """The responses by partition, without partitions that are listed twice."""
    responses: dict[TopicPartition, PartitionResponse] = {}
    repeated: set[TopicPartition] = set()
    for topic in response.responses:
        for entry in topic.partition_responses:
            partition = TopicPartition(topic.name, entry.index)
            if partition in responses:
                repeated.add(partition)
            responses[partition] = PartitionResponse(
                entry.error_code, entry.error_message, entry.base_offset
            )
    for partition in repeated:
        del responses[partition]
    return responses


def find_producer_contradiction(request: Request, response: Response) -> str | None:
    """Describe what in a response cannot be true; None if nothing."""
    entity = response.entity if isinstance(response, EntityResponse) else None
    if (
        isinstance(entity, InitProducerIdResponse)
        and entity.error_code is ErrorCode.none
        and entity.producer_id < 0
    ):
        # Brokers do not check batches with a negative producer id for duplicates.
        return f"producer id {entity.producer_id}"
    if isinstance(request, ProduceRequest) and isinstance(entity, ProduceResponse):
        return _find_unrequested(request, entity)
    return find_contradiction(request, response)


def _find_unrequested(request: ProduceRequest, response: ProduceResponse) -> str | None:
    """Describe more topics or partitions than were requested. Only counts them: a large response
    is decoded on the event loop while it is iterated over."""
    topics = len(request.topic_data)
    if len(response.responses) > topics:
        return f"{len(response.responses)} topics, of {topics} requested ones"
    partitions = sum(len(topic.partition_data) for topic in request.topic_data)
    returned = sum(len(topic.partition_responses) for topic in response.responses)
    if returned > partitions:
        return f"{returned} partitions, of {partitions} requested ones"
    return None


# --- the broker's side, for tests ---------------------------------------------------------------


def produced_batches(request: ProduceRequest) -> Iterator[tuple[TopicPartition, bytes]]:
    """The batches of a request, by partition."""
    for topic in request.topic_data:
        for partition_row in topic.partition_data:
            assert partition_row.records is not None
            yield TopicPartition(topic.name, partition_row.index), bytes(partition_row.records)


def produce_response(
    errors: Mapping[TopicPartition, ErrorCode],
    offsets: Mapping[TopicPartition, int] | None = None,
) -> ProduceResponse:
    """A response with these errors; ``offsets`` are those of the first written records."""
    topics: dict[str, list[produced.PartitionProduceResponse]] = {}
    for partition, error in errors.items():
        topics.setdefault(partition.topic, []).append(
            produced.PartitionProduceResponse(
                index=i32(partition.partition),
                error_code=error,
                base_offset=i64(0 if offsets is None else offsets.get(partition, -1)),
                record_errors=(),
            )
        )
    return ProduceResponse(
        responses=tuple(
            produced.TopicProduceResponse(
                name=TopicName(topic), partition_responses=tuple(responses)
            )
            for topic, responses in topics.items()
        )
    )


def producer_id_response(
    producer_id: int, epoch: int = 0, error: ErrorCode = ErrorCode.none
) -> InitProducerIdResponse:
    """A response with this producer id and epoch, or with an error."""
    return InitProducerIdResponse(
        throttle_time=i32Timedelta.parse(datetime.timedelta(0)),
        error_code=error,
        producer_id=ProducerId(producer_id),
        producer_epoch=i16(epoch),
    )
