"""One member of a group, a process: ``python member.py CLIENT OPTIONS``, OPTIONS as JSON.

It prints what it does in the words of Kafka's VerifiableConsumer, one JSON object a line, commits
what it has printed after each poll and before it gives anything up, and leaves upon SIGTERM.
Without ``assignors`` it is a member by KIP-848.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

SESSION_MS = 10_000
HEARTBEAT_MS = 300


def tell(name: str, **fields: object) -> None:
    sys.stdout.write(json.dumps({"name": name, **fields}) + "\n")
    sys.stdout.flush()


def tell_partitions(name: str, partitions: Iterable[Any]) -> None:
    listed = [{"topic": tp.topic, "partition": tp.partition} for tp in partitions]
    if listed:
        tell(name, partitions=listed)


def tell_record(partition: int, offset: int, value: bytes | None) -> None:
    tell("record_data", partition=partition, offset=offset, value=(value or b"-1").decode())


def tell_commit(offsets: Mapping[int, int]) -> None:
    listed = [{"partition": number, "offset": offset} for number, offset in offsets.items()]
    tell("offsets_committed", offsets=listed, success=True)


class Pending:
    """What was read and is not committed yet.

    While a cooperative group rebalances, these clients have their commits rejected although they
    keep the partition: so it is tried again after the next poll, and before a partition goes.
    """

    def __init__(self, commit: Callable[[Mapping[int, int]], object], rejections: Any) -> None:
        self._commit = commit
        self._rejections = rejections
        self._ends: dict[int, int] = {}

    def read(self, partition: int, offset: int, value: bytes | None) -> None:
        tell_record(partition, offset, value)
        self._ends[partition] = offset + 1

    def flush(self) -> bool:
        if self._ends:
            try:
                self._commit(self._ends)
            except self._rejections as error:
                sys.stderr.write(f"commit rejected: {error}\n")
                return False
            tell_commit(self._ends)
            self._ends = {}
        return True

    def flush_for_good(self) -> None:
        deadline = time.monotonic() + 10
        while not self.flush() and time.monotonic() < deadline:
            time.sleep(0.1)  # there is nothing to wait for: the group tells nobody


# --- this library -------------------------------------------------------------------------------


async def ours(options: Mapping[str, Any], stop: asyncio.Event) -> None:
    from asyncrevoke import Consumer, RebalanceListener

    class Listener(RebalanceListener):
        def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            tell_partitions("partitions_assigned", assigned)

        def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            tell_partitions("partitions_revoked", revoked)

        def on_partitions_lost(self, lost: Iterable[Any]) -> None:
            tell_partitions("partitions_lost", lost)

    protocol: dict[str, Any] = {"group_protocol": "consumer"}
    if options["assignors"]:
        protocol = {
            "assignors": tuple(options["assignors"]),
            "session_timeout": SESSION_MS / 1000,
        }
    consumer = Consumer(
        options["topic"],
        listener=Listener(),
        bootstrap_servers=options["bootstrap_servers"],
        group_id=options["group_id"],
        client_id=options["client_id"],
        heartbeat_interval=HEARTBEAT_MS / 1000,
        **protocol,
    )

    async def end() -> None:
        await stop.wait()
        consumer.stop()

    async with consumer, asyncio.TaskGroup() as tasks:
        ending = tasks.create_task(end())
        async for batch in consumer:
            for record in batch.records:
                tell_record(record.partition, record.offset, record.value)
        ending.cancel()


# --- aiokafka, and the frameworks that are built on it ------------------------------------------


class Reading:
    """A rebalance waits for what is being read, and what is fetched during or before one is not
    read after it: the next owner reads it."""

    def __init__(self) -> None:
        self.rebalances = 0
        self._busy = asyncio.Lock()
        self._rebalancing = False

    async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self.rebalances += 1
        self._rebalancing = True
        async with self._busy:
            tell_partitions("partitions_revoked", revoked)

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._rebalancing = False
        tell_partitions("partitions_assigned", assigned)

    async def read(
        self,
        records: Iterable[Any],
        commit: Callable[..., Awaitable[object]],
        fetched_after: int | None = None,
    ) -> None:
        """Read and commit; ``fetched_after`` so many rebalances, if some may have ended since."""
        async with self._busy:
            if self._rebalancing or fetched_after not in (None, self.rebalances):
                return
            ends: dict[Any, int] = {}
            for record in records:
                tell_record(record.partition, record.offset, record.value)
                ends[record.topic, record.partition] = record.offset + 1
            if ends:
                await commit(ends)
                tell_commit({number: offset for (_, number), offset in ends.items()})


def aiokafka_options(options: Mapping[str, Any]) -> dict[str, Any]:
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    assignors = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
    }
    return {
        "group_id": options["group_id"],
        "partition_assignment_strategy": tuple(assignors[name] for name in options["assignors"]),
        "auto_offset_reset": "earliest",
        "session_timeout_ms": SESSION_MS,
        "heartbeat_interval_ms": HEARTBEAT_MS,
        "rebalance_timeout_ms": 60_000,
    }


async def aiokafka(options: Mapping[str, Any], stop: asyncio.Event) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.structs import TopicPartition

    consumer: Any = AIOKafkaConsumer(
        bootstrap_servers=options["bootstrap_servers"],
        client_id=options["client_id"],
        enable_auto_commit=False,
        **aiokafka_options(options),
    )

    async def commit(ends: Mapping[Any, int]) -> None:
        await consumer.commit({TopicPartition(*place): end for place, end in ends.items()})

    ConsumerRebalanceListener.register(Reading)  # it asks for an instance
    reading = Reading()
    consumer.subscribe([options["topic"]], listener=reading)
    await consumer.start()
    try:
        while not stop.is_set():
            batches = await consumer.getmany(timeout_ms=100)
            await reading.read((each for batch in batches.values() for each in batch), commit)
    finally:
        await consumer.stop()


async def faststream(options: Mapping[str, Any], stop: asyncio.Event) -> None:
    from aiokafka import ConsumerRebalanceListener
    from faststream import AckPolicy, BaseMiddleware
    from faststream.kafka import KafkaBroker, KafkaMessage

    ConsumerRebalanceListener.register(Reading)
    reading: Any = Reading()
    fetched_after = 0

    # FastStream takes a record from aiokafka, and waits for a thread that prepares the handler's
    # arguments. A rebalance does not wait for this. The handler is called even if the record's
    # partition is gone, and then ack() commits the positions of the other partitions alone.
    class Fetched(BaseMiddleware[Any, Any]):
        async def on_receive(self) -> None:
            nonlocal fetched_after
            fetched_after = reading.rebalances

    # The default logger writes to the standard output; this one writes errors to the process log.
    broker = KafkaBroker(
        options["bootstrap_servers"],
        client_id=options["client_id"],
        logger=logging.getLogger("faststream"),
        middlewares=[Fetched],
    )

    async def handle(message: Any) -> None:
        async def commit(_ends: object) -> None:
            await message.ack()

        await reading.read([message.raw_message], commit, fetched_after)

    handle.__annotations__["message"] = KafkaMessage  # FastStream reads it
    broker.subscriber(
        options["topic"],
        ack_policy=AckPolicy.MANUAL,
        listener=reading,
        **aiokafka_options(options),
    )(handle)
    async with broker:
        await broker.start()
        await stop.wait()


async def kstreams(options: Mapping[str, Any], stop: asyncio.Event) -> None:
    from aiokafka import ConsumerRebalanceListener
    from kstreams import ConsumerRecord, Stream, TopicPartition, create_engine
    from kstreams.backends.kafka import Kafka

    ConsumerRebalanceListener.register(Reading)
    reading: Any = Reading()
    backend: Any = Kafka(bootstrap_servers=[options["bootstrap_servers"]])
    engine: Any = create_engine(title=options["client_id"], backend=backend)

    async def handle(record: Any, stream: Any) -> None:
        async def commit(ends: Mapping[Any, int]) -> None:
            await stream.commit({TopicPartition(*place): end for place, end in ends.items()})

        await reading.read([record], commit)

    handle.__annotations__.update(record=ConsumerRecord, stream=Stream)  # kstreams reads them
    engine.stream(
        options["topic"],
        rebalance_listener=reading,
        client_id=options["client_id"],
        enable_auto_commit=False,
        **aiokafka_options(options),
    )(handle)
    await engine.start()
    await stop.wait()
    await engine.stop()


# --- librdkafka ---------------------------------------------------------------------------------


def librdkafka(options: Mapping[str, Any], stop: threading.Event) -> None:
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    cooperative = options["assignors"] in (["cooperative-sticky"], [])
    protocol = {"group.protocol": "consumer"}
    if options["assignors"]:
        protocol = {
            "partition.assignment.strategy": ",".join(options["assignors"]),
            "session.timeout.ms": str(SESSION_MS),
            "heartbeat.interval.ms": str(HEARTBEAT_MS),
        }
    consumer: Any = Consumer(
        {
            "bootstrap.servers": options["bootstrap_servers"],
            "group.id": options["group_id"],
            "client.id": options["client_id"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **protocol,
        }
    )

    def assigned(consumer: Any, partitions: list[Any]) -> None:
        tell_partitions("partitions_assigned", partitions)
        (consumer.incremental_assign if cooperative else consumer.assign)(partitions)

    def revoked(consumer: Any, partitions: list[Any]) -> None:
        pending.flush_for_good()
        tell_partitions("partitions_revoked", partitions)
        if cooperative:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()

    def commit(ends: Mapping[int, int]) -> None:
        places = [TopicPartition(options["topic"], number, end) for number, end in ends.items()]
        consumer.commit(offsets=places, asynchronous=False)

    pending = Pending(commit, KafkaException)
    consumer.subscribe([options["topic"]], on_assign=assigned, on_revoke=revoked)
    while not stop.is_set():
        message = consumer.poll(0.1)
        if message is None or message.error():
            continue
        pending.read(message.partition(), message.offset(), message.value())
        pending.flush()
    pending.flush_for_good()
    consumer.close()


# --- kafka-python -------------------------------------------------------------------------------


def kafka_python(options: Mapping[str, Any], stop: threading.Event) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata, TopicPartition

    assignors: dict[str, Any] = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }

    class Listener:
        def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            tell_partitions("partitions_assigned", assigned)

        def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            pending.flush_for_good()
            tell_partitions("partitions_revoked", revoked)

    consumer: Any = KafkaConsumer(
        bootstrap_servers=options["bootstrap_servers"],
        group_id=options["group_id"],
        client_id=options["client_id"],
        partition_assignment_strategy=[assignors[name] for name in options["assignors"]],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )

    def commit(ends: Mapping[int, int]) -> None:
        consumer.commit(
            {
                TopicPartition(options["topic"], number): OffsetAndMetadata(end, "", -1)
                for number, end in ends.items()
            }
        )

    pending = Pending(commit, KafkaError)
    ConsumerRebalanceListener.register(Listener)  # it asks for an instance
    consumer.subscribe([options["topic"]], listener=Listener())
    while not stop.is_set():
        for records in consumer.poll(timeout_ms=100).values():
            for record in records:
                pending.read(record.partition, record.offset, record.value)
        pending.flush()
    pending.flush_for_good()
    consumer.close()


# --- all of them --------------------------------------------------------------------------------

IN_A_LOOP: dict[str, Callable[..., Any]] = {
    "ours": ours,
    "aiokafka": aiokafka,
    "faststream": faststream,
    "kstreams": kstreams,
}
IN_A_THREAD: dict[str, Callable[..., Any]] = {
    "librdkafka": librdkafka,
    "kafka-python": kafka_python,
}


async def run_in_a_loop(client: str, options: Mapping[str, Any]) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await IN_A_LOOP[client](options, stop)


def main(client: str, options: Mapping[str, Any]) -> None:
    if client in IN_A_LOOP:
        asyncio.run(run_in_a_loop(client, options))
        return
    stop = threading.Event()

    def end(_number: int, _frame: object) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, end)
    IN_A_THREAD[client](options, stop)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
