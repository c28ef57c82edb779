"""The clients that run an async handler on each record, and two that bound what they can reach.

All give each value to the same ``Handler`` and end when it says so. Each imports its client only
when it is used.
"""

from __future__ import annotations

import asyncio
import tempfile
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from asyncrevoke.journal import Journal
    from benchmarks.aiokafka_types import Reader, Received


class Group(NamedTuple):
    """Where a client reads, as the only member of a new group, and how many handlers run."""

    bootstrap: str
    topic: str
    name: str
    concurrency: int


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
    from asyncrevoke.journal import Journal  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        await _asyncrevoke(group, handler, Journal(folder))


async def _asyncrevoke(group: Group, handler: Handler, journal: Journal | None) -> None:
    from asyncrevoke import Consumer  # noqa: PLC0415

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
    from asyncrevoke import Consumer  # noqa: PLC0415

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
    from faststream.kafka import KafkaBroker  # noqa: PLC0415

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


def _reader(group: Group) -> Reader:
    from aiokafka import AIOKafkaConsumer  # noqa: PLC0415

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
OURS_ON_UVLOOP = "asyncrevoke on uvloop"
HOTTEST_ALONE = "the hottest key's handlers in a row"

CLIENTS: dict[str, Client] = {
    OURS: asyncrevoke,
    OUR_LOOP: asyncrevoke_sequential,
    JOURNAL: asyncrevoke_journal,
    OURS_ON_UVLOOP: asyncrevoke,
    "aiokafka, bare getmany()": aiokafka_bare,
    "aiokafka, handlers in a row": aiokafka_sequential,
    "aiokafka, a task per record": aiokafka_tasks,
    "FastStream, default": faststream,
    "FastStream, max_workers": faststream_workers,
    HOTTEST_ALONE: hottest_alone,
}
