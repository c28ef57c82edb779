"""The clients that publish a result of each record, with the offsets in transactions (KIP-447).

Each does so as its documentation tells, and imports its client only when it is used.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from typing import TYPE_CHECKING, Protocol

from benchmarks.exactly_once.turn import WARM_UP, Turn

if TYPE_CHECKING:
    from typing import Unpack

    from confluent_kafka import Consumer, Message, Producer

    from asyncrevoke.client.config import ConsumerOptions
    from benchmarks.exactly_once.turn import Task
    from benchmarks.workload.stall_member import Pipe


class Client(Protocol):
    """Handles and publishes ``task.total`` records, or as few more as it has to."""

    async def __call__(self, task: Task, turn: Turn) -> None:
        """Returns when the results are committed."""
        ...


async def exactly_once(task: Task, turn: Turn) -> None:
    """``processing="exactly_once"`` in a classic group."""
    await _asyncrevoke(task, turn, processing="exactly_once", transaction_interval=task.interval)


async def exactly_once_kip848(task: Task, turn: Turn) -> None:
    """The same in a group whose coordinator assigns."""
    await _asyncrevoke(
        task,
        turn,
        processing="exactly_once",
        transaction_interval=task.interval,
        group_protocol="consumer",
    )


async def at_least_once(task: Task, turn: Turn) -> None:
    """The same handlers in a classic group without transactions."""
    await _asyncrevoke(task, turn, group_protocol="classic")


async def at_least_once_kip848(task: Task, turn: Turn) -> None:
    """The same in a group whose coordinator assigns."""
    await _asyncrevoke(task, turn, group_protocol="consumer")


async def _asyncrevoke(task: Task, turn: Turn, **options: Unpack[ConsumerOptions]) -> None:
    """With as many records in flight as in ``benchmarks/clients/publishing_clients.py``."""
    from asyncrevoke import Consumer

    options.setdefault("group_protocol", "classic")
    options["bootstrap_servers"] = task.bootstrap
    options["group_id"] = task.group
    options["concurrency"] = task.concurrency
    options["max_in_flight"] = 10_000
    consumer = Consumer(**options)
    handle = turn.handle

    @consumer.handler(task.topic, publish_to=task.results)
    async def publish(value: bytes) -> bytes:
        await handle()
        return value

    async with consumer:
        await turn.finished.wait()
    # Closing has waited for the last transaction, or the last acknowledgement and commit.
    turn.committed()


async def confluent_each_100(task: Task, turn: Turn) -> None:
    """confluent-kafka: ``consume(100)``, and a transaction for these records."""
    consumer, producer = _confluent(task, {}, {})
    try:
        while not turn.is_done():
            messages = consumer.consume(100, 1.0)
            if messages:
                producer.begin_transaction()
                _publish(task, turn, producer, messages)
                _commit(consumer, producer)
        turn.committed()
    finally:
        consumer.close()


async def confluent_each_interval(task: Task, turn: Turn) -> None:
    """confluent-kafka: a transaction for what comes within an interval, fetching far ahead."""
    consumer, producer = _confluent(
        task,
        {"queued.min.messages": 1_000_000, "fetch.queue.backoff.ms": 5},
        {"linger.ms": 5, "batch.num.messages": 100_000},
    )
    try:
        while not turn.is_done():
            # A slow loop takes few at once, so that its transactions do not take longer.
            at_once = 1 if task.handler_time else 500
            while not (messages := consumer.consume(at_once, 0.1)):
                pass
            producer.begin_transaction()
            ends = time.monotonic() + task.interval
            _publish(task, turn, producer, messages)
            while not turn.is_done() and time.monotonic() < ends:
                _publish(task, turn, producer, consumer.consume(at_once, 0.005))
            _commit(consumer, producer)
        turn.committed()
    finally:
        consumer.close()


def _confluent(
    task: Task, consuming: dict[str, str | int], producing: dict[str, str | int]
) -> tuple[Consumer, Producer]:
    from confluent_kafka import Consumer, Producer

    consumer = Consumer(
        {
            "bootstrap.servers": task.bootstrap,
            "group.id": task.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            **consuming,
        }
    )
    producer = Producer(
        {"bootstrap.servers": task.bootstrap, "transactional.id": task.group, **producing}
    )
    producer.init_transactions(30.0)
    consumer.subscribe([task.topic])
    return consumer, producer


def _publish(task: Task, turn: Turn, producer: Producer, messages: list[Message]) -> None:
    from confluent_kafka import KafkaException

    for message in messages:
        if (error := message.error()) is not None:
            raise KafkaException(error)
        turn.handle_blocking()
        while True:
            try:
                producer.produce(task.results, message.value(), message.key())
                break
            except BufferError:
                producer.poll(0.01)
    producer.poll(0)


def _commit(consumer: Consumer, producer: Producer) -> None:
    offsets = consumer.position(consumer.assignment())
    metadata = consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction(offsets, metadata)
    producer.commit_transaction()


async def kafka_streams(task: Task, turn: Turn) -> None:
    """Kafka Streams with ``exactly_once_v2`` and one thread, in a JVM that has just started."""
    from benchmarks.clients.java_clients import STREAMS, handle_all

    turn.report(
        await handle_all(
            STREAMS,
            task.bootstrap,
            task.topic,
            task.results,
            task.group,
            task.total,
            task.total // WARM_UP,
            int(task.interval * 1000),
        )
    )


OURS = "asyncrevoke, exactly once"
OURS_KIP848 = "asyncrevoke, exactly once, KIP-848"
AT_LEAST_ONCE = "asyncrevoke, at least once"
AT_LEAST_ONCE_KIP848 = "asyncrevoke, at least once, KIP-848"
CONFLUENT_100 = "confluent loop, 100 records each"
CONFLUENT_INTERVAL = "confluent loop, 100 ms each, tuned"
STREAMS = "Kafka Streams, exactly_once_v2"

CLIENTS: dict[str, Client] = {
    OURS: exactly_once,
    OURS_KIP848: exactly_once_kip848,
    AT_LEAST_ONCE: at_least_once,
    AT_LEAST_ONCE_KIP848: at_least_once_kip848,
    CONFLUENT_100: confluent_each_100,
    CONFLUENT_INTERVAL: confluent_each_interval,
    STREAMS: kafka_streams,
}


def run_client(client: str, task: Task, pipe: Pipe) -> None:
    """Handle and publish so many records; blocks. Sends what was measured, and how many records
    were handled; or a traceback."""
    try:
        turn = Turn(task)
        asyncio.run(_run_client(client, task, turn))
        pipe.send((turn.measured(), turn.records))
    except Exception:  # noqa: BLE001 - it is told in the other process
        pipe.send(traceback.format_exc())


async def _run_client(client: str, task: Task, turn: Turn) -> None:
    await CLIENTS[client](task, turn)
