"""The clients that run an async handler on each record, and two that bound what they can reach.

All give each value to the same ``Handler`` and end when it says so. Each imports its client only
when it is used.
"""

from __future__ import annotations

import asyncio
import importlib
import tempfile
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable

    from asyncrevoke.journal import Journal
    from benchmarks.clients.aiokafka_types import Reader, Received
    from benchmarks.clients.java_clients import Told


class Group(NamedTuple):
    """Where a client reads, as the only member of a new group, and how many handlers run.

    A client that is a program of its own is told how many records there are, and for how many
    seconds a handler sleeps.
    """

    bootstrap: str
    topic: str
    name: str
    concurrency: int
    total: int = 0
    handler_time: float = 0.0
    partitions: int = 8


class Handler(Protocol):
    """What is done with each value."""

    # Set when the last record has been handled.
    finished: asyncio.Event

    def look(self, size: int, records: int) -> None:
        """A bare loop has looked at so many records, of so many bytes."""
        ...

    async def handle(self, value: bytes) -> None:
        """What the handlers of all clients do."""
        ...

    def report(self, told: Told) -> None:
        """A program of its own has handled all of it, doing the same."""
        ...


class Client(Protocol):
    """Reads until ``handler.finished``."""

    async def __call__(self, group: Group, handler: Handler) -> None:
        """Give each record's value to the handler."""
        ...


async def asyncrevoke(group: Group, handler: Handler) -> None:
    """``@consumer.handler``, in the order of keys, with contiguous commits."""
    await _asyncrevoke(group, handler, None)


async def asyncrevoke_journal(group: Group, handler: Handler) -> None:
    """The same with a journal, in a temporary folder."""
    from asyncrevoke.journal import Journal

    with tempfile.TemporaryDirectory() as folder:
        await _asyncrevoke(group, handler, Journal(folder))


async def asyncrevoke_hashing_journal(group: Group, handler: Handler) -> None:
    """With a journal that has hashes of keys and values."""
    from asyncrevoke.journal import Journal

    with tempfile.TemporaryDirectory() as folder:
        await _asyncrevoke(group, handler, Journal(folder, content="records"))


async def asyncrevoke_bare_journal(group: Group, handler: Handler) -> None:
    """With a journal that has nothing of keys and values."""
    from asyncrevoke.journal import Journal

    with tempfile.TemporaryDirectory() as folder:
        await _asyncrevoke(group, handler, Journal(folder, content=None))


async def _asyncrevoke(group: Group, handler: Handler, journal: Journal | None) -> None:
    from asyncrevoke import Consumer

    consumer = Consumer(
        bootstrap_servers=group.bootstrap,
        group_id=group.name,
        concurrency=group.concurrency,
        journal=journal,
    )
    handle = handler.handle

    @consumer.handler(group.topic)
    async def by_key(value: bytes) -> None:
        await handle(value)

    async with consumer:
        await handler.finished.wait()


async def asyncrevoke_sequential(group: Group, handler: Handler) -> None:
    """``async for batch in consumer``, and each handler awaited before the next one."""
    from asyncrevoke import Consumer

    consumer = Consumer(group.topic, bootstrap_servers=group.bootstrap, group_id=group.name)
    async with consumer:
        async for batch in consumer:
            for record in batch.records:
                await handler.handle(record.value or b"")
            if handler.finished.is_set():
                consumer.stop()


async def aiokafka_bare(group: Group, handler: Handler) -> None:
    """``getmany()``, and a loop that only looks at the values: no handler is called."""
    async with _reader(group) as consumer:
        while not handler.finished.is_set():
            for records in (await consumer.getmany(timeout_ms=200)).values():
                size = 0
                for record in records:
                    size += len(record.value)
                handler.look(size, len(records))


async def aiokafka_sequential(group: Group, handler: Handler) -> None:
    """``getmany()``, and each handler awaited before the next one."""
    async with _reader(group) as consumer:
        while not handler.finished.is_set():
            for records in (await consumer.getmany(timeout_ms=200)).values():
                for record in records:
                    await handler.handle(record.value)


async def aiokafka_tasks(group: Group, handler: Handler) -> None:
    """``getmany()``, and a task for each record: no order, no count of what is done."""
    room = asyncio.Semaphore(group.concurrency)
    tasks: set[asyncio.Task[None]] = set()

    async def work(record: Received) -> None:
        try:
            await handler.handle(record.value)
        finally:
            room.release()

    async with _reader(group) as consumer:
        while not handler.finished.is_set():
            for records in (await consumer.getmany(timeout_ms=200)).values():
                for record in records:
                    await room.acquire()
                    task = asyncio.create_task(work(record))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)


async def faststream(group: Group, handler: Handler) -> None:
    """FastStream's default subscriber, which handles one record after another."""
    await _faststream(group, handler, {})


async def faststream_workers(group: Group, handler: Handler) -> None:
    """FastStream's subscriber with ``max_workers``, which keeps no order."""
    await _faststream(group, handler, {"max_workers": group.concurrency})


async def _faststream(group: Group, handler: Handler, settings: dict[str, int]) -> None:
    from faststream.kafka import KafkaBroker

    # A log line per record, as it has by default, would be measured instead.
    broker = KafkaBroker(group.bootstrap, logger=None)
    handle = handler.handle
    subscriber = cast(
        "Callable[..., Callable[[Callable[[bytes], Awaitable[None]]], object]]", broker.subscriber
    )

    @subscriber(group.topic, group_id=group.name, auto_offset_reset="earliest", **settings)
    async def each(msg: bytes) -> None:
        await handle(msg)

    await broker.start()
    try:
        await handler.finished.wait()
    finally:
        await broker.stop()


async def faststream_concurrent(group: Group, handler: Handler) -> None:
    """faststream-concurrent-aiokafka: a task for each record, and contiguous commits."""
    from faststream.kafka import KafkaBroker
    from faststream.middlewares import AckPolicy
    from faststream_concurrent_aiokafka import (
        ConsumerRebalanceListener,
        KafkaConcurrentProcessingMiddleware,
        initialize_concurrent_processing,
        stop_concurrent_processing,
    )

    broker = KafkaBroker(group.bootstrap, logger=None)
    broker.add_middleware(KafkaConcurrentProcessingMiddleware)
    handle = handler.handle
    subscriber = cast(
        "Callable[..., Callable[[Callable[[bytes], Awaitable[None]]], object]]", broker.subscriber
    )

    @subscriber(
        group.topic,
        group_id=group.name,
        auto_offset_reset="earliest",
        ack_policy=AckPolicy.MANUAL,
        listener=ConsumerRebalanceListener.from_context(broker.context),
    )
    async def each(msg: bytes) -> None:
        await handle(msg)

    await initialize_concurrent_processing(
        context=broker.context,
        concurrency_limit=group.concurrency,
        commit_batch_size=100,
        commit_batch_timeout_sec=5.0,
    )
    await broker.start()
    try:
        await handler.finished.wait()
    finally:
        await broker.stop()
        await stop_concurrent_processing(broker.context)


async def kstreams(group: Group, handler: Handler) -> None:
    """A stream of kstreams, which handles one record after another."""
    from kstreams import ConsumerRecord, create_engine
    from kstreams.backends.kafka import Kafka

    # Its own class of producers does not fit its own types.
    backend = cast("Any", Kafka(bootstrap_servers=[group.bootstrap]))
    engine = create_engine(title="benchmark", backend=backend)
    handle = handler.handle

    async def each(cr: Received) -> None:
        await handle(cr.value)

    # It looks for the class itself, not for its name.
    each.__annotations__["cr"] = ConsumerRecord

    stream = cast(
        "Callable[..., Callable[[Callable[..., Awaitable[None]]], object]]", engine.stream
    )
    stream(group.topic, group_id=group.name, auto_offset_reset="earliest")(each)
    await engine.start()
    try:
        await handler.finished.wait()
    finally:
        await engine.stop()


async def faust(group: Group, handler: Handler) -> None:
    """An agent of faust-streaming, which handles one record after another."""
    await _faust(group, handler, 1)


async def faust_concurrent(group: Group, handler: Handler) -> None:
    """An agent of faust-streaming with ``concurrency``, which keeps no order."""
    await _faust(group, handler, group.concurrency)


async def _faust(group: Group, handler: Handler, concurrency: int) -> None:
    # Not among the packages that types are checked with, see tox.ini.
    library: Any = importlib.import_module("faust")
    with tempfile.TemporaryDirectory() as folder:
        app = library.App(
            group.name,
            broker=f"kafka://{group.bootstrap}",
            value_serializer="raw",
            datadir=folder,
            web_enabled=False,
            topic_disable_leader=True,
            consumer_auto_offset_reset="earliest",
        )
        topic = app.topic(group.topic, value_type=bytes)
        handle = handler.handle

        async def each(stream: AsyncIterable[bytes]) -> None:
            async for value in stream:
                await handle(value)

        app.agent(topic, concurrency=concurrency)(each)
        app.finalize()
        await app.start()
        try:
            await handler.finished.wait()
        finally:
            await app.stop()


async def parallel_consumer_by_key(group: Group, handler: Handler) -> None:
    """Confluent's parallel-consumer on the JVM, in the order of keys."""
    await _parallel_consumer(group, handler, "KEY")


async def parallel_consumer_unordered(group: Group, handler: Handler) -> None:
    """Confluent's parallel-consumer on the JVM, in no order."""
    await _parallel_consumer(group, handler, "UNORDERED")


async def _parallel_consumer(group: Group, handler: Handler, ordering: str) -> None:
    from benchmarks.clients.java_clients import PARALLEL_CONSUMER, handle_all

    told = await handle_all(
        PARALLEL_CONSUMER,
        group.bootstrap,
        group.topic,
        group.name,
        group.total,
        group.concurrency,
        ordering,
        round(group.handler_time * 1000),
    )
    handler.report(told)


async def decaton(group: Group, handler: Handler) -> None:
    """LINE's Decaton on the JVM, in the order of keys; its threads are those of a partition."""
    from benchmarks.clients.java_clients import DECATON, handle_all

    told = await handle_all(
        DECATON,
        group.bootstrap,
        group.topic,
        group.name,
        group.total,
        max(group.concurrency // group.partitions, 1),
        round(group.handler_time * 1000),
    )
    handler.report(told)


async def kpipe(group: Group, handler: Handler) -> None:
    """KPipe on the JVM, in the order of keys; as many handlers run at once as there are keys."""
    from benchmarks.clients.java_clients import KPIPE, handle_all

    told = await handle_all(
        KPIPE,
        group.bootstrap,
        group.topic,
        group.name,
        group.total,
        round(group.handler_time * 1000),
    )
    handler.report(told)


async def confluent_aio(group: Group, handler: Handler) -> None:
    """``AIOConsumer.poll()``, and each handler awaited before the next one."""
    from confluent_kafka import KafkaException
    from confluent_kafka.aio import AIOConsumer

    settings = {
        "bootstrap.servers": group.bootstrap,
        "group.id": group.name,
        "auto.offset.reset": "earliest",
    }
    async with AIOConsumer(settings, max_workers=4) as consumer:
        await consumer.subscribe([group.topic])
        while not handler.finished.is_set():
            message = await consumer.poll(timeout=0.2)
            if message is None:
                continue
            if (error := message.error()) is not None:
                raise KafkaException(error)
            await handler.handle(message.value() or b"")


async def confluent_blocking(group: Group, handler: Handler) -> None:
    """``Consumer.poll()``, which blocks its thread until there is a record."""
    from confluent_kafka import Consumer, KafkaException

    consumer = Consumer(
        {
            "bootstrap.servers": group.bootstrap,
            "group.id": group.name,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([group.topic])
    try:
        while not handler.finished.is_set():
            message = consumer.poll(0.2)
            if message is None:
                continue
            if (error := message.error()) is not None:
                raise KafkaException(error)
            await handler.handle(message.value() or b"")
    finally:
        consumer.close()


def _reader(group: Group) -> Reader:
    from aiokafka import AIOKafkaConsumer

    return cast(
        "Reader",
        AIOKafkaConsumer(
            group.topic,
            bootstrap_servers=group.bootstrap,
            group_id=group.name,
            auto_offset_reset="earliest",
        ),
    )


async def hottest_alone(group: Group, handler: Handler) -> None:  # noqa: ARG001 - reads nothing
    """Handlers in a row and nothing else: what the order of one key allows."""
    while not handler.finished.is_set():
        await handler.handle(b"")


OURS = "asyncrevoke, handlers by key"
OUR_LOOP = "asyncrevoke, handlers in a row"
JOURNAL = "asyncrevoke, with a journal"
HASHING_JOURNAL = "asyncrevoke, journal with hashes"
BARE_JOURNAL = "asyncrevoke, journal without content"
OURS_ON_UVLOOP = "asyncrevoke on uvloop"
FASTSTREAM_CONCURRENT = "faststream-concurrent-aiokafka"
KSTREAMS = "kstreams"
FAUST = "faust-streaming"
FAUST_CONCURRENT = "faust-streaming, concurrency"
PARALLEL_BY_KEY = "parallel-consumer (JVM), KEY"
PARALLEL_UNORDERED = "parallel-consumer (JVM), UNORDERED"
DECATON = "Decaton (JVM)"
KPIPE = "KPipe (JVM), KEY_ORDERED"
CONFLUENT_AIO = "confluent AIOConsumer, poll()"
CONFLUENT = "confluent Consumer, poll()"
HOTTEST_ALONE = "the hottest key's handlers in a row"

CLIENTS: dict[str, Client] = {
    OURS: asyncrevoke,
    OUR_LOOP: asyncrevoke_sequential,
    JOURNAL: asyncrevoke_journal,
    HASHING_JOURNAL: asyncrevoke_hashing_journal,
    BARE_JOURNAL: asyncrevoke_bare_journal,
    OURS_ON_UVLOOP: asyncrevoke,
    "aiokafka, bare getmany()": aiokafka_bare,
    "aiokafka, handlers in a row": aiokafka_sequential,
    "aiokafka, a task per record": aiokafka_tasks,
    "FastStream, default": faststream,
    "FastStream, max_workers": faststream_workers,
    FASTSTREAM_CONCURRENT: faststream_concurrent,
    KSTREAMS: kstreams,
    FAUST: faust,
    FAUST_CONCURRENT: faust_concurrent,
    PARALLEL_BY_KEY: parallel_consumer_by_key,
    PARALLEL_UNORDERED: parallel_consumer_unordered,
    DECATON: decaton,
    KPIPE: kpipe,
    CONFLUENT_AIO: confluent_aio,
    CONFLUENT: confluent_blocking,
    HOTTEST_ALONE: hottest_alone,
}
