"""A consumer that has been entered: steps of the iterator, and the way out."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable
from weakref import WeakSet

from asyncrevoke.errors import AsyncRevokeError, ConsumerClosedError, IllegalStateError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.core.consumer_core import ConsumerCore
    from asyncrevoke.model import PollResult, Record, TopicPartition
    from asyncrevoke.runtime.driver import Driver
    from asyncrevoke.runtime.event_log import EventLog
    from asyncrevoke.runtime.listener import ListenerCalls

T = TypeVar("T")

# Of close_timeout, what is kept for the final commit and for leaving the group (seconds).
LAST_SECONDS = 5.0
# A loop body that never waits would keep heartbeats from being sent: a step gives way so often.
_TURN = 0.005


class Workers(Protocol):
    """Who runs tasks on records, and is told early that their partitions are gone."""

    def lose(self, partitions: Iterable[TopicPartition]) -> None:
        """Nothing of these is to run any more."""
        ...


@runtime_checkable
class Observer(Workers, Protocol):
    """Who also sees what each step returns, before the user does."""

    def observe(self, batch: PollResult) -> None:
        """A step is about to return this."""
        ...


class Session:
    """One core on one event loop, from being entered to being closed.

    Also the :class:`~asyncrevoke.handlers.source.RecordSource` of handlers and task groups.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        core: ConsumerCore,
        driver: Driver,
        listener: ListenerCalls,
        log: EventLog,
    ) -> None:
        self.core = core
        self.log = log
        self._config = config
        self._driver = driver
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._stepping = False
        self._turn_since = 0.0
        # The task whose loop holds the last batch, as far as we know; its next step may be awaited.
        self._body: asyncio.Task[object] | None = None
        self._left: asyncio.Future[None] = self._loop.create_future()
        self._handlers: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        # Unless it is a callback of the listener that waits for us to close.
        self._wait_for_listener = True
        self._hurry: asyncio.Future[None] = self._loop.create_future()
        self._workers: WeakSet[Workers] = WeakSet()
        self._groups: WeakSet[Observer] = WeakSet()

    def start(self) -> None:
        """Begin to connect."""
        self._driver.on_lost = self._lost
        self._driver.start()

    # --- calls of the core -----------------------------------------------------------------------

    def now(self) -> float:
        """The core's clock in seconds."""
        return self._driver.now()

    def check_thread(self) -> None:
        """Raise RuntimeError unless called from the event loop that the consumer was entered in."""
        if threading.get_ident() != self._thread:
            raise IllegalStateError(
                "a consumer belongs to the thread and event loop that it was entered in: from "
                "another thread use loop.call_soon_threadsafe or asyncio.run_coroutine_threadsafe"
            )

    def check_loop(self) -> None:
        """Like :meth:`check_thread`, for what waits."""
        self.check_thread()
        if asyncio.get_running_loop() is not self._loop:
            raise IllegalStateError(
                "a consumer belongs to the event loop that it was entered in: enter another one "
                "in this event loop"
            )

    def call(self, function: Callable[[], T]) -> T:
        """Call the core and carry out what follows from it; what it raises is the caller's."""
        self.check_thread()
        if self._driver.error is not None:
            raise self._driver.error
        try:
            return function()
        finally:
            self._driver.flush()

    async def ask(self, request: Callable[[], int]) -> object:
        """Call the core for a ticket and wait for what it brings.

        If cancelled, the request goes on without being waited for.
        """
        self.check_loop()
        if self._driver.error is not None:
            raise self._driver.error
        try:
            future = self._driver.ticket(request())
        finally:
            self._driver.flush()
        try:
            return await future
        except asyncio.CancelledError:
            if future.cancelled() and not _being_cancelled():
                raise ConsumerClosedError(
                    "the consumer was closed while this call waited"
                ) from None
            raise

    # --- steps -----------------------------------------------------------------------------------

    async def step(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - a result, not an error, ends it
        max_records: int | None = None,
    ) -> PollResult | None:
        """One step (R1 to R8); None when the consumer is stopping. See ``Consumer.poll``."""
        self.check_loop()
        if self._stepping:
            raise IllegalStateError(
                "another task is waiting for the next batch of this consumer: one loop per "
                "consumer; share the work with consumer.task_group() or with handlers"
            )
        self._stepping = True
        self._body = None
        try:
            result = await self._step(timeout, max_records)
        finally:
            self._stepping = False
        if result is None:
            _resolve(self._left)
        else:
            self._body = asyncio.current_task()
            for group in self._groups:
                group.observe(result)
        return result

    async def _step(self, wait: float | None, max_records: int | None) -> PollResult | None:
        driver = self._driver
        started = driver.now()
        deadline = None if wait is None else started + wait
        if started - self._turn_since > _TURN:
            # Before anything is taken, so that a cancellation here costs nothing.
            self._turn_since = started
            await asyncio.sleep(0)
        expired = False
        while True:
            if (error := self._listener.take_error()) is not None:
                raise error
            if driver.error is not None:
                raise driver.error
            driver.wake.clear()
            # From here to the return nothing is awaited: what was taken is delivered (R6).
            result = self._poll(max_records, expired=expired)
            if result is not None:
                return result
            if self.core.ended:
                return None
            expired = not await driver.wait_until(deadline)
            self._turn_since = driver.now()

    def _poll(self, max_records: int | None, *, expired: bool) -> PollResult | None:
        try:
            return self.core.poll(self._driver.now(), max_records, expired=expired)
        except AsyncRevokeError:
            raise
        except Exception as error:
            self._driver.fail(error)
            raise (self._driver.error or error) from error
        finally:
            self._driver.flush()

    def stop(self) -> None:
        """The next step counts the previous batch, then the iterator ends. From any thread."""
        if threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self.stop)
            return
        if self._closing is None:
            self.call(lambda: self.core.stop(self.now()))
            self._driver.wake.set()

    # --- RecordSource ----------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Records delivered and neither done nor dropped nor lost."""
        return self.core.in_flight

    async def poll(self) -> PollResult:
        """One step; StopAsyncIteration when the consumer is stopping."""
        result = await self.step()
        if result is None:
            raise StopAsyncIteration
        return result

    def submit(self, record: Record) -> bool:
        """A task is about to hold this record; False if its partition is lost or released."""
        return self.core.submit(record)

    def complete(self, record: Record) -> bool:
        """The record is done; False if its partition is lost or released."""
        done = self.core.complete(self._driver.now(), record)
        self._driver.flush()
        return done

    def abandon(self, record: Record) -> None:
        """The record has ended and is not done."""
        self.core.abandon(self._driver.now(), record)
        self._driver.flush()

    def drop_after(self, partition: TopicPartition, offset: int) -> None:
        """Give up the returned records after ``offset``; none of them was started."""
        self.core.drop_after(self._driver.now(), partition, offset)
        self._driver.flush()

    @contextmanager
    def parked(self) -> Generator[None]:
        """Inside, the caller awaits the library: a poll boundary, and no start of a step."""
        self.core.boundary(self._driver.now(), inside=True)
        self._driver.flush()
        try:
            yield
        finally:
            self.core.boundary(self._driver.now(), inside=False)
            self._driver.flush()

    # --- the way out -----------------------------------------------------------------------------

    def watch(self, workers: Workers) -> None:
        """Tell these early what is lost, and a task group of each result."""
        self._workers.add(workers)
        if isinstance(workers, Observer):
            self._groups.add(workers)

    def _lost(self, partitions: frozenset[TopicPartition]) -> None:
        for workers in list(self._workers):
            workers.lose(sorted(partitions))

    @property
    def closing(self) -> bool:
        """Whether closing has begun."""
        return self._closing is not None

    def wait_for(self, handlers: asyncio.Task[None]) -> None:
        """Let closing wait for this task, which stops when :meth:`poll` does."""
        self._handlers = handlers

    def close_soon(self) -> None:
        """Begin to close, without being waited for: the handlers have ended."""
        if self._closing is None:
            self._closing = self._loop.create_task(self._close(None), name="asyncrevoke close")

    async def aclose(self, *, graceful: bool = True) -> None:
        """Close within ``close_timeout``: idempotent, and every caller waits for the same end.

        ``graceful`` waits for tracked work, and from another task for the loop's next step.
        Raises what went wrong with the final commit or with leaving.

        If cancelled, nothing more is waited for but the final commit and leaving, at most 5 s;
        if cancelled again, those go on alone.
        """
        self.check_loop()
        caller = asyncio.current_task()
        if self._closing is None:
            self._closing = self._loop.create_task(self._close(caller), name="asyncrevoke close")
        elif caller is self._body:
            _resolve(self._left)
        if not graceful:
            _resolve(self._hurry)
        called_back = self._driver.is_calling_listener()
        if called_back:
            self._wait_for_listener = False
        try:
            await asyncio.shield(self._closing)
        except asyncio.CancelledError:
            _resolve(self._hurry)
            if not called_back:
                await asyncio.wait((self._closing,), timeout=LAST_SECONDS)
            raise

    async def _close(self, caller: asyncio.Task[object] | None) -> None:
        end = self._driver.now() + self._config.close_timeout
        drained = end - min(LAST_SECONDS, self._config.close_timeout / 2)
        try:
            if self._driver.error is None:
                self.core.stop(self._driver.now())
                self._driver.flush()
                self._driver.wake.set()
                await self._let_the_loop_end(caller, drained)
            await self._let_handlers_end(drained)
            if self._driver.error is None:
                await self._leave(drained, end)
        finally:
            await self._driver.aclose()
            _resolve(self._left)
            if (error := self._listener.take_error()) is not None:
                self.log.error("a rebalance listener failed", exc_info=error)

    async def _let_the_loop_end(self, caller: asyncio.Task[object] | None, until: float) -> None:
        body = self._body
        if body is None or body is caller or body.done():
            return
        # Somebody's loop still works on its batch: that counts if it asks for the next in time.
        self.log.info(
            "closing waits for the loop to ask for its next batch",
            seconds=max(0.0, until - self._driver.now()),
        )
        await self._wait(self._left, body, self._hurry, until=until)

    async def _let_handlers_end(self, until: float) -> None:
        handlers = self._handlers
        if handlers is None:
            return
        await self._wait(handlers, self._hurry, until=until)
        if not handlers.done():
            # Its handlers are cancelled; leaving does not wait for those that take their time.
            handlers.cancel()

    async def _leave(self, drained: float, end: float) -> None:
        driver = self._driver
        if not self._hurry.done():
            ended = driver.ticket(self.core.close(driver.now(), graceful=True))
            await self._wait(ended, self._hurry, until=drained)
            if ended.done():
                await self._last_calls(ended, end)
                return
        end = min(end, driver.now() + LAST_SECONDS)
        ended = driver.ticket(self.core.close(driver.now(), graceful=False))
        await self._wait(ended, until=end)
        await self._last_calls(ended, end)

    async def _last_calls(self, ended: asyncio.Future[object], until: float) -> None:
        if self._handlers is not None:
            await self._wait(self._handlers, until=until)
        if self._wait_for_listener:
            await self._driver.listener_called(until)
        if not ended.done():
            self.log.warning("closed before the group was left")
            ended.cancel()
        elif not ended.cancelled():
            ended.result()

    async def _wait(self, *these: asyncio.Future[Any], until: float) -> None:
        timeout = max(0.0, until - self._driver.now())
        await asyncio.wait(these, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
