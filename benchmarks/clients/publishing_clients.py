"""The clients whose handlers publish one result for each record, and await nothing else.

The topic of the results is that of the records with ``-results`` after it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from benchmarks.clients.handler_clients import OURS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from benchmarks.clients.aiokafka_types import Reader
    from benchmarks.clients.handler_clients import Client, Group, Handler


def results_topic(topic: str) -> str:
    """Where the results of a topic's records go."""
    return f"{topic}-results"


async def asyncrevoke(group: Group, handler: Handler) -> None:
    """``publish_to``, with as many records in flight as ``getmany()`` returns of five partitions:
    the default of 2,000 in the time of an acknowledgement would be the limit."""
    from asyncrevoke import Consumer

    consumer = Consumer(
        bootstrap_servers=group.bootstrap,
        group_id=group.name,
        concurrency=group.concurrency,
        max_in_flight=10_000,
    )
    handle = handler.handle

    @consumer.handler(group.topic, publish_to=results_topic(group.topic))
    async def by_key(value: bytes) -> bytes:
        await handle(value)
        return value

    async with consumer:
        await handler.finished.wait()


async def aiokafka_send(group: Group, handler: Handler) -> None:
    """``getmany()``, a handler after the other, and ``send()`` for each result with ``acks=all``
    and idempotence; the acknowledgements of a batch of records are awaited together."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    topic = results_topic(group.topic)
    reader = cast(
        "Reader",
        AIOKafkaConsumer(
            group.topic,
            bootstrap_servers=group.bootstrap,
            group_id=group.name,
            auto_offset_reset="earliest",
        ),
    )
    # Its methods are half typed.
    producer = cast(
        "Any",
        AIOKafkaProducer(bootstrap_servers=group.bootstrap, acks="all", enable_idempotence=True),
    )
    async with reader as consumer, producer:
        while not handler.finished.is_set():
            for records in (await consumer.getmany(timeout_ms=200)).values():
                sent: list[Awaitable[object]] = []
                for record in cast("Iterable[Any]", records):
                    await handler.handle(record.value)
                    sent.append(await producer.send(topic, record.value, record.key))
                await asyncio.gather(*sent)


async def faststream_publisher(group: Group, handler: Handler) -> None:
    """FastStream's ``@publisher``, which awaits each acknowledgement."""
    from faststream.kafka import KafkaBroker

    broker = KafkaBroker(group.bootstrap, logger=None)
    handle = handler.handle
    subscriber = cast(
        "Callable[..., Callable[[Callable[[bytes], Awaitable[bytes]]], object]]", broker.subscriber
    )
    publisher = cast(
        "Callable[..., Callable[..., Callable[[bytes], Awaitable[bytes]]]]", broker.publisher
    )

    async def each(msg: bytes) -> bytes:
        await handle(msg)
        return msg

    publishing = publisher(results_topic(group.topic))(each)
    subscriber(group.topic, group_id=group.name, auto_offset_reset="earliest")(publishing)
    await broker.start()
    try:
        await handler.finished.wait()
    finally:
        await broker.stop()


AIOKAFKA_SEND = "aiokafka, send()"
FASTSTREAM_PUBLISHER = "FastStream, @publisher"
PUBLISHING: dict[str, Client] = {
    OURS: asyncrevoke,
    AIOKAFKA_SEND: aiokafka_send,
    FASTSTREAM_PUBLISHER: faststream_publisher,
}
