"""What one Python worker of Spark keeps between its tasks: an event loop, opened handlers and
connected consumers."""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import gc
import os
import sys
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, replace
from threading import Thread
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from asyncrevoke.client import log_events
from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.runtime.hooks.event_log import EventLog
from asyncrevoke.replays.errors import ReplayError
from asyncrevoke.replays.ranges.range_consumer import RangeConsumer, consumer_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Sequence
    from concurrent.futures import Future

    from asyncrevoke.consumer import Consumer
    from asyncrevoke.replays.opened_handlers import OpenedHandlers, Target

    T = TypeVar("T")

IDLE_SECONDS: Final = 30.0
"""Seconds for which a consumer without a range stays connected."""
_MOST: Final = 4


class ConsumerKind(NamedTuple):
    """The arguments of :func:`~asyncrevoke.replays.ranges.range_consumer.consumer_of`, and the
    topic that the consumer reads.

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


# Constants of malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
# The largest value that glibc accepts.
_MMAP_THRESHOLD = 32 * 1024 * 1024
_TRIM_THRESHOLD = 128 * 1024 * 1024
# Allocations between two garbage collections of the youngest generation.
_GC_THRESHOLD = 50_000
_DISCONNECT_SECONDS = 5.0


class PythonWorker:
    """One per process. Its event loop runs in a thread, because Spark uses the main thread."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._loop = new_event_loop()
        self.consumers = ConsumerPool()
        """The consumers of tasks that read ranges."""
        self._opened: dict[Target, OpenedHandlers] = {}
        # Spark kills workers, so handlers are never closed.
        self._stack = AsyncExitStack()
        # Spark collects garbage after each task: exclude the modules that are loaded now.
        gc.freeze()
        # Thousands of records are alive at once. With the default threshold, the collector would
        # scan them after each few hundred.
        gc.set_threshold(_GC_THRESHOLD, *gc.get_threshold()[1:])
        keep_freed_memory()
        Thread(target=self._loop.run_forever, name="asyncrevoke replay", daemon=True).start()
        # For processes that exit normally, as a driver does.
        atexit.register(self._disconnect)

    def _disconnect(self) -> None:
        if self.pid == os.getpid():
            self.start(self.consumers.aclose()).result(_DISCONNECT_SECONDS)

    def start(self, work: Coroutine[object, object, T]) -> Future[T]:
        """Run a coroutine on the event loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Run a coroutine on the event loop and wait for its result."""
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def open(self, target: Target) -> OpenedHandlers:
        """The handlers of a target. The first task that needs them imports and opens them."""
        opened = self._opened.get(target)
        if opened is None:
            consumer = import_consumer(target.name)
            opened = self._opened[target] = self.run(self._open(consumer, target))
        return opened

    async def _open(self, consumer: Consumer, target: Target) -> OpenedHandlers:
        from asyncrevoke.client.producing.publishing.producer import ProducerWithOwnConnections
        from asyncrevoke.replays.opened_handlers import open_handlers

        config = consumer.config
        if target.bootstrap_servers is not None:
            config = replace(config, bootstrap_servers=target.bootstrap_servers)
        if target.errors != "policy":
            return await open_handlers(consumer, config, target, self._stack, None)
        producer = await self._stack.enter_async_context(ProducerWithOwnConnections(config))
        return await open_handlers(consumer, config, target, self._stack, lambda: producer)

    @classmethod
    def current(cls) -> PythonWorker:
        """The worker of this process. A forked process gets a new one."""
        worker = _current[0] if _current else None
        if worker is None or worker.pid != os.getpid():
            worker = cls()
            _current[:] = [worker]
        return worker


_current: list[PythonWorker] = []


def keep_freed_memory() -> None:
    """Let malloc keep the freed memory of large fetches for the next fetch.

    By default glibc returns this memory to the kernel, which has to clear each page again. No
    effect with other C libraries.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD)
        mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A uvloop event loop if uvloop is installed, else asyncio's."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def import_consumer(name: str) -> Consumer:
    """Import the consumer of a target. Raises ReplayError if that fails in this process."""
    from asyncrevoke.replays.target import find_consumer

    try:
        return find_consumer(name)
    except Exception as error:
        raise ReplayError(
            f"{name} cannot be imported on a worker ({type(error).__name__}: {error}). Workers "
            "need your code and what it imports: send files with py_files=, or install your "
            f"package where they run. Their Python is {sys.executable}"
        ) from error


def read_ahead(
    reader: AbstractAsyncContextManager[object],
    read: Callable[[], Coroutine[object, object, Sequence[T]]],
) -> Generator[Sequence[T]]:
    """The results of ``read``, up to an empty one. Enters ``reader``, and reads one result
    ahead."""
    worker = PythonWorker.current()
    worker.run(_enter(reader))
    coming = None
    try:
        coming = worker.start(read())
        while read_now := coming.result():
            coming = worker.start(read())
            yield read_now
    finally:
        if coming is not None:
            coming.cancel()
        worker.run(_leave(reader))


async def _enter(reader: AbstractAsyncContextManager[object]) -> None:
    await reader.__aenter__()


async def _leave(reader: AbstractAsyncContextManager[object]) -> None:
    await reader.__aexit__(None, None, None)
