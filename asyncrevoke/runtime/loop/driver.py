"""Carries out what the core decides. The only owner of tasks, timers and sockets.

Every call of the core is followed at once by its effects, with no await in between, so that the
world never sees half of a decision. One root task owns the tasks of all requests; nothing of it
is bound to the task that entered the consumer. Whatever fails here in a way that the core did not
foresee ends the consumer with a :class:`~asyncrevoke.errors.FatalError` that the next step raises:
never a silent stall.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Protocol

from asyncrevoke.core.io.effects import (
    BackgroundHeartbeat,
    BackgroundHeartbeatReply,
    CancelTimer,
    CompleteRequest,
    Compute,
    DecodeBatch,
    DropSilentConnections,
    Effect,
    Emit,
    Event,
    Notify,
    NotifyKind,
    ProbeBroker,
    ResetConnection,
    Send,
    SetTimer,
    TimerFired,
    WakePoller,
)
from asyncrevoke.errors import FatalError
from asyncrevoke.runtime.loop.abandoned_tasks import abandon
from asyncrevoke.runtime.loop.computing_thread import ComputingThread
from asyncrevoke.runtime.loop.loop_lag import LoopLag
from asyncrevoke.runtime.net.decode_threads import DecodeThreads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from asyncrevoke.model import BlockingRecord, TopicPartition
    from asyncrevoke.runtime.hooks.event_log import EventLog
    from asyncrevoke.runtime.hooks.journal_hooks import Witness
    from asyncrevoke.runtime.hooks.listener_calls import ListenerCalls
    from asyncrevoke.runtime.net.requests import Requests


# Seconds that tasks which were cancelled have to end, and connections to close, at the least.
_CANCELLED = 0.25
_CLOSING = 0.4


class Core(Protocol):
    """What is driven."""

    def start(self, now: float) -> None:
        """Begin."""
        ...

    def handle(self, now: float, event: Event) -> list[Effect]:
        """What follows from an event."""
        ...

    def take_effects(self) -> list[Effect]:
        """What other calls have left to be done."""
        ...

    @property
    def has_effects(self) -> bool:
        """Whether they have left anything."""
        ...


class HeartbeatFallback(Protocol):
    """Who sends for the core what it declares repeatable, while the event loop is blocked."""

    deliver: Callable[[BackgroundHeartbeatReply], None]

    def stand_by(self, standby: BackgroundHeartbeat) -> None:
        """This may be sent from now on."""
        ...

    def tick(self) -> str | None:
        """The loop runs; answers where it was blocked meanwhile."""
        ...

    def stop(self) -> None:
        """Send nothing any more."""
        ...

    async def aclose(self) -> None:
        """Stop, and wait for the end."""
        ...


class Driver:
    """Drives one core on the running event loop, from :meth:`start` to :meth:`aclose`.

    Without a ``stand_in`` nothing is sent while the event loop is blocked.
    """

    def __init__(
        self,
        core: Core,
        requests: Requests,
        log: EventLog,
        listener: ListenerCalls,
        *,
        tolerated_lag: float = 15.0,
        stand_in: HeartbeatFallback | None = None,
        jitter: random.Random | None = None,
        witness: Witness | None = None,
    ) -> None:
        self._core = core
        self._requests = requests
        self._log = log
        self._listener = listener
        self._witness = witness
        self._jitter = jitter or random.Random()  # noqa: S311 - spreads timers, keeps no secret
        self._loop = asyncio.get_running_loop()
        self._lag = LoopLag(self._loop, tolerated_lag, log, self._tick)
        self._stand_in = stand_in
        if stand_in is not None:
            stand_in.deliver = self._feed
        self._decode_threads = DecodeThreads()
        self._computing_thread = ComputingThread()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tickets: dict[int, asyncio.Future[object]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._root: asyncio.Task[None] | None = None
        self._ending = self._loop.create_future()
        self._calls: asyncio.Task[None] | None = None
        self._soon = False
        self.wake = asyncio.Event()
        # Told before the listener, without a task: whoever runs work on these partitions.
        self.on_lost: Callable[[frozenset[TopicPartition]], None] = lambda _partitions: None
        # Called once a second or more often.
        self.on_tick: Callable[[], None] = lambda: None
        # Called when all has ended.
        self.on_end: Callable[[], None] = lambda: None
        self.error: FatalError | None = None

    def now(self) -> float:
        """The core's clock, in seconds: monotonic, without a meaning of its own."""
        return self._loop.time()

    @property
    def loop_lag(self) -> float:
        """By how many seconds the event loop was late when :attr:`on_tick` was last due."""
        return self._lag.late

    def start(self) -> None:
        """Start the core and the root task."""
        self._root = self._loop.create_task(self._own_tasks(), name="asyncrevoke")
        self._root.add_done_callback(self._ended)
        self._root.add_done_callback(lambda _root: self.on_end())
        self._lag.start()
        self._adopt(self._loop.create_task(self._hear_silence()))
        try:
            self._core.start(self.now())
        except Exception as error:  # noqa: BLE001 - raised by the next step
            self.fail(error)
        self.flush()

    def flush(self) -> None:
        """Carry out what a call of the core has left."""
        if not self._core.has_effects:
            return
        try:
            self._perform(self._core.take_effects())
        except Exception as error:  # noqa: BLE001 - raised by the next step
            self.fail(error)

    def soon(self, call: Callable[[float], None]) -> None:
        """Call the core in the next turn of the event loop, when all that is due by now has run.

        Once for all that ask for it before that; ``call`` is the same each time.
        """
        if not self._soon:
            self._soon = True
            # A timer, because what is called soon goes before those.
            now = self.now()
            self._loop.call_at(now, self._call_now, call)

    def _call_now(self, call: Callable[[float], None]) -> None:
        self._soon = False
        if self._ending.done():
            return
        try:
            call(self.now())
        except Exception as error:  # noqa: BLE001 - raised by the next step
            self.fail(error)
        self.flush()

    def ticket(self, number: int) -> asyncio.Future[object]:
        """The future of a ticket that the core has just given. Cancelling it is harmless."""
        future = self._loop.create_future()
        if self.error is not None:
            future.set_exception(self.error)
            return future
        self._tickets[number] = future
        self.flush()
        return future

    def fail(self, cause: BaseException) -> None:
        """End for good: nothing further is sent, and the next step raises an error saying why."""
        if self._ending.done():
            if not isinstance(cause, asyncio.CancelledError):
                self._log.warning("failed while closing", exc_info=cause)
            return
        if isinstance(cause, FatalError):
            self.error = cause
        else:
            self.error = FatalError(f"the consumer failed within itself: {cause!r}")
            self.error.__cause__ = cause
        self._log.error("consumer failed", exc_info=cause)
        self._stop()
        self.wake.set()

    async def wait_until(self, deadline: float | None) -> bool:
        """Wait until woken: True, or until ``deadline``: False. Cancelling it changes nothing."""
        if deadline is None:
            await self.wake.wait()
            return True
        try:
            async with asyncio.timeout_at(deadline):
                await self.wake.wait()
        except TimeoutError:
            return False
        return True

    def is_calling_listener(self) -> bool:
        """Whether we are called from within a callback of the listener."""
        return self._calls is not None and self._calls is asyncio.current_task()

    async def listener_called(self, until: float) -> None:
        """Wait until the listener was told everything, or ``until``."""
        if self._calls is not None:
            await asyncio.wait((self._calls,), timeout=max(0.0, until - self.now()))

    async def aclose(self, until: float = 0.0) -> None:
        """End all timers and requests and close the connections. Idempotent.

        Takes no longer than until ``until``, or half a second: then connections are closed without
        waiting for their goodbyes. If cancelled, closing goes on without being waited for.
        """
        self._stop()
        root = self._root
        if root is None:
            return
        await asyncio.wait((root,), timeout=max(_CLOSING, until - self.now()))
        if not root.done():
            root.cancel()
            await asyncio.wait((root,), timeout=_CLOSING - _CANCELLED)

    # --- effects -------------------------------------------------------------------------------

    def _feed(self, event: Event) -> None:
        if self._ending.done():
            return
        try:
            self._perform(self._core.handle(self.now(), event))
        except Exception as error:  # noqa: BLE001 - raised by the next step
            self.fail(error)

    def _perform(self, effects: Sequence[Effect]) -> None:
        if self._ending.done():
            return
        notifications: list[Notify] = []
        for effect in effects:
            match effect:
                case Send():
                    self._start_request(effect)
                case ResetConnection() | DropSilentConnections() | ProbeBroker():
                    self._reconnect(effect)
                case SetTimer():
                    self._set_timer(effect)
                case CancelTimer(key):
                    self._cancel_timer(key)
                case BackgroundHeartbeat():
                    self._stand_by(effect)
                case WakePoller():
                    self.wake.set()
                case Emit():
                    self._emit(effect)
                case Notify():
                    notifications.append(effect)
                case CompleteRequest(ticket, result, error):
                    self._complete(ticket, result, error)
                case DecodeBatch() | Compute():
                    self._adopt(self._loop.create_task(self._run_beside(effect)))
        if notifications:
            self._notify(notifications)

    def _reconnect(self, effect: ResetConnection | DropSilentConnections | ProbeBroker) -> None:
        if isinstance(effect, ResetConnection):
            self._requests.reset(effect.node, effect.channel)
        elif isinstance(effect, ProbeBroker):
            self._adopt(self._loop.create_task(self._probe(effect)))
        else:
            self._requests.drop_silent(effect)

    def _stand_by(self, effect: BackgroundHeartbeat) -> None:
        if self._stand_in is not None:
            self._stand_in.stand_by(effect)

    def _emit(self, event: Emit) -> None:
        self._log.emit(event)
        if self._witness is not None:
            self._witness.happened(event)

    def _set_timer(self, effect: SetTimer) -> None:
        self._cancel_timer(effect.key)
        at = effect.at + effect.spread * self._jitter.random()
        self._timers[effect.key] = self._loop.call_at(at, self._fire, effect.key)

    def _cancel_timer(self, key: str) -> None:
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()

    def _fire(self, key: str) -> None:
        del self._timers[key]
        self._feed(TimerFired(key))

    def _complete(self, ticket: int, result: object, error: Exception | None) -> None:
        future = self._tickets.pop(ticket, None)
        if future is None or future.done():
            return  # whoever asked was cancelled
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def _tick(self) -> str | None:
        blocked_at = None if self._stand_in is None else self._stand_in.tick()
        try:
            self.on_tick()
        except Exception as error:  # noqa: BLE001 - raised by the next step
            self.fail(error)
        return blocked_at

    def _start_request(self, send: Send) -> None:
        if not self._ending.done() and not self._requests.begin(send, self._feed):
            self._adopt(self._loop.create_task(self._request(send)))

    async def _request(self, send: Send) -> None:
        self._feed(await self._requests.request(send))

    async def _hear_silence(self) -> None:
        while True:
            self._feed(await self._requests.silence())

    async def _probe(self, probe: ProbeBroker) -> None:
        self._feed(await self._requests.probe(probe))

    async def _run_beside(self, effect: DecodeBatch | Compute) -> None:
        if isinstance(effect, DecodeBatch):
            self._feed(await self._decode_threads.run(effect))
        else:
            self._feed(await self._computing_thread.run(effect))

    def _notify(self, notifications: list[Notify]) -> None:
        for notify in notifications:
            if notify.kind is NotifyKind.LOST:
                self.on_lost(notify.partitions)
            if self._witness is not None:
                self._witness.notified(notify)
        self._listener.put(notifications)
        self._start_calls()

    def tell_blocking(self, blocking: Sequence[BlockingRecord]) -> None:
        """Call the listener for records that hold a revoke back."""
        self._listener.put_blocking(blocking)
        self._start_calls()

    def _start_calls(self) -> None:
        if self._calls is None:
            self._calls = self._loop.create_task(
                self._call_listener(), name="asyncrevoke rebalance listener"
            )
            self._adopt(self._calls)

    async def _call_listener(self) -> None:
        try:
            await self._listener.run()
        finally:
            self._calls = None
            # An error of a callback is for the step that may be waiting just now.
            self.wake.set()

    # --- tasks ---------------------------------------------------------------------------------

    def _adopt(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            # Not by us: then a request would stay without its answer for ever.
            self.fail(
                asyncio.CancelledError(f"task {task.get_name()!r} was cancelled from outside")
            )
        elif (error := task.exception()) is not None:
            self.fail(error)

    async def _own_tasks(self) -> None:
        try:
            await self._ending
        finally:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            try:
                if tasks:
                    self._abandon((await asyncio.wait(tasks, timeout=_CANCELLED))[1])
                self._decode_threads.stop()
                if self._stand_in is not None:
                    await self._stand_in.aclose()
            finally:
                await self._requests.close()

    def _abandon(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        """These catch their cancellation: only what a listener or a token provider runs does."""
        for task in tasks:
            self._log.error(
                "cancelled callback did not exit; abandoned",
                callback=task.get_name(),
            )
            abandon(task)

    def _stop(self) -> None:
        if self._stand_in is not None:
            self._stand_in.stop()
        if not self._ending.done():
            self._ending.set_result(None)
        self._lag.stop()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        waiting, self._tickets = self._tickets, {}
        for future in waiting.values():
            if not future.done():
                if self.error is not None:
                    future.set_exception(self.error)
                else:
                    future.cancel()
