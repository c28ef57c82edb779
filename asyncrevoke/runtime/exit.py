"""The way out of a consumer: the loop, the handlers, the group, the connections; all in time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from asyncrevoke.core.consumer_core import ConsumerCore
    from asyncrevoke.runtime.driver import Driver
    from asyncrevoke.runtime.event_log import EventLog
    from asyncrevoke.runtime.listener import ListenerCalls

# Of close_timeout, what is kept for the final commit and for leaving the group (seconds).
LAST_SECONDS = 5.0


class Exit:
    """Closes once, however many wait for it, within ``close_timeout`` seconds.

    ``body`` is the task whose loop holds the last batch, as far as is known: if it is another one
    than the one that closes, its next step is waited for, so that the batch counts. ``handlers``
    is waited for too. Whoever is in a hurry ends both waits.
    """

    def __init__(
        self,
        core: ConsumerCore,
        driver: Driver,
        listener: ListenerCalls,
        log: EventLog,
        close_timeout: float,
    ) -> None:
        self._core = core
        self._driver = driver
        self._listener = listener
        self._log = log
        self._close_timeout = close_timeout
        self._loop = asyncio.get_running_loop()
        self.body: asyncio.Task[object] | None = None
        self.handlers: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._left: asyncio.Future[None] = self._loop.create_future()
        self._hurry: asyncio.Future[None] = self._loop.create_future()
        # Called when nothing more can happen.
        self.at_end: Callable[[], Awaitable[None]] | None = None
        # Unless it is a callback of the listener that waits for us to close.
        self._wait_for_listener = True

    @property
    def begun(self) -> bool:
        """Whether closing has begun."""
        return self._closing is not None

    def loop_left(self) -> None:
        """The loop has ended: its last batch counts, or never will."""
        _resolve(self._left)

    def begin(self) -> None:
        """Begin to close, unless that has begun, without being waited for."""
        self._closing = self._begun(None)

    def _begun(self, caller: asyncio.Task[object] | None) -> asyncio.Task[None]:
        if self._closing is None:
            self._closing = self._loop.create_task(self._close(caller), name="asyncrevoke close")
        elif caller is not None and caller is self.body:
            self.loop_left()
        return self._closing

    async def aclose(self, *, graceful: bool) -> None:
        """Close, and raise what went wrong with the final commit or with leaving.

        ``graceful`` waits for tracked work, and from another task for the loop's next step. If
        cancelled, nothing more is waited for but the final commit and leaving, at most 5 s; if
        cancelled again, those go on alone.
        """
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

    async def _close(self, caller: asyncio.Task[object] | None) -> None:
        end = self._driver.now() + self._close_timeout
        drained = end - min(LAST_SECONDS, self._close_timeout / 2)
        try:
            if self._driver.error is None:
                self._core.stop(self._driver.now())
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
                self._log.error("a rebalance listener failed", exc_info=error)
            if self.at_end is not None:
                await self.at_end()

    async def _let_the_loop_end(self, caller: asyncio.Task[object] | None, until: float) -> None:
        body = self.body
        if body is None or body is caller or body.done():
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
            # Its handlers are cancelled; leaving does not wait for those that take their time.
            handlers.cancel()

    async def _leave(self, drained: float, end: float) -> None:
        driver = self._driver
        if not self._hurry.done():
            ended = driver.ticket(self._core.close(driver.now(), graceful=True))
            await self._wait(ended, self._hurry, until=drained)
            if ended.done():
                await self._last_calls(ended, end)
                return
        end = min(end, driver.now() + LAST_SECONDS)
        ended = driver.ticket(self._core.close(driver.now(), graceful=False))
        await self._wait(ended, until=end)
        await self._last_calls(ended, end)

    async def _last_calls(self, ended: asyncio.Future[object], until: float) -> None:
        if self.handlers is not None:
            await self._wait(self.handlers, until=until)
        if self._wait_for_listener:
            await self._driver.listener_called(until)
        if not ended.done():
            self._log.warning("closed before the group was left")
            ended.cancel()
        elif not ended.cancelled():
            ended.result()

    async def _wait(self, *these: asyncio.Future[Any], until: float) -> None:
        timeout = max(0.0, until - self._driver.now())
        await asyncio.wait(these, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
