"""Keeps the membership while the event loop is blocked, from a thread with a loop of its own.

The event loop tells each second that it runs (:meth:`HeartbeatThread.tick`). If it does not, the
thread says what blocks it and sends what the core has declared repeatable, over a connection of
its own, until the loop runs again, the core's answer has changed, or ``max_poll_interval`` is
over: a loop that is blocked for ever must not hold its partitions for ever. Nothing is decided
here: the answers go to the core when the loop runs again.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import TYPE_CHECKING, Protocol

from asyncrevoke.core.io.effects import (
    BackgroundHeartbeat,
    BackgroundHeartbeatReply,
    Channel,
    Failed,
    FailureKind,
    Send,
)
from asyncrevoke.runtime.loop.blocking_call_site import blocked_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.core.io.effects import Replied
    from asyncrevoke.protocol.messages import Request
    from asyncrevoke.runtime.hooks.event_log import EventLog

_NEVER_AGAIN = frozenset((FailureKind.AUTHENTICATION, FailureKind.UNSUPPORTED))


class Requests(Protocol):
    """What sends requests over connections, on the loop that it was made in."""

    async def request(self, send: Send) -> Replied | Failed:
        """Send one request and wait for its answer; never raises for what a broker does."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class HeartbeatThread:
    """Made, and called, on the event loop that it watches.

    ``connect`` gives the thread's own connections. ``alive_until`` is asked at each tick until
    when, by the loop's clock, the loop counts as alive without another. ``deliver`` gets the
    answers, on the event loop. ``patience``: seconds without a tick after which it is blocked.
    """

    def __init__(
        self,
        connect: Callable[[], Requests],
        alive_until: Callable[[], float],
        log: EventLog,
        *,
        patience: float,
    ) -> None:
        self._connect = connect
        self._alive_until = alive_until
        self._log = log
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._watched = threading.get_ident()
        self.deliver: Callable[[BackgroundHeartbeatReply], None] = lambda _event: None
        self._standby: BackgroundHeartbeat | None = None
        self._thread: threading.Thread | None = None
        self._ended = asyncio.Event()
        # Written by the watched loop alone, read by the thread.
        self._ticked = time.monotonic()
        self._until = float("inf")
        self._stopped = threading.Event()
        # Written by the thread alone, taken by the loop.
        self._seen_at: str | None = None
        # The thread's own loop, while it sends, and what interrupts its pauses.
        self._lock = threading.Lock()
        self._takeover: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None

    # --- on the event loop -----------------------------------------------------------------------

    def stand_by(self, standby: BackgroundHeartbeat) -> None:
        """This may be sent from now on; the thread starts with the first one."""
        self._standby = standby if standby.message is not None else None
        if self._thread is None and self._standby is not None and not self._stopped.is_set():
            self.tick()
            self._thread = threading.Thread(
                target=self._run, name="asyncrevoke heartbeat", daemon=True
            )
            self._thread.start()

    def tick(self) -> str | None:
        """The loop runs. Answers where it was blocked, if that has been told since the last."""
        now = time.monotonic()
        self._until = now + self._alive_until() - self._loop.time()
        self._ticked = now
        seen_at, self._seen_at = self._seen_at, None
        return seen_at

    def stop(self) -> None:
        """Send nothing any more; what is on its way is given up."""
        self._standby = None
        self._stopped.set()
        with self._lock:
            if self._takeover is not None:
                loop, task = self._takeover
                loop.call_soon_threadsafe(task.cancel)

    async def aclose(self) -> None:
        """Stop, and wait for the thread to end: about a second at most. Idempotent.

        If cancelled, the thread ends without being waited for.
        """
        self.stop()
        if self._thread is not None:
            await self._ended.wait()
            self._thread.join()

    # --- in the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopped.wait(max(0.01, self._ticked + self._patience - _now())):
                if self._loop.is_closed():
                    return  # it was never closed properly
                if self._blocked and self._standby is not None:
                    asyncio.run(self._take_over())
        except Exception as error:  # noqa: BLE001 - must not end unheard
            self._log.exception("the heartbeat thread has failed", exc_info=error)
        finally:
            self._on_loop(self._ended.set)

    @property
    def _blocked(self) -> bool:
        return not self._stopped.is_set() and _now() - self._ticked >= self._patience

    def _on_loop(self, function: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed: there is nobody to tell
            self._loop.call_soon_threadsafe(function)

    async def _take_over(self) -> None:
        requests = self._connect()
        # A task of its own: however often it is cancelled, the connections are closed.
        sending = asyncio.create_task(self._send_while_blocked(requests))
        with self._lock:
            self._takeover = asyncio.get_running_loop(), sending
            if self._stopped.is_set():
                sending.cancel()
        try:
            await asyncio.wait((sending,))
            if not sending.cancelled():
                sending.result()
        finally:
            with self._lock:
                self._takeover = None
            await requests.close()

    async def _send_while_blocked(self, requests: Requests) -> None:
        self._tell()
        ticked, until = self._ticked, self._until
        failing = False
        standby = self._standby
        message = None if standby is None else standby.message
        while self._blocked and self._ticked == ticked and standby is self._standby:
            if standby is None or message is None or standby.node is None:
                return
            if _now() >= until:
                self._log.error(
                    "the event loop was blocked for max_poll_interval; the membership is not "
                    "kept any longer",
                    blocked_at=blocked_at(self._watched),
                )
                await self._pause(ticked, float("inf"))
                return
            sent_at = _now()
            reply = await requests.request(
                Send(
                    0,
                    message,
                    standby.node,
                    Channel.HEARTBEAT,
                    standby.timeout,
                    patience=standby.timeout / 2,
                )
            )
            failed = isinstance(reply, Failed)
            if not (failed and failing):
                self._hand_over(standby, sent_at, reply)
            failing = failed
            message = _next(standby, message, reply)
            if message is None:
                await self._pause(ticked, float("inf"))
                return
            await self._pause(ticked, min(sent_at + standby.interval, until))

    def _tell(self) -> None:
        where = blocked_at(self._watched)
        self._seen_at = where
        self._log.warning(
            "event loop is blocked; heartbeats come from the thread meanwhile",
            blocked_at=where,
            seconds=round(_now() - self._ticked, 1),
            hint="run blocking work by anyio.to_thread.run_sync or in a process",
        )

    def _hand_over(
        self, standby: BackgroundHeartbeat, sent_at: float, reply: Replied | Failed
    ) -> None:
        answer = reply if isinstance(reply, Failed) else reply.message

        def deliver() -> None:
            ago = _now() - sent_at
            self.deliver(
                BackgroundHeartbeatReply(standby.heartbeat_id, self._loop.time() - ago, answer)
            )

        self._on_loop(deliver)

    async def _pause(self, ticked: float, until: float) -> None:
        """Until that time, unless the watched loop runs again before."""
        # Polled: an event would have to be set, under a lock, by each tick of the watched loop.
        while self._ticked == ticked and _now() < until and not self._loop.is_closed():  # noqa: ASYNC110
            await asyncio.sleep(min(self._patience / 4, max(0.0, until - _now())))


def _next(standby: BackgroundHeartbeat, sent: Request, reply: Replied | Failed) -> Request | None:
    if isinstance(reply, Failed):
        return None if reply.kind in _NEVER_AGAIN else sent
    return standby.next_message(reply.message)


def _now() -> float:
    return time.monotonic()
