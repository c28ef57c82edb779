"""The clients that are compared, each written with care and as its documentation tells.

All do the same: deliver what comes; when partitions are asked back, finish what is in work of
them, commit it, then give them up. Each imports its client only when it is used, so that no member
pays for another one; ``work.begin`` marks when that is done.
"""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Unpack

    from asyncrevoke.client.config import ConsumerOptions
    from benchmarks.clients.aiokafka_types import Partition, Reader
    from benchmarks.workload.stall_work import Work


class Group(NamedTuple):
    """Where a client reads."""

    bootstrap: str
    topic: str
    name: str


class Client(Protocol):
    """Reads as a member of ``group`` until ``stop`` is set."""

    async def __call__(self, group: Group, work: Work, stop: asyncio.Event) -> None:
        """Deliver every record to ``work``; leave the group at the end."""
        ...


async def asyncrevoke_cooperative(group: Group, work: Work, stop: asyncio.Event) -> None:
    """Records count when they are acknowledged; a revoke is delayed while some are not."""
    await _asyncrevoke(group, work, stop, assignors=("cooperative-sticky",))


async def asyncrevoke_eager(group: Group, work: Work, stop: asyncio.Event) -> None:
    """The same with an assignor that makes everybody give up everything."""
    await _asyncrevoke(group, work, stop, assignors=("range",))


async def asyncrevoke_kip848(group: Group, work: Work, stop: asyncio.Event) -> None:
    """The same in a group whose coordinator assigns."""
    await _asyncrevoke(group, work, stop, group_protocol="consumer")


async def _asyncrevoke(
    group: Group, work: Work, stop: asyncio.Event, **options: Unpack[ConsumerOptions]
) -> None:
    from asyncrevoke import Consumer, Record

    # With the others, importing a client loads it.
    importlib.import_module("asyncrevoke.client.runtime.session.open_session")

    def acknowledge(record: Record) -> Callable[[], object]:
        return lambda: consumer.ack(record)

    options["bootstrap_servers"] = group.bootstrap
    options["group_id"] = group.name
    options["commit_mode"] = "ack"
    consumer = Consumer(group.topic, **options)
    work.begin()
    async with consumer:
        ending = asyncio.create_task(_then(stop, consumer.stop))
        async for records, to_be_revoked, _ in consumer:
            work.asked_back(tp.partition for tp in to_be_revoked)
            for record in records:
                work.take(record.partition, record.offset, acknowledge(record))
        await ending


async def aiokafka_eager(group: Group, work: Work, stop: asyncio.Event) -> None:
    """The only protocol of aiokafka; its listener waits and commits before the group goes on."""
    from aiokafka import AIOKafkaConsumer, TopicPartition
    from aiokafka.abc import ConsumerRebalanceListener

    class Drain:
        async def on_partitions_revoked(self, revoked: Iterable[Partition]) -> None:
            numbers = [number for _, number in revoked]
            work.asked_back(numbers)
            await work.drained(numbers)
            offsets = work.committable(numbers)
            if offsets:
                await consumer.commit(
                    {TopicPartition(group.topic, n): offset for n, offset in offsets.items()}
                )

        async def on_partitions_assigned(self, assigned: Iterable[Partition]) -> None:
            """Positions are the committed offsets already."""

    ConsumerRebalanceListener.register(Drain)
    consumer = cast(
        "Reader",
        AIOKafkaConsumer(
            bootstrap_servers=group.bootstrap,
            group_id=group.name,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        ),
    )
    consumer.subscribe([group.topic], listener=Drain())
    work.begin()
    async with consumer:
        while not stop.is_set():
            for records in (await consumer.getmany(timeout_ms=200)).values():
                for record in records:
                    work.take(record.partition, record.offset)


async def confluent_cooperative(group: Group, work: Work, stop: asyncio.Event) -> None:
    """The cooperative-sticky of librdkafka under ``AIOConsumer``."""
    await _confluent(group, work, stop, {"partition.assignment.strategy": "cooperative-sticky"})


async def confluent_kip848(group: Group, work: Work, stop: asyncio.Event) -> None:
    """The KIP-848 of librdkafka under ``AIOConsumer``."""
    await _confluent(group, work, stop, {"group.protocol": "consumer"})


async def _confluent(
    group: Group, work: Work, stop: asyncio.Event, settings: dict[str, str]
) -> None:
    from confluent_kafka import KafkaError, KafkaException, TopicPartition
    from confluent_kafka.aio import AIOConsumer

    async def on_revoke(consumer: AIOConsumer, revoked: list[TopicPartition]) -> None:
        numbers = [tp.partition for tp in revoked]
        work.asked_back(numbers)
        await work.drained(numbers)
        offsets = [
            TopicPartition(group.topic, n, offset)
            for n, offset in work.committable(numbers).items()
        ]
        if offsets:
            await consumer.commit(offsets=offsets, asynchronous=False)

    work.begin()
    async with AIOConsumer(
        {
            "bootstrap.servers": group.bootstrap,
            "group.id": group.name,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **settings,
        },
        max_workers=4,
    ) as consumer:
        await consumer.subscribe([group.topic], on_revoke=on_revoke)
        while not stop.is_set():
            # One at a time: consume() would come back only when its batch is full or time is up.
            message = await consumer.poll(timeout=0.2)
            if message is None:
                continue
            error = message.error()
            if error is None:
                work.take(message.partition(), message.offset())
            elif error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                raise KafkaException(error)


async def _then(stop: asyncio.Event, call: Callable[[], object]) -> None:
    await stop.wait()
    call()


CLIENTS: dict[str, Client] = {
    "asyncrevoke cooperative-sticky": asyncrevoke_cooperative,
    "asyncrevoke range (eager)": asyncrevoke_eager,
    "asyncrevoke KIP-848": asyncrevoke_kip848,
    "aiokafka (eager)": aiokafka_eager,
    "confluent AIOConsumer cooperative-sticky": confluent_cooperative,
    "confluent AIOConsumer KIP-848": confluent_kip848,
}
