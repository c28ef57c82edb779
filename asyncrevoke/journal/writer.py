"""Who brings entries to the disk: a thread, so that the event loop never waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import TYPE_CHECKING, Protocol, TypeAlias

from asyncrevoke.errors import JournalError
from asyncrevoke.journal.segments import Session, seal, seal_session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncrevoke.journal.arrow import RecordBatch
    from asyncrevoke.journal.entries import Queue
    from asyncrevoke.journal.log_file import LogFile
    from asyncrevoke.journal.segments import Segment
    from asyncrevoke.journal.shipping import Shipping

# Seconds between two writes that nobody waits for.
_PACE = 0.1
# Of what may wait before steps wait for the disk.
_MANY = 5_000


# Given who is told of full segments, and of batches.
OpenLog: TypeAlias = (
    "Callable[[Callable[[Segment], None], Callable[[RecordBatch], None] | None], LogFile]"
)


class Writer(Protocol):
    """Brings what is put into ``queue`` to the disk, some time."""

    queue: Queue

    @property
    def behind(self) -> bool:
        """Whether more waits than should."""
        ...

    def later(self, function: Callable[[], None]) -> None:
        """Call it when it is time to put what waits for more, unless a flush comes first anyway."""
        ...

    async def flush(self) -> None:
        """Return when all that was put is on disk. Raises JournalError."""
        ...

    async def aclose(self) -> None:
        """Flush, and write no more. Raises JournalError."""
        ...


class DirectWriter:
    """Writes when it is flushed, in the caller's thread: for virtual time."""

    def __init__(self, open_log: OpenLog) -> None:
        self.queue: Queue = deque()
        self.behind = False
        self._log = open_log(_seal, None)

    def later(self, function: Callable[[], None]) -> None:
        """Never: nothing is written before it is flushed."""

    async def flush(self) -> None:
        """Write all, and sync."""
        self._log.take(self.queue)
        self._log.sync()

    async def aclose(self) -> None:
        """Flush, close and seal."""
        await self.flush()
        seal(self._log.close())


class ThreadWriter:
    """Writes in a thread, about every 0.1 s, and at once when somebody waits for it.

    All who wait meanwhile are served by one sync. ``shipping`` brings what was written
    somewhere else, too. After a failure nothing more is written:
    ``on_error`` is told, and each flush raises.
    """

    def __init__(
        self,
        open_log: OpenLog,
        others: Callable[[], Sequence[Session]],
        on_error: Callable[[JournalError], None],
        shipping: Shipping | None = None,
    ) -> None:
        self._shipping = shipping
        self._open_log = open_log
        self._others = others
        self._on_error = on_error
        self._loop = asyncio.get_running_loop()
        self.queue: Queue = deque()
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._waiting: list[asyncio.Future[None]] = []
        self._closing = False
        self._failure: JournalError | None = None
        self._sealing: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._run, name="asyncrevoke journal", daemon=True)
        self._thread.start()

    @property
    def behind(self) -> bool:
        """Whether the disk does not keep up."""
        return len(self.queue) > _MANY

    def later(self, function: Callable[[], None]) -> None:
        """In the time between two writes."""
        self._loop.call_later(_PACE, function)

    async def flush(self) -> None:
        """Return when all that was put is on disk. If cancelled, only the waiting ends."""
        if self._failure is not None:
            raise self._failure
        waiter = self._loop.create_future()
        with self._lock:
            self._waiting.append(waiter)
        self._wake.set()
        await waiter

    async def aclose(self) -> None:
        """Flush, seal the last segment and end the thread."""
        self._closing = True
        try:
            await self.flush()
        finally:
            self._wake.set()
            await asyncio.to_thread(self._thread.join)

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        failure: Exception | None = None
        try:
            written: list[RecordBatch] = []
            log = self._open_log(
                self._seal_aside, None if self._shipping is None else written.append
            )
            self._work_aside(self._seal_others)
            while not self._round(log, written):
                self._wake.wait(_PACE)
            self._seal_aside(log.close())
        except Exception as error:  # noqa: BLE001 - told to whoever waits, and to the consumer
            failure = error
        try:
            if self._shipping is not None:
                self._shipping.close()
        except Exception as error:  # noqa: BLE001 - the same
            failure = failure or error
        for thread in self._sealing:
            thread.join()
        if failure is not None:
            self._tell(failure)

    def _round(self, log: LogFile, written: list[RecordBatch]) -> bool:
        """Write what there is; True if it was the last round."""
        self._wake.clear()
        closing = self._closing
        with self._lock:
            waiting, self._waiting = self._waiting, []
        try:
            log.take(self.queue)
            if waiting or closing:
                log.sync()
            if self._shipping is not None and written:
                self._shipping.send(log, written)
                written.clear()
        except BaseException:
            with self._lock:
                self._waiting += waiting
            raise
        if waiting:
            self._call(_resolve, waiting)
        return closing

    def _tell(self, error: Exception) -> None:
        def tell() -> None:
            self._failure = JournalError(f"the journal cannot be written: {error}")
            self._failure.__cause__ = error
            self.queue.clear()
            with self._lock:
                waiting, self._waiting = self._waiting, []
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_exception(self._failure)
            self._on_error(self._failure)

        self._call(tell)

    def _call(self, function: Callable[..., None], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            # The loop was closed without closing the consumer: nobody is left to be told.
            if not self._loop.is_closed():
                raise
            self._closing = True

    # --- sealing ---------------------------------------------------------------------------------

    def _work_aside(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name="asyncrevoke journal, sealing", daemon=True)
        self._sealing = [each for each in self._sealing if each.is_alive()]
        self._sealing.append(thread)
        thread.start()

    def _seal_aside(self, segment: Segment) -> None:
        self._work_aside(lambda: _seal(segment))

    def _seal_others(self) -> None:
        """What sessions that were killed have left."""
        for session in self._others():
            seal_session(session)


def _seal(segment: Segment) -> None:
    seal(segment)


def _resolve(waiting: list[asyncio.Future[None]]) -> None:
    for waiter in waiting:
        if not waiter.done():
            waiter.set_result(None)
