"""An entered consumer, of whichever type its group is: the calls of its core, and its end."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from asyncrevoke.client.errors import ConsumerClosedError, FatalError, IllegalStateError
from asyncrevoke.client.runtime.hooks.application_calls import is_called_by, would_wait
from asyncrevoke.client.runtime.loop.entering import other_event_loop
from asyncrevoke.client.runtime.loop.shutdown_deadline import ShutdownDeadline
from asyncrevoke.client.runtime.session.shutdown import Shutdown

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.client.model import GroupMetadata
    from asyncrevoke.client.runtime.session.membership_guard import MembershipGuard
    from asyncrevoke.client.runtime.session.parts import SessionParts
    from asyncrevoke.client.runtime.session.record_owners import RecordOwner

P = ParamSpec("P")
T = TypeVar("T")


class EnteredSession:
    """One core on one event loop, from entering a consumer to closing it.

    Base of :class:`Session` and :class:`ShareSession`. Handlers belong to ``membership``.
    """

    membership: MembershipGuard

    def __init__(self, parts: SessionParts) -> None:
        self._driven = parts.core
        self._driver = parts.driver
        self.log = parts.hooks.log
        self.application_log = parts.hooks.log.of_application()
        self.config = parts.config
        self.status = parts.hooks.status
        self.observers = parts.hooks.observers
        self.recorder = parts.hooks.recorder
        self.checks_output_topics = parts.checks_output_topics
        self.uses_threads = parts.uses_threads
        self.call_recorder = parts.call_recorder
        self.wall_clock = parts.wall_clock
        self.requests = parts.requests
        self.bootstrap = parts.bootstrap
        self.listener = parts.hooks.listener
        self._owners = parts.hooks.owners
        self._reads = parts.hooks.reads
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        # One deadline for all waits of the shutdown.
        self.deadline = ShutdownDeadline(parts.driver.now, parts.config.close_timeout)
        self.shutdown = Shutdown(parts, self.deadline)

    def start(self) -> None:
        """Begin to connect."""
        if self.observers is not None:
            self.observers.on_open()
        self._driver.start()

    def add_owner(self, owner: RecordOwner) -> None:
        """Inform this owner of records about losses."""
        self._owners.add(owner)

    @property
    def stopping(self) -> bool:
        """Whether there are no further records."""
        raise NotImplementedError

    def group_metadata(self) -> GroupMetadata:
        """The identity of this member in its group."""
        return self._driven.group_metadata()

    # --- calls of the core -----------------------------------------------------------------------

    def now(self) -> float:
        """The core's clock in seconds."""
        return self._driver.now()

    def check_thread(self) -> None:
        """Raise IllegalStateError unless called in the thread that the consumer was entered in."""
        if threading.get_ident() != self._thread:
            raise IllegalStateError(
                "a consumer belongs to the thread and event loop that it was entered in: from "
                "another thread use loop.call_soon_threadsafe or asyncio.run_coroutine_threadsafe"
            )

    def check_loop(self) -> None:
        """Also raise it unless called in the event loop that the consumer was entered in."""
        self.check_thread()
        if asyncio.get_running_loop() is not self._loop:
            raise other_event_loop()

    def call(
        self, function: Callable[Concatenate[float, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call this method of the core with the present time, and carry out what follows. Raises
        what it raises, or why the consumer has failed."""
        self.check_thread()
        if self._driver.error is not None:
            raise self._driver.error
        return self._driver.call(function, *args, **kwargs)

    async def ask(
        self, function: Callable[Concatenate[float, P], int], *args: P.args, **kwargs: P.kwargs
    ) -> object:
        """Like :meth:`call`, for a method that numbers a call: wait for its result.

        If cancelled, the request goes on without being waited for.
        """
        self.check_loop()
        if self._driver.error is not None:
            raise self._driver.error
        future = self._driver.ask(function, *args, **kwargs)
        try:
            return await future
        except asyncio.CancelledError:
            if future.cancelled() and not _being_cancelled():
                raise ConsumerClosedError(
                    "the consumer was closed while this call waited"
                ) from None
            raise

    def fail(self, error: BaseException) -> None:
        """End the consumer: the next step raises the error."""
        self._driver.fail(error)

    # --- the way out -----------------------------------------------------------------------------

    @property
    def failure(self) -> BaseException | None:
        """The error that has ended the consumer or its handlers; None if there is none."""
        handlers = self.shutdown.handlers
        if handlers is not None and handlers.done() and not handlers.cancelled():
            error = handlers.exception()
            return self._driver.error if error is None else error
        return self._driver.error

    def has_logged(self, error: BaseException) -> bool:
        """Whether this is the fatal error of the consumer, of which the log has a line."""
        return isinstance(error, FatalError) and error is self.status.snapshot().health.error

    @property
    def has_failed(self) -> bool:
        """Whether the consumer has ended by itself: its partitions are lost."""
        return self._driver.error is not None

    @property
    def closing(self) -> bool:
        """Whether the consumer rejects calls because it is closing or closed."""
        return self.shutdown.closing

    @property
    def closed(self) -> bool:
        """Whether the consumer has closed: no request is sent any more."""
        return self.closing and self._driver.stopped

    def wait_for(self, handlers: asyncio.Task[None]) -> None:
        """Let closing wait for the task that runs the handlers."""
        self.shutdown.handlers = handlers

    def stop(self) -> None:
        """End the iterator with its next step, which counts the previous batch. From any thread.

        With handlers, those that run have ``close_timeout`` from now, and the consumer closes.
        """
        if threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self.stop)
            return
        if self.shutdown.begun:
            return
        if self.shutdown.handlers is not None:
            self.shutdown.begin()
        if self._driver.error is None:
            self.call(self._driven.stop)
            self._driver.wake.set()

    async def aclose(self, *, graceful: bool = True) -> None:
        """Close within ``close_timeout``; see :meth:`Shutdown.aclose`."""
        self.check_loop()
        if graceful and is_called_by(self.membership, self.listener):
            raise would_wait("aclose()", "call consumer.stop() instead, and return")
        self._reads.report()
        await self.shutdown.aclose(graceful=graceful)


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
