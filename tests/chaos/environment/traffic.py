"""Records that are produced during a chaos run, past the proxies, and what was acknowledged.

librdkafka: another implementation than the one under test, and one that outlives its brokers.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from asyncrevoke.cli.demo.group_result import Produced
from asyncrevoke.cli.demo.workload import now
from asyncrevoke.client.model import TopicPartition

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

KEYS = 200
_TICK = 0.01
_FLUSH = 60.0
# Of each handler, in seconds; one in a hundred takes longer.
_SHORT = (0.002, 0.03)
_LONG = (0.3, 0.6)


class Traffic:
    """Produces at a steady rate. ``produced`` is what the brokers have acknowledged."""

    def __init__(self, bootstrap: str, topic: str, rate: float, rng: random.Random) -> None:
        self.produced: list[Produced] = []
        self.failed = 0
        self.rate = rate
        self._topic = topic
        self._rng = rng
        self._bootstrap = bootstrap
        self._producer = self._open()
        self._task: asyncio.Task[None] | None = None
        self._pending = 0

    def _open(self) -> Any:
        return Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "socket.timeout.ms": 4000,
                "message.timeout.ms": int(_FLUSH * 1000),
                "topic.metadata.refresh.interval.ms": 2000,
                "log_level": 0,
            }
        )

    def rename(self, topic: str) -> None:
        """The topic was deleted: what was produced to it has this name from now on."""
        self.produced = [
            record._replace(partition=record.partition._replace(topic=topic))
            for record in self.produced
        ]
        # Sequence numbers begin anew in a new topic.
        self._producer = self._open()

    def start(self) -> None:
        """Begin to produce."""
        self._task = asyncio.create_task(self._produce())

    async def stop(self) -> None:
        """Stop producing; returns when each record is acknowledged or has failed."""
        await self.pause()
        deadline = now() + _FLUSH + 10
        while self._pending and now() < deadline:
            self._producer.poll(0)
            await asyncio.sleep(_TICK)

    async def pause(self) -> None:
        """Produce no more until :meth:`start`."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _produce(self) -> None:
        begin, sent = now(), 0
        while True:
            while sent < (now() - begin) * self.rate:
                self._send(self._producer, self._acknowledged)
                sent += 1
            self._producer.poll(0)
            await asyncio.sleep(_TICK)

    def _send(self, producer: Any, done: Callable[[Any, Any], None]) -> None:
        rng = self._rng
        seconds = rng.uniform(*(_LONG if rng.random() < 0.01 else _SHORT))
        key = f"key-{rng.randrange(KEYS)}"
        self._pending += 1
        producer.produce(
            self._topic,
            value=f"{seconds:.4f}".encode(),
            key=key.encode(),
            on_delivery=done,
        )

    def _acknowledged(self, error: Any, message: Any) -> None:
        self._pending -= 1
        if error is not None:
            self.failed += 1
            return
        place = TopicPartition(self._topic, message.partition())
        self.produced.append(Produced(place, message.offset(), message.key().decode(), now()))

    async def aborted(self, count: int) -> None:
        """Write so many records in a transaction, and abort it: nobody may handle them."""
        await asyncio.to_thread(self._abort, count)

    def _abort(self, count: int) -> None:
        producer: Any = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": uuid.uuid4().hex,
                "log_level": 0,
            }
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        for _ in range(count):
            producer.produce(self._topic, value=b"0", key=b"aborted")
        producer.flush(30)
        time.sleep(0.2)  # the transaction is open for a while: members wait before it
        producer.abort_transaction(30)
