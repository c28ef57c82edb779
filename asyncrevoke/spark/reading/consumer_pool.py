"""Consumers that stay connected between the tasks of a Python worker of Spark."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from asyncrevoke.config import ConsumerConfig
from asyncrevoke.ranges.consumers import consumer_of
from asyncrevoke.runtime.hooks.event_log import EventLog

if TYPE_CHECKING:
    from asyncrevoke.ranges.range_consumer import RangeConsumer

IDLE_SECONDS: Final = 30.0
"""How long a consumer without a range stays connected."""
_MOST: Final = 4


class ConsumerKind(NamedTuple):
    """What :func:`~asyncrevoke.ranges.consumers.consumer_of` is given, and the topic that the
    consumer reads: one that knows a topic by a former id would take another for deleted. Without a
    ``topic_id`` it is not kept."""

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
    """Gives each range a consumer of its own, connected. Used on one event loop.

    A consumer that was given back is closed after ``idle_seconds``, at once if there are four
    others, or by :meth:`aclose`.
    """

    def __init__(self, idle_seconds: float = IDLE_SECONDS) -> None:
        self._idle_seconds = idle_seconds
        self._idle: list[_Idle] = []
        self._closing: set[asyncio.Task[None]] = set()

    async def take(self, kind: ConsumerKind) -> RangeConsumer:
        """A consumer of this kind, without partitions. The caller gives it back, or closes it."""
        for each in [each for each in self._idle if each.kind == kind]:
            self._idle.remove(each)
            each.timer.cancel()
            if each.consumer.health().error is None:
                return each.consumer
            await each.consumer.aclose()
        consumer = consumer_of(
            kind.config, whole_batches=kind.whole_batches, unreadable=kind.unreadable
        )
        await consumer.start()
        return consumer

    async def give_back(self, kind: ConsumerKind, consumer: RangeConsumer) -> None:
        """Keep a consumer for the next range. It has raised no error."""
        if not self._idle_seconds or kind.topic_id is None or len(self._idle) >= _MOST:
            await consumer.aclose()
            return
        consumer.assign(())
        # One poll announces the revocation, the next one completes the records of the last batch,
        # for which it would wait otherwise.
        for _ in range(2):
            await consumer.poll(0)
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self._idle_seconds, lambda: self._expire(consumer))
        self._idle.append(_Idle(kind, consumer, timer))

    async def aclose(self) -> None:
        """Close the consumers that were given back."""
        idle, self._idle = self._idle, []
        for each in idle:
            each.timer.cancel()
            await each.consumer.aclose()
        await asyncio.gather(*self._closing)

    def _expire(self, consumer: RangeConsumer) -> None:
        self._idle = [each for each in self._idle if each.consumer is not consumer]
        task = asyncio.get_running_loop().create_task(consumer.aclose())
        self._closing.add(task)
        task.add_done_callback(self._closed)

    def _closed(self, task: asyncio.Task[None]) -> None:
        self._closing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            EventLog().warning("idle consumer not closed cleanly", error=str(error))
