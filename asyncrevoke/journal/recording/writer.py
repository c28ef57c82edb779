"""Writes entries to disk in a thread, so that the event loop never waits for the disk."""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Protocol

from asyncrevoke.client import log_events
from asyncrevoke.client.errors import ConfigError, FatalError, JournalError
from asyncrevoke.client.runtime.hooks.event_log import EventLog
from asyncrevoke.journal.segments import JournalSession, Segment, seal, seal_session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncrevoke.journal.recording.entries import Queue
    from asyncrevoke.journal.recording.log_file import LogFile
    from asyncrevoke.journal.recording.shipping import Shipping

# Seconds between two writes if no flush waits.
_PACE = 0.1
# Limit for waiting entries: beyond it, polls wait for the disk.
_MANY = 5_000
# Seconds that closing waits until the last segment is sealed, and then until sealing stops.
_SEALING_AT_END = 1.0
_SEALER_STOP_TIMEOUT = 1.0


class Writer(Protocol):
    """Writes the entries of ``queue`` to disk. Implemented by :class:`DirectWriter` and
    :class:`ThreadWriter`."""

    queue: Queue

    @property
    def behind(self) -> bool:
        """Whether too many entries wait, or the session's BEGIN row is not on disk yet."""
        ...

    def later(self, function: Callable[[], None]) -> None:
        """Call ``function`` before the next write, so that the recorder queues its collected
        records."""

    async def flush(self) -> None:
        """Return when all queued entries are on disk. Raises JournalError."""

    async def aclose(self) -> None:
        """Flush, stop writing, and seal what can be sealed within a second. Raises JournalError.

        If cancelled, returns at once: unsealed segments stay logs, which have the same rows, and
        the next consumer that opens the folder seals them.
        """


class DirectWriter:
    """Writes on flush, in the caller's thread, for tests in virtual time."""

    def __init__(self, open_log: Callable[[], LogFile], release: Callable[[], None]) -> None:
        self.queue: Queue = deque()
        self.behind = False
        self._release = release
        self._log = open_log()

    def later(self, function: Callable[[], None]) -> None:
        """Does nothing, because a flush precedes each write."""

    async def flush(self) -> None:
        """Write all, and sync."""
        self._log.take(self.queue)
        self._log.sync()
        for segment in self._log.take_full():
            seal(segment)

    async def aclose(self) -> None:
        """Flush, close and seal."""
        try:
            await self.flush()
            seal(self._log.close())
        finally:
            self._release()


class ThreadWriter:
    """Writes in a thread, about every 0.1 s, and at once when :meth:`flush` is called.

    Concurrent flushes share one sync. ``shipping`` also sends the rows to a topic. After a failure
    it stops writing: it calls ``fail``, and each flush raises. It calls ``release`` when no thread
    uses the session's files any more.
    """

    def __init__(
        self,
        open_log: Callable[[], LogFile],
        others: Callable[[], Sequence[JournalSession]],
        fail: Callable[[FatalError], object],
        release: Callable[[], None],
        shipping: Shipping | None = None,
    ) -> None:
        self._shipping = shipping
        self._open_log = open_log
        self._fail_consumer = fail
        self._release = release
        self._loop = asyncio.get_running_loop()
        self.queue: Queue = deque()
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._waiting: list[asyncio.Future[None]] = []
        self._begun = False
        self._closing = False
        self._failure: JournalError | None = None
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._sealer = Sealer(others)
        self._thread = threading.Thread(target=self._run, name="asyncrevoke journal", daemon=True)
        self._thread.start()

    @property
    def behind(self) -> bool:
        """Whether the disk is behind, or has no row of the session yet. Polls wait for the first
        row, so that each session that handles a record leaves a row, even if its process is killed
        early."""
        return not self._begun or len(self.queue) > _MANY

    def later(self, function: Callable[[], None]) -> None:
        """Call ``function`` after the interval between two writes."""
        self._loop.call_later(_PACE, function)

    async def flush(self) -> None:
        """Return when all queued entries are on disk. If cancelled, only the waiting ends."""
        if self._failure is not None:
            raise self._failure
        waiter = self._loop.create_future()
        with self._lock:
            self._waiting.append(waiter)
        self._wake.set()
        await waiter

    async def aclose(self) -> None:
        """Flush, seal the last segment if that takes less than a second, and end the threads."""
        self._closing = True
        try:
            await self.flush()
            await asyncio.wait((self._ended,), timeout=_SEALING_AT_END)
        finally:
            self._wake.set()
            self._sealer.stop_waiting()
        await asyncio.wait((self._ended,), timeout=_SEALER_STOP_TIMEOUT)

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        failure: Exception | None = None
        try:
            log = self._open_log()
            self._sealer.start()
            while not self._round(log):
                self._wake.wait(_PACE)
            self._sealer.seal(log.close())
        except Exception as error:  # noqa: BLE001 - each flush and the consumer raise it
            failure = error
        try:
            if self._shipping is not None:
                self._shipping.close()
        except Exception as error:  # noqa: BLE001 - the same
            failure = failure or error
        if failure is not None:
            self._fail(failure)
        self._sealer.end()
        self._release()
        self._call(_resolve, [self._ended])

    def _round(self, log: LogFile) -> bool:
        """Write the queue. True if this was the last round."""
        self._wake.clear()
        closing = self._closing
        with self._lock:
            waiting, self._waiting = self._waiting, []
        try:
            log.take(self.queue)
            if waiting or closing:
                log.sync()
            for segment in log.take_full():
                self._sealer.seal(segment)
            if self._shipping is not None and (written := log.take_written()):
                self._shipping.send(log, written)
        except BaseException:
            with self._lock:
                self._waiting += waiting
            raise
        if waiting:
            self._begun = True
            self._call(_resolve, waiting)
        return closing

    def _fail(self, error: Exception) -> None:
        def fail() -> None:
            self._failure = JournalError(f"the journal cannot be written: {error}")
            self._failure.__cause__ = error
            self.queue.clear()
            with self._lock:
                waiting, self._waiting = self._waiting, []
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_exception(self._failure)
            self._fail_consumer(self._failure)

        self._call(fail)

    def _call(self, function: Callable[..., None], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            # The loop was closed without closing the consumer.
            if not self._loop.is_closed():
                raise
            self._closing = True


class Sealer:
    """Seals segments one after another, in a thread: first those of killed sessions, then those
    passed to :meth:`seal`.

    An unsealed log has the same rows as a sealed one, so sealing may stop at any time, and its
    errors are only logged.
    """

    def __init__(self, others: Callable[[], Sequence[JournalSession]]) -> None:
        self._others = others
        self._log = EventLog()
        self._wanted: deque[Segment] = deque()
        self._wake = threading.Event()
        self._ending = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="asyncrevoke journal, sealing", daemon=True
        )

    def start(self) -> None:
        """Start the thread, which first seals the segments of ended sessions."""
        # The interpreter must not unload Arrow while the thread uses it.
        atexit.register(self._end_at_exit)
        self._thread.start()

    def seal(self, segment: Segment) -> None:
        """Queue this segment for sealing."""
        self._wanted.append(segment)
        self._wake.set()

    def stop_waiting(self) -> None:
        """Stop sealing. A segment that is being sealed stops at its next row group."""
        self._stopped.set()
        self._wake.set()

    def end(self) -> None:
        """Return when all segments are sealed, or sealing was stopped. Blocks: do not call it on
        the event loop."""
        self._ending = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()
            atexit.unregister(self._end_at_exit)

    def _end_at_exit(self) -> None:
        self.stop_waiting()
        self._thread.join(_SEALER_STOP_TIMEOUT)

    def _run(self) -> None:
        try:
            others = self._others()
        except (OSError, ConfigError) as error:
            self._log_unsealed(error)
            others = ()
        for session in others:
            self._try(partial(seal_session, session, self._stopped.is_set))
        while not self._stopped.is_set():
            if self._wanted:
                segment = self._wanted.popleft()
                self._try(partial(seal, segment, self._stopped.is_set))
            elif self._ending:
                return
            else:
                self._wake.wait()
                self._wake.clear()

    def _try(self, work: Callable[[], object]) -> None:
        if self._stopped.is_set():
            return
        try:
            work()
        except Exception as error:  # noqa: BLE001 - the log has all rows
            self._log_unsealed(error)

    def _log_unsealed(self, error: Exception) -> None:
        log_events.SEGMENT_NOT_SEALED.write_to(self._log, error=str(error))


def _resolve(waiting: list[asyncio.Future[None]]) -> None:
    for waiter in waiting:
        if not waiter.done():
            waiter.set_result(None)
