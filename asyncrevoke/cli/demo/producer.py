"""Produces the demo's orders at a constant rate, and reports the acknowledged ones."""

# aiokafka has types in parts.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
from aiokafka import AIOKafkaProducer

from asyncrevoke.cli.demo.group_result import Produced
from asyncrevoke.cli.demo.workload import now, orders
from asyncrevoke.client.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aiokafka.structs import RecordMetadata

TICK = 0.01


async def produce(
    bootstrap_servers: str,
    topics: Sequence[str],
    *,
    rate: float,
    seconds: float,
    acknowledged: Callable[[str, Produced], None],
) -> None:
    """Produce the same orders to each topic, ``rate`` a second, for ``seconds``. Cancelling stops
    the producer.

    ``acknowledged`` is called with the topic and each record that a broker has acknowledged. Raises
    KafkaError if a record could not be produced.
    """
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, enable_idempotence=True)
    encode = msgspec.json.Encoder().encode
    await producer.start()
    try:
        source = orders()
        sent = 0
        begin = now()
        pending: list[asyncio.Future[RecordMetadata]] = []
        while (elapsed := now() - begin) < seconds:
            while sent < elapsed * rate:
                order = next(source)
                sent += 1
                for topic in topics:
                    future = await producer.send(topic, encode(order), key=order.customer.encode())
                    pending.append(future)
                    future.add_done_callback(_acknowledge(topic, order.customer, acknowledged))
            pending = [future for future in pending if _unfinished(future)]
            await asyncio.sleep(TICK)
        await producer.flush()
        for future in pending:
            future.result()
    finally:
        await producer.stop()


def _unfinished(future: asyncio.Future[RecordMetadata]) -> bool:
    if future.done():
        future.result()  # raises the error of the producer
        return False
    return True


def _acknowledge(
    topic: str, key: str, acknowledged: Callable[[str, Produced], None]
) -> Callable[[asyncio.Future[RecordMetadata]], None]:
    def done(future: asyncio.Future[RecordMetadata]) -> None:
        if future.cancelled() or future.exception() is not None:
            return
        metadata = future.result()
        partition = TopicPartition(topic, metadata.partition)
        acknowledged(topic, Produced(partition, metadata.offset, key, now()))

    return done
