"""The members of share groups that are compared. Each imports its client only when it is used."""

from __future__ import annotations

import asyncio
import json
import time
import traceback
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol, cast

from asyncrevoke import Record  # noqa: TC001 - the handlers are annotated with it
from asyncrevoke.client.runtime.hooks.observers import Observer
from asyncrevoke.client.runtime.share.share_session import ShareSession
from benchmarks.share.turn import Turn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asyncrevoke import Consumer
    from asyncrevoke.client.core.io.effects import Channel, Node
    from asyncrevoke.client.core.io.outbox import OnReply
    from asyncrevoke.client.core.share.acquisition import HeldRecord
    from asyncrevoke.client.core.share.state_table import RecordState
    from asyncrevoke.client.core.share_core import ShareCore
    from asyncrevoke.client.protocol.messages import Request
    from benchmarks.share.turn import Task
    from benchmarks.workload.stall_member import Pipe

LOCKS_LOST = "locks of acquired records are lost"


class Client(Protocol):
    """Accepts ``task.total`` records, or a few more."""

    async def __call__(self, task: Task, turn: Turn) -> None:
        """Returns when all are acknowledged."""
        ...


class _LostLocks(Observer):
    """Counts locks that our member has lost."""

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self._turn = turn

    def on_event(self, event: str, fields: Mapping[str, object]) -> None:
        """The core has reported an event."""
        if event == LOCKS_LOST:
            self._turn.lost += cast("int", fields["records"])


def _consumer(task: Task, turn: Turn, at_once: int) -> Consumer:
    from asyncrevoke import Consumer

    consumer = Consumer(
        bootstrap_servers=task.bootstrap,
        group_id=task.group,
        group_type="share",
        concurrency=at_once,
        # In batches, what is acquired while the last ones are handled.
        max_in_flight=(4 if task.acquire == "batches" else 2) * at_once,
        acquire=task.acquire,
    )
    consumer.observe(_LostLocks(turn))
    return consumer


async def asyncrevoke(task: Task, turn: Turn, *, at_once: int = 0) -> None:
    """Handlers that await nothing, or sleep."""
    consumer = _consumer(task, turn, at_once or task.at_once)
    seconds = task.handler_time

    if seconds:

        @consumer.handler(task.topic)
        async def handle(record: Record) -> None:
            await asyncio.sleep(seconds)
            turn.handled(1, record.delivery_count != 1)

    else:

        @consumer.handler(task.topic)
        async def handle_at_once(record: Record) -> None:
            turn.handled(1, record.delivery_count != 1)

    turn.subscribe()
    async with consumer:
        requests = _count_requests(consumer)
        await turn.finished.wait()
        await _acknowledged(consumer)
        turn.requests = len(requests)
        turn.note_received()


async def asyncrevoke_timed(task: Task, turn: Turn) -> None:
    """The same, with the time from sending to the handler, and from its end to the
    acknowledgement."""
    consumer = _consumer(task, turn, task.at_once)
    ended: dict[tuple[int, int], float] = {}

    @consumer.handler(task.topic)
    async def handle(record: Record) -> None:
        now = time.monotonic_ns()
        assert record.value is not None
        turn.delays.append((now - int.from_bytes(record.value[:8], "big")) / 1e9)
        ended[record.partition, record.offset] = time.perf_counter()
        turn.handled(1, record.delivery_count != 1)

    turn.subscribe()
    async with consumer:
        requests = _count_requests(consumer)
        # Nobody else knows when a record is done.
        held = _core(consumer).held
        acknowledged = held.acknowledged

        def timed(state: RecordState, records: Sequence[HeldRecord]) -> None:
            acknowledged(state, records)
            for record in records:
                key = (record.acquisition.partition.partition, record.offset)
                if key in ended:
                    turn.acknowledged.append(time.perf_counter() - ended.pop(key))

        vars(held)["acknowledged"] = timed
        # Further records come: some of them are not acknowledged at any time.
        await turn.finished.wait()
        turn.requests = len(requests)
        turn.note_received()


def _core(consumer: Consumer) -> ShareCore:
    session: object = getattr(consumer, "_running")  # noqa: B009 - it is private
    assert isinstance(session, ShareSession)
    return session.core


def _count_requests(consumer: Consumer) -> list[object]:
    """The requests that this consumer sends from now on. Observers are not told of them."""
    sent: list[object] = []
    outbox = _core(consumer).outbox
    send = outbox.send

    def counted(
        message: Request, node: Node, channel: Channel, timeout: float, on_reply: OnReply
    ) -> int:
        sent.append(type(message))
        return send(message, node, channel, timeout, on_reply)

    vars(outbox)["send"] = counted
    return sent


async def _acknowledged(consumer: Consumer) -> None:
    async with asyncio.timeout(30):
        while consumer.health().in_flight:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.001)


async def java(
    task: Task, turn: Turn, *, mode: Literal["implicit", "explicit"], at_once: int = 0
) -> None:
    """``KafkaShareConsumer.poll()`` in a JVM that has just started."""
    from benchmarks.clients.java_clients import kafka_class_path, run

    acquire = "record_limit" if task.acquire == "exact" else "batch_optimized"
    jars = await asyncio.to_thread(kafka_class_path)
    told = await run(
        "ShareAll.java",
        jars,
        task.bootstrap,
        task.topic,
        task.group,
        task.total,
        mode,
        acquire,
        at_once or task.at_once,
    )
    turn.report(told)


async def confluent(
    task: Task, turn: Turn, *, mode: Literal["implicit", "explicit"], at_once: int = 0
) -> None:
    """confluent-kafka's preview: ``ShareConsumer.poll()``."""
    from confluent_kafka import KafkaException, ShareConsumer

    told: list[str] = []
    consumer = ShareConsumer(
        {
            "bootstrap.servers": task.bootstrap,
            "group.id": task.group,
            "share.acknowledgement.mode": mode,
            "max.poll.records": at_once or task.at_once,
            "statistics.interval.ms": 250,
            "stats_cb": told.append,
            "log_level": 3,
        }
    )
    explicit = mode == "explicit"
    done = False
    turn.subscribe()
    consumer.subscribe([task.topic])
    try:
        while not done:
            messages = consumer.poll(1.0)
            again = 0
            for message in messages:
                if (error := message.error()) is not None:
                    raise KafkaException(error)
                again += (message.delivery_count() or 1) > 1
                if explicit:
                    consumer.acknowledge(message)
            done = bool(messages) and turn.handled(len(messages), again)
        consumer.commit_sync(10.0)
        known = len(told)
        ends = time.monotonic() + 2.0
        while len(told) == known and time.monotonic() < ends:
            messages = consumer.poll(0.1)
            for message in messages:
                consumer.acknowledge(message)
        brokers = json.loads(told[-1])["brokers"].values() if told else ()
        turn.received = sum(broker["rxbytes"] for broker in brokers)
        turn.requests = sum(broker["tx"] for broker in brokers)
    finally:
        consumer.close()


async def raw(task: Task, turn: Turn) -> None:
    """Requests of our codec, one at a time, which accept what the last one has acquired."""
    from benchmarks.share.raw_member import RawMember

    turn.subscribe()
    async with RawMember(task.bootstrap, task.group, task.topic) as member:
        done = False
        while not done:
            records = await member.fetch(task.at_once, exact=task.acquire == "exact")
            done = bool(records) and turn.handled(len(records))
        await member.acknowledge()
        turn.requests = member.requests
        turn.note_received()


async def raw_timed(task: Task, turn: Turn) -> None:
    """The same with an acknowledgement of its own, and its time, for each fetch."""
    from benchmarks.share.raw_member import RawMember

    turn.subscribe()
    async with RawMember(task.bootstrap, task.group, task.topic) as member:
        done = False
        while not done:
            records = await member.fetch(task.at_once, exact=True)
            now = time.monotonic_ns()
            turn.delays += [(now - int.from_bytes(_value(r)[:8], "big")) / 1e9 for r in records]
            if records:
                turn.acknowledged.append(await member.acknowledge())
                done = turn.handled(len(records))
        turn.requests = member.requests
        turn.note_received()


def _value(record: Record) -> bytes:
    assert record.value is not None
    return record.value


OURS = "asyncrevoke"
OURS_BEST = "asyncrevoke, 5,000 at once"
JAVA = "Java, explicit"
JAVA_BEST = "Java, implicit, 5,000 a poll"
CONFLUENT = "confluent, explicit"
CONFLUENT_IMPLICIT = "confluent, implicit"
CONFLUENT_BEST = "confluent, explicit, 5,000 a poll"
RAW = "raw requests"

CLIENTS: dict[str, Client] = {
    OURS: asyncrevoke,
    JAVA: partial(java, mode="explicit"),
    CONFLUENT: partial(confluent, mode="explicit"),
    CONFLUENT_IMPLICIT: partial(confluent, mode="implicit"),
    RAW: raw,
    OURS_BEST: partial(asyncrevoke, at_once=5_000),
    JAVA_BEST: partial(java, mode="implicit", at_once=5_000),
    CONFLUENT_BEST: partial(confluent, mode="explicit", at_once=5_000),
}


TIMED: dict[str, Client] = {OURS: asyncrevoke_timed, RAW: raw_timed}


def run_client(client: Client, task: Task, pipe: Pipe) -> None:
    """Handle so many records; blocks. Sends what was measured, or a traceback."""
    try:
        turn = Turn(task)
        asyncio.run(_run(client, task, turn))
        pipe.send(turn.measured())
    except Exception:  # noqa: BLE001 - it is told in the other process
        pipe.send(traceback.format_exc())


async def _run(client: Client, task: Task, turn: Turn) -> None:
    await client(task, turn)
