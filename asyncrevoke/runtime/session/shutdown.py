"""The way out of a consumer: the loop, the handlers, the group, the connections; all in time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from asyncrevoke.core.io.deadline import Deadline
from asyncrevoke.runtime.loop.abandoned_tasks import abandon

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from asyncrevoke.core.consumer_core import ConsumerCore
    from asyncrevoke.model import RunningHandler
    from asyncrevoke.runtime.hooks.event_log import EventLog
    from asyncrevoke.runtime.hooks.listener_calls import ListenerCalls
    from asyncrevoke.runtime.loop.driver import Driver
    from asyncrevoke.runtime.session.shutdown_deadline import ShutdownDeadline

# How long a close that is in a hurry may take for the final commit and for leaving the group (s).
LAST_SECONDS = 5.0
# What a listener has after the deadline to hear of partitions that are lost at it, and a journal
# to write its last rows (seconds).
_AFTER_DEADLINE = 0.25
# Calls that one log line names.
_NAMED = 20


class RunsHandlers(Protocol):
    """Who knows the calls of handlers."""

    def running(self) -> Sequence[RunningHandler]:
        """The calls that have not ended, the longest first."""
        ...


class Exit:
    """Closes once, however many wait for it, within one deadline.

    The ``deadline`` begins with what comes first: closing, or for a consumer with handlers a stop
    or a failure. ``body`` is the task whose loop holds the last batch, as far as is known: if it is
    another one than the one that closes, its next step is waited for, so that the batch counts.
    ``handlers`` is waited for too. Whoever is in a hurry ends both waits.
    """

    def __init__(
        self,
        core: ConsumerCore,
        driver: Driver,
        listener: ListenerCalls,
        log: EventLog,
        deadline: ShutdownDeadline,
        runs: RunsHandlers,
    ) -> None:
        self._core = core
        self._driver = driver
        self._listener = listener
        self._log = log
        self._deadline = deadline
        self._runs = runs
        self._loop = asyncio.get_running_loop()
        self.body: asyncio.Task[object] | None = None
        self.handlers: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._asked = False
        self._left: asyncio.Future[None] = self._loop.create_future()
        self._hurry: asyncio.Future[None] = self._loop.create_future()
        # Resolved when all has ended, in whatever way.
        self.ended: asyncio.Future[None] = self._loop.create_future()
        # Called when nothing more can happen.
        self.at_end: Callable[[], Awaitable[None]] | None = None
        # Unless it is a callback of the listener that waits for us to close.
        self._wait_for_listener = True

    @property
    def begun(self) -> bool:
        """Whether nothing new is started any more."""
        return self._closing is not None

    @property
    def closing(self) -> bool:
        """Whether the consumer can be used no more: handlers that still run may use it."""
        if self._closing is None:
            return False
        return self._asked or self.handlers is None or self.handlers.done()

    def loop_left(self) -> None:
        """The loop has ended: its last batch counts, or never will."""
        _resolve(self._left)

    def begin(self) -> None:
        """Begin to close, unless that has begun, without being waited for."""
        self._closing = self._begun(None)

    def _begun(self, caller: asyncio.Task[object] | None) -> asyncio.Task[None]:
        if self._closing is None:
            deadline = self._deadline.begin()
            closing = self._close(caller, deadline)
            self._closing = self._loop.create_task(closing, name="asyncrevoke close")
        elif caller is not None and caller is self.body:
            self.loop_left()
        return self._closing

    async def handlers_ended(self) -> None:
        """Return when the handlers have ended, or when the consumer has closed without them."""
        if self.handlers is not None:
            ends = self.handlers, self.ended
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)

    async def aclose(self, *, graceful: bool) -> None:
        """Close, and raise what went wrong with the final commit or with leaving, or what a
        listener has raised meanwhile: all is closed then.

        ``graceful`` waits for tracked work, and from another task for the loop's next step. If
        cancelled, nothing more is waited for but the final commit and leaving, at most 5 s; if
        cancelled again, those go on alone.
        """
        self._asked = True
        closing = self._begun(asyncio.current_task())
        if not graceful:
            _resolve(self._hurry)
        called_back = self._driver.is_calling_listener()
        if called_back:
            self._wait_for_listener = False
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            _resolve(self._hurry)
            if not called_back:
                await asyncio.wait((closing,), timeout=LAST_SECONDS)
            raise

    async def _close(self, caller: asyncio.Task[object] | None, deadline: Deadline) -> None:
        failure: Exception | None = None
        try:
            try:
                if self._driver.error is None:
                    self._core.stop(self._driver.now())
                    self._driver.flush()
                    self._driver.wake.set()
                    await self._let_the_loop_end(caller, deadline.work)
                await self._let_handlers_end(deadline.work)
                deadline = await self._leave(deadline)
            except Exception as error:  # noqa: BLE001 - raised when all is closed
                failure = error
        finally:
            try:
                await self._driver.aclose(deadline.end)
                self._abandon_handlers()
                await self._end_journal(deadline.end)
            except Exception as error:  # noqa: BLE001 - likewise
                failure = failure or error
            finally:
                _resolve(self._left)
                _resolve(self.ended)
        heard = self._listener.take_last_error()
        if failure is not None and heard is not None:
            self._log.error("a rebalance listener failed", exc_info=heard)
        if (failure := failure or heard) is not None:
            raise failure

    async def _let_the_loop_end(self, caller: asyncio.Task[object] | None, until: float) -> None:
        body = self.body
        if self.handlers is not None or body is None or body is caller or body.done():
            return
        # Somebody's loop still works on its batch: that counts if it asks for the next in time.
        self._log.info(
            "closing waits for the loop to ask for its next batch",
            seconds=max(0.0, until - self._driver.now()),
        )
        await self._wait(self._left, body, self._hurry, until=until)

    async def _let_handlers_end(self, until: float) -> None:
        handlers = self.handlers
        if handlers is None:
            return
        await self._wait(handlers, self._hurry, until=until)
        if not handlers.done():
            if not self._hurry.done():
                self._name_cancelled()
            # Its handlers are cancelled; leaving does not wait for those that take their time.
            handlers.cancel()

    def _name_cancelled(self) -> None:
        running = self._runs.running()
        named = [
            f"{call.handler} {call.topic}-{call.partition} offset {call.offset}"
            for call in running[:_NAMED]
        ]
        self._log.warning(
            "close_timeout reached: running handlers are cancelled, their records come again",
            running=len(running),
            handlers=named,
        )

    async def _leave(self, deadline: Deadline) -> Deadline:
        """Leave the group. Returns the deadline that holds: an earlier one if there is hurry."""
        driver = self._driver
        ended: asyncio.Future[object] | None = None
        if driver.error is None:
            if not self._hurry.done():
                ended = driver.ticket(
                    self._core.close(driver.now(), graceful=True, deadline=deadline)
                )
                await self._wait(ended, self._hurry, until=deadline.work)
            if ended is None or not ended.done():
                if self._hurry.done():
                    left = max(0.0, deadline.end - driver.now())
                    deadline = Deadline.after(driver.now(), min(LAST_SECONDS, left))
                ended = driver.ticket(
                    self._core.close(driver.now(), graceful=False, deadline=deadline)
                )
                await self._wait(ended, until=deadline.end + _AFTER_DEADLINE / 2)
        await self._last_calls(deadline.end)
        if ended is None:
            return deadline
        if not ended.done():
            self._log.warning("closed before the group was left")
            ended.cancel()
        elif not ended.cancelled():
            ended.result()
        return deadline

    async def _last_calls(self, until: float) -> None:
        if self.handlers is not None:
            await self._wait(self.handlers, until=until)
            if not self.handlers.done():
                # Once more: what closes resources was not cancelled yet.
                self.handlers.cancel()
                await self._wait(self.handlers, until=until + _AFTER_DEADLINE)
        if self._wait_for_listener:
            await self._driver.listener_called(max(until, self._driver.now() + _AFTER_DEADLINE))

    def _abandon_handlers(self) -> None:
        handlers = self.handlers
        if handlers is not None and not handlers.done():
            self._log.error("resources of handlers did not close when cancelled; abandoned")
            abandon(handlers)

    async def _end_journal(self, until: float) -> None:
        if self.at_end is None:
            return
        ending = asyncio.ensure_future(self.at_end())
        left = max(_AFTER_DEADLINE, until - self._driver.now())
        await asyncio.wait((ending,), timeout=left)
        if ending.done():
            ending.result()
            return
        self._log.warning(
            "the journal's last segment was not sealed within close_timeout: its log is complete"
        )
        ending.cancel()
        await asyncio.wait((ending,), timeout=_AFTER_DEADLINE)

    async def _wait(self, *these: asyncio.Future[Any], until: float) -> None:
        timeout = max(0.0, until - self._driver.now())
        await asyncio.wait(these, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
