"""Keeps consumers connected between the tasks of one Python worker of Spark."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from asyncrevoke.client import log_events
from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.runtime.hooks.event_log import EventLog
from asyncrevoke.replays.ranges.consumers import consumer_of

if TYPE_CHECKING:
    from asyncrevoke.replays.ranges.range_consumer import RangeConsumer

IDLE_SECONDS: Final = 30.0
"""Seconds for which a consumer without a range stays connected."""
_MOST: Final = 4


class ConsumerKind(NamedTuple):
    """The arguments of :func:`~asyncrevoke.replays.ranges.consumers.consumer_of`, and the topic
    that the consumer reads.

    A consumer that knows a former id of a topic would report it as deleted, so consumers are reused
    only for the same ``topic_id``. Without an id they are not reused.
    """

    config: ConsumerConfig
    whole_batches: bool
    unreadable: bool
    topic: str
    topic_id: str | None


@dataclass(frozen=True, slots=True, eq=False)
class _Idle:
    kind: ConsumerKind
    consumer: RangeConsumer
    timer: asyncio.TimerHandle


class ConsumerPool:
    """Connected consumers, one for each range that is being read. Used on one event loop.

    The pool closes a consumer ``idle_seconds`` after it was given back, at once if four others are
    idle, or in :meth:`aclose`.
    """

    def __init__(self, idle_seconds: float = IDLE_SECONDS) -> None:
        self._idle_seconds = idle_seconds
        self._idle: list[_Idle] = []
        self._closing: set[asyncio.Task[None]] = set()

    async def take(self, kind: ConsumerKind) -> RangeConsumer:
        """A connected consumer of this kind, without partitions. The caller gives it back or closes
        it."""
        for idle in [idle for idle in self._idle if idle.kind == kind]:
            self._idle.remove(idle)
            idle.timer.cancel()
            if idle.consumer.health().error is None:
                return idle.consumer
            await idle.consumer.aclose()
        consumer = consumer_of(
            kind.config, whole_batches=kind.whole_batches, unreadable=kind.unreadable
        )
        await consumer.start()
        return consumer

    async def give_back(self, kind: ConsumerKind, consumer: RangeConsumer) -> None:
        """Keep a consumer for the next range. It must not have raised an error."""
        if not self._idle_seconds or kind.topic_id is None or len(self._idle) >= _MOST:
            await consumer.aclose()
            return
        consumer.assign(())
        # The first poll announces the revocation. The second one completes the records of the last
        # batch; without it, the revocation would wait for them.
        for _ in range(2):
            await consumer.poll(0)
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self._idle_seconds, lambda: self._expire(consumer))
        self._idle.append(_Idle(kind, consumer, timer))

    async def aclose(self) -> None:
        """Close the pooled consumers."""
        idle, self._idle = self._idle, []
        for pooled in idle:
            pooled.timer.cancel()
            await pooled.consumer.aclose()
        await asyncio.gather(*self._closing)

    def _expire(self, consumer: RangeConsumer) -> None:
        self._idle = [pooled for pooled in self._idle if pooled.consumer is not consumer]
        task = asyncio.get_running_loop().create_task(consumer.aclose())
        self._closing.add(task)
        task.add_done_callback(self._closed)

    def _closed(self, task: asyncio.Task[None]) -> None:
        self._closing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log_events.IDLE_CONSUMER_NOT_CLOSED.write_to(EventLog(), error=str(error))
