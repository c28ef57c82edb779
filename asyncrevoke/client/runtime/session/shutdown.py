"""Closes a consumer: the loop, the handlers, the group, the connections; within one deadline."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol, cast

from asyncrevoke.client import log_events
from asyncrevoke.client.core.io.deadline import CALLBACKS, URGENT_CLOSE, Deadline
from asyncrevoke.client.runtime.loop.abandoned_tasks import abandon

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from asyncrevoke.client.runtime.loop.shutdown_deadline import ShutdownDeadline
    from asyncrevoke.client.runtime.session.parts import SessionParts

# Handlers that one log line names.
_NAMED = 20


class Publishing(Protocol):
    """A producer over the consumer's connections. Implemented by :class:`Publisher`."""

    async def flush(self) -> None:
        """Wait for acknowledgements. Raises PublishError."""

    def raise_failures(self) -> None:
        """Raise the errors that no call has received."""


class Shutdown:
    """Closes once, however many wait for it, within one deadline.

    The ``deadline`` begins when closing begins, or earlier, when a consumer with handlers is
    stopped or fails. If a task other than the one that closes has the last batch, its next step is
    waited for, so that the batch counts. Handlers are waited for too. ``aclose(graceful=False)``
    and a cancellation end both waits.
    """

    def __init__(self, parts: SessionParts, deadline: ShutdownDeadline) -> None:
        self._core = parts.core
        self._driver = parts.driver
        self._listener = parts.hooks.listener
        self._log = parts.hooks.log
        self._status = parts.hooks.status
        self._transactions = parts.hooks.transactions
        self._recorder = parts.hooks.recorder
        self._deadline = deadline
        self._loop = asyncio.get_running_loop()
        # The task whose loop has the last batch, as far as is known.
        self._iterating_task: asyncio.Task[object] | None = None
        # The task that runs the handlers; closing waits for it.
        self.handlers: asyncio.Task[None] | None = None
        # Its records are waited for before the connections are closed.
        self.publisher: Publishing | None = None
        self._closing: asyncio.Task[None] | None = None
        self._close_requested = False
        self._iteration_ended: asyncio.Future[None] = self._loop.create_future()
        self._urgent: asyncio.Future[None] = self._loop.create_future()
        # Whether a call has raised the error of closing.
        self._failure_raised = False
        # Resolved when everything has ended.
        self.ended: asyncio.Future[None] = self._loop.create_future()

    @property
    def begun(self) -> bool:
        """Whether closing has begun, so that nothing new is started."""
        return self._closing is not None

    @property
    def closing(self) -> bool:
        """Whether the consumer rejects calls; running handlers may still use it before that."""
        if self._closing is None:
            return False
        return self._close_requested or self.handlers is None or self.handlers.done()

    def step_begun(self) -> None:
        """The loop asks for its next batch: no task works on the last one any more."""
        self._iterating_task = None

    def step_returned(self) -> None:
        """The current task has been given a batch."""
        self._iterating_task = asyncio.current_task()

    def loop_ended(self) -> None:
        """The loop has ended; closing need not wait for it."""
        _resolve(self._iteration_ended)

    def begin(self, caller: asyncio.Task[object] | None = None) -> None:
        """Begin to close unless it has begun. Does not wait; ``caller`` will."""
        if self._closing is None:
            deadline = self._deadline.begin()
            closing = self._close(caller, deadline)
            self._closing = self._loop.create_task(closing, name="asyncrevoke close")
        elif caller is not None and caller is self._iterating_task:
            self.loop_ended()

    async def handlers_ended(self) -> None:
        """Return when the handlers have ended, or when the consumer has closed without them."""
        if self.handlers is not None:
            ends = self.handlers, self.ended
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)

    async def aclose(self, *, graceful: bool) -> None:
        """Close. After that, raises an error of the final commit, of leaving, or of the listener,
        unless an earlier call has raised it.

        ``graceful`` waits for tracked work, and, if called by another task, for the loop's next
        step. If cancelled, only the final commit and leaving are waited for, at most 5 s; if
        cancelled again, they go on without being waited for.
        """
        self._close_requested = True
        self.begin(asyncio.current_task())
        closing = cast("asyncio.Task[None]", self._closing)
        if not graceful:
            _resolve(self._urgent)
        if closing.done() and self._failure_raised:
            return
        try:
            await asyncio.shield(closing)
        except Exception:
            self._failure_raised = True
            raise
        except asyncio.CancelledError:
            _resolve(self._urgent)
            await asyncio.wait((closing,), timeout=URGENT_CLOSE)
            raise

    async def _close(self, caller: asyncio.Task[object] | None, deadline: Deadline) -> None:
        failure: Exception | None = None
        try:
            try:
                if self._driver.error is None:
                    self._driver.call(self._core.stop)
                    self._driver.wake.set()
                    await self._wait_for_loop(caller, deadline.work)
                await self._wait_for_handlers(deadline.work)
                deadline = await self._leave_group(deadline)
            except Exception as error:  # noqa: BLE001 - raised when all is closed
                failure = error
        finally:
            try:
                await self._end_transactions(deadline)
                await self._flush(deadline)
                await self._driver.aclose(deadline)
                if self.handlers is not None and not self.handlers.done():
                    log_events.HANDLER_RESOURCES_ABANDONED.write_to(self._log)
                    abandon(self.handlers)
                await self._end_journal(deadline)
            except Exception as error:  # noqa: BLE001 - likewise
                failure = error if failure is None else failure
            finally:
                _resolve(self._iteration_ended)
                _resolve(self.ended)
        heard = self._listener.take_last_error()
        if failure is not None and heard is not None:
            log_events.LISTENER_FAILED_CLOSING.write_to(self._log.of_application(), exc_info=heard)
        if failure is not None:
            raise failure
        if heard is not None:
            raise heard

    async def _wait_for_loop(self, caller: asyncio.Task[object] | None, until: float) -> None:
        body = self._iterating_task
        if self.handlers is not None or body is None or body is caller or body.done():
            return
        # The loop still processes its batch, which counts if the loop asks for the next in time.
        log_events.CLOSING_WAITS_FOR_LOOP.write_to(
            self._log, seconds=max(0.0, until - self._driver.now())
        )
        await self._wait(self._iteration_ended, body, self._urgent, until=until)

    async def _wait_for_handlers(self, until: float) -> None:
        handlers = self.handlers
        if handlers is None:
            return
        await self._wait(handlers, self._urgent, until=until)
        if not handlers.done():
            if not self._urgent.done():
                running = self._status.running()
                named = [
                    f"{call.handler} {call.topic}-{call.partition} offset {call.offset}"
                    for call in running[:_NAMED]
                ]
                log_events.HANDLERS_CANCELLED.write_to(
                    self._log, running=len(running), handlers=named
                )
            # This cancels all handlers; leaving does not wait for them to exit.
            handlers.cancel()

    async def _leave_group(self, deadline: Deadline) -> Deadline:
        """Leave the group. Returns the deadline of the rest, which may be earlier."""
        driver = self._driver
        ended: asyncio.Future[object] | None = None
        if driver.error is None:
            if not self._urgent.done():
                ended = driver.ask(self._core.close, graceful=True, deadline=deadline)
                await self._wait(ended, self._urgent, until=deadline.work)
            if ended is None or not ended.done():
                if self._urgent.done():
                    deadline = deadline.urgent(driver.now())
                ended = driver.ask(self._core.close, graceful=False, deadline=deadline)
                await self._wait(ended, until=deadline.core)
        await self._wait_for_last_callbacks(deadline)
        if ended is None:
            return deadline
        if not ended.done():
            log_events.CLOSED_WITHOUT_LEAVING.write_to(self._log)
            ended.cancel()
        elif not ended.cancelled():
            ended.result()
        return deadline

    async def _wait_for_last_callbacks(self, deadline: Deadline) -> None:
        if self.handlers is not None:
            await self._wait(self.handlers, until=deadline.end)
            if not self.handlers.done():
                # A second time: this cancels what closes resources.
                self.handlers.cancel()
                await self._wait(self.handlers, until=deadline.cancelled_callbacks)
        await self._driver.listener_called(deadline.last_callbacks(self._driver.now()))

    async def _end_transactions(self, deadline: Deadline) -> None:
        """An open transaction would delay the next owner until ``transaction_timeout``."""
        if (writer := self._transactions.writer) is not None:
            await self._await(writer.aclose(), deadline)

    async def _flush(self, deadline: Deadline) -> None:
        if self.publisher is not None:
            await self._await(self.publisher.flush(), deadline)

    async def _end_journal(self, deadline: Deadline) -> None:
        if self._recorder is None:
            return
        ending = await self._await(self._recorder.aclose(), deadline)
        if ending is not None:
            log_events.SEGMENT_NOT_SEALED_IN_TIME.write_to(self._log)
            await asyncio.wait((ending,), timeout=CALLBACKS)

    async def _await(
        self, last: Coroutine[object, None, None], deadline: Deadline
    ) -> asyncio.Future[None] | None:
        """Wait until this has ended. Returns it if it is cancelled instead, at the deadline."""
        ending = asyncio.ensure_future(last)
        await self._wait(ending, until=deadline.last_callbacks(self._driver.now()))
        if ending.done():
            ending.result()
            return None
        ending.cancel()
        return ending

    async def _wait(self, *these: asyncio.Future[Any], until: float) -> None:
        timeout = max(0.0, until - self._driver.now())
        await asyncio.wait(these, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
