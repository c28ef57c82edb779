"""A broker that takes results when the test lets it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiokafka.record.default_records import DefaultRecordBatch
from unit.runtime.scripted_core import ScriptedSockets

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.core.io.effects import Failed, Node, Replied
from asyncrevoke.client.producing.publishing.publisher import Publisher
from asyncrevoke.client.producing.record_producer import RecordProducer
from asyncrevoke.client.producing.requests import (
    InitProducerIdRequest,
    ProduceRequest,
    produce_response,
    produced_batches,
    producer_id_response,
)
from asyncrevoke.client.protocol.messages import (
    BrokerMetadata,
    EntityResponse,
    ErrorCode,
    MetadataRequest,
    MetadataResponse,
    PartitionMetadata,
    TopicMetadata,
)
from asyncrevoke.client.runtime.hooks.event_log import EventLog

if TYPE_CHECKING:
    from asyncrevoke.client.core.io.effects import Send
    from asyncrevoke.client.producing.message import Published


async def publish(producer: RecordProducer, topic: str, value: bytes) -> Published:
    return await Publisher(producer, EventLog()).publish(topic, value)


class ScriptedResultsBroker(ScriptedSockets):
    """Has every topic, with ``partitions``, except ``missing``. ``written``: topic, key, value.

    The response to a batch with a value of ``errors`` is that error, the others are written when
    ``responding`` is set.
    """

    def __init__(self) -> None:
        super().__init__()
        self.partitions = 1
        # Seconds, until open_producer: a result fails after three times as long.
        self.request_timeout = 10.0
        self.missing: set[str] = set()
        self.errors: dict[bytes, ErrorCode] = {}
        self.written: list[tuple[str, bytes | None, bytes | None]] = []
        self.headers: list[list[tuple[str, bytes | None]]] = []
        self.requests: list[type] = []
        self.received = 0
        self.responding = asyncio.Event()
        self.responding.set()
        self._producer: RecordProducer | None = None

    def open_producer(self) -> RecordProducer:
        if self._producer is None:
            config = ConsumerConfig(request_timeout=self.request_timeout, fetch_max_wait=0.1)
            self._producer = RecordProducer(config, self, [Node(-1, "a", 1)], lambda: 1000.0)
        return self._producer

    async def request(self, send: Send) -> Replied | Failed:
        self.requests.append(type(send.message))
        match send.message:
            case MetadataRequest(topics=topics):
                return Replied(send.request_id, self._metadata(topics or ()))
            case InitProducerIdRequest():
                return Replied(send.request_id, EntityResponse(entity=producer_id_response(1)))
            case ProduceRequest() as message:
                self.received += 1
                await self.responding.wait()
                return Replied(send.request_id, EntityResponse(entity=self._write(message)))
            case _:
                raise TypeError(send.message)

    def _metadata(self, topics: tuple[str, ...]) -> MetadataResponse:
        partitions = tuple(
            PartitionMetadata(error=ErrorCode.none, partition=number, leader_id=0)
            for number in range(self.partitions)
        )
        return MetadataResponse(
            brokers=(BrokerMetadata(node_id=0, host="a", port=1),),
            topics=tuple(
                TopicMetadata(error=ErrorCode.unknown_topic_or_partition, name=topic)
                if topic in self.missing
                else TopicMetadata(error=ErrorCode.none, name=topic, partitions=partitions)
                for topic in topics
            ),
        )

    def _write(self, message: ProduceRequest) -> object:
        responses: dict[object, ErrorCode] = {}
        for partition, data in produced_batches(message):
            records = list(DefaultRecordBatch(data))
            errors = [self.errors[r.value or b""] for r in records if r.value in self.errors]
            responses[partition] = errors[0] if errors else ErrorCode.none
            if not errors:
                self.written += [(partition.topic, record.key, record.value) for record in records]
                self.headers += [list(record.headers) for record in records]
        return produce_response(responses)  # type: ignore[arg-type]
