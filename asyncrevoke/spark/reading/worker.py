"""Keeps an event loop and opened handlers between the tasks of one Python worker of Spark."""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import gc
import os
import sys
from contextlib import AsyncExitStack
from dataclasses import replace
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

from asyncrevoke.replays.errors import ReplayError
from asyncrevoke.spark.reading.consumer_pool import ConsumerPool

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from concurrent.futures import Future

    from asyncrevoke.consumer import Consumer
    from asyncrevoke.replays.opened_handlers import OpenedHandlers, Target

    T = TypeVar("T")

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
        from asyncrevoke.client.producing.producer import ProducerWithOwnConnections
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
