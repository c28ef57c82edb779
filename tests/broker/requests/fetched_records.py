"""Produces records to a real Apache Kafka and reads them by single Fetch requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokafka import AIOKafkaProducer

from asyncrevoke.client.core.io.effects import Channel
from asyncrevoke.client.protocol import messages
from asyncrevoke.client.protocol.messages import ErrorCode
from asyncrevoke.client.protocol.records import decode_batches

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.requests.wire_client import WireClient

    from asyncrevoke.client.model import Record, TopicPartition


async def produce(
    servers: str, topic: str, count: int, compression: str | None = None, partition: int = 0
) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=servers, compression_type=compression)
    await producer.start()
    try:
        for number in range(count):
            await producer.send(
                topic,
                b"value %d" % number,
                key=b"key %d" % number,
                partition=partition,
                timestamp_ms=1000 + number,
                headers=[("number", b"%d" % number)],
            )
    finally:
        await producer.stop()


def fetch_request(
    partition: TopicPartition,
    offset: int,
    *,
    committed: bool,
    topic_ids: dict[str, bytes] | None = None,
    max_wait: float = 5.0,
) -> messages.FetchRequest:
    return messages.FetchRequest(
        partitions=(messages.FetchPartition(partition=partition, offset=offset, max_bytes=2**20),),
        max_wait=max_wait,
        min_bytes=1,
        max_bytes=2**20,
        read_committed=committed,
        topic_ids=topic_ids,
    )


async def read_all(
    client: WireClient,
    partition: TopicPartition,
    committed: bool,
    enough: Callable[[list[Record], int], bool],
    topic_ids: dict[str, bytes] | None = None,
) -> tuple[list[Record], int]:
    """The records from offset 0 until it is ``enough``, and the position after them."""
    records: list[Record] = []
    position = 0
    while not enough(records, position):
        response = await client.ask(
            fetch_request(partition, position, committed=committed, topic_ids=topic_ids),
            messages.FetchResponse,
            Channel.FETCH,
        )
        (fetched,) = response.partitions
        assert fetched.error is ErrorCode.none
        for batch in decode_batches(fetched, committed):
            records += batch.decode(partition.topic, partition.partition, 1, position)
            position = max(position, batch.next_offset)
    return records, position
