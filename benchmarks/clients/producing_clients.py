"""The producers that are compared, with ``acks=all`` and idempotence.

Each imports its client only when it is used.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from contextlib import AbstractAsyncContextManager

OURS = "asyncrevoke"


class Writing(NamedTuple):
    """What is to be written: ``total`` records of ``size`` bytes, with the ``keys`` in turn."""

    bootstrap: str
    topic: str
    total: int
    size: int
    keys: Sequence[bytes | None]


class Written(NamedTuple):
    """Records per second of the clock, and per second that the process was on a core."""

    clock: float
    cpu: float


class Send(Protocol):
    """Queues a record, and returns what is awaited for its acknowledgement."""

    async def __call__(self, key: bytes | None) -> Awaitable[object]:
        """Queue a record with this key."""
        ...


class Client(NamedTuple):
    """``send`` queues, ``publish`` returns when the record is acknowledged, ``flush`` waits for all
    that are queued."""

    send: Send
    publish: Callable[[], Awaitable[object]]
    flush: Callable[[], Awaitable[object]]


async def write_all(client: Client, writing: Writing) -> Written:
    """Queue all records, then wait for all acknowledgements."""
    _ = await client.publish()
    keys, count = writing.keys, len(writing.keys)
    send = client.send
    began, cpu = time.perf_counter(), time.process_time()
    sent = [await send(keys[number % count]) for number in range(writing.total - 1)]
    _ = await client.flush()
    for acknowledgement in sent:
        _ = await acknowledgement
    seconds = time.perf_counter() - began
    return Written(len(sent) / seconds, len(sent) / (time.process_time() - cpu))


async def write_at(client: Client, writing: Writing, rate: float) -> list[float]:
    """Publish a record each ``1 / rate`` seconds, whether or not those before are acknowledged.

    Returns the seconds that each call has taken from when it was due, without the first tenth.
    """
    _ = await client.publish()
    delays: list[float] = []
    clock = time.perf_counter
    begin = clock()

    async def publish(due: float) -> None:
        _ = await client.publish()
        delays.append(clock() - due)

    async with asyncio.TaskGroup() as calls:
        for number in range(writing.total - 1):
            due = begin + number / rate
            if (early := due - clock()) > 0:
                await asyncio.sleep(early)
            _ = calls.create_task(publish(due))
    return delays[len(delays) // 10 :]


def asyncrevoke(writing: Writing) -> AbstractAsyncContextManager[Client]:
    """``publish_soon()``, and ``publish()``."""
    from asyncrevoke import Producer

    @asynccontextmanager
    async def opened() -> AsyncGenerator[Client]:
        topic, value = writing.topic, b"x" * writing.size
        async with Producer(bootstrap_servers=writing.bootstrap) as producer:
            publish_soon = producer.publish_soon

            async def send(key: bytes | None) -> Awaitable[object]:
                return await publish_soon(topic, value, key=key)

            yield Client(send, lambda: producer.publish(topic, value), producer.flush)

    return opened()


def aiokafka(writing: Writing) -> AbstractAsyncContextManager[Client]:
    """``send()``, and ``send_and_wait()``."""
    from aiokafka import AIOKafkaProducer

    @asynccontextmanager
    async def opened() -> AsyncGenerator[Client]:
        topic, value = writing.topic, b"x" * writing.size
        # Its methods are half typed.
        made = cast("Any", AIOKafkaProducer)
        async with made(
            bootstrap_servers=writing.bootstrap, acks="all", enable_idempotence=True
        ) as producer:
            queue = producer.send

            async def send(key: bytes | None) -> Awaitable[object]:
                return cast("Awaitable[object]", await queue(topic, value, key))

            yield Client(send, lambda: producer.send_and_wait(topic, value), producer.flush)

    return opened()


def confluent(writing: Writing) -> AbstractAsyncContextManager[Client]:
    """``AIOProducer.produce()`` with its defaults."""
    return _confluent(writing, {}, {})


def confluent_tuned(writing: Writing) -> AbstractAsyncContextManager[Client]:
    """The same, which passes each record on at once: ``batch_size=1`` and ``linger.ms=0``."""
    return _confluent(writing, {"linger.ms": 0}, {"batch_size": 1})


def _confluent(
    writing: Writing, config: dict[str, object], options: dict[str, int]
) -> AbstractAsyncContextManager[Client]:
    from confluent_kafka.aio import AIOProducer

    @asynccontextmanager
    async def opened() -> AsyncGenerator[Client]:
        topic, value = writing.topic, b"x" * writing.size
        made = cast("Any", AIOProducer)
        producer = made(
            {
                "bootstrap.servers": writing.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                **config,
            },
            **options,
        )
        produce = producer.produce

        async def send(key: bytes | None) -> Awaitable[object]:
            return cast("Awaitable[object]", await produce(topic, value, key=key))

        async def publish() -> object:
            return await (await produce(topic, value))

        try:
            yield Client(send, publish, producer.flush)
        finally:
            await producer.close()

    return opened()


CLIENTS = {
    OURS: asyncrevoke,
    "aiokafka": aiokafka,
    "confluent-kafka, AIOProducer": confluent,
}
TIMED = CLIENTS | {"confluent-kafka, AIOProducer, tuned": confluent_tuned}
