"""Carries out the effects of the core: the only owner of tasks, timers and sockets.

Every call of the core goes through :meth:`Driver.call` or a method beside it, which carries out at
once, without an await in between, what follows. One root task owns the tasks of all requests; they
do not depend on the task that entered the consumer. An unexpected failure ends the consumer with a
:class:`~asyncrevoke.errors.FatalError`, which the next step raises.
"""

from __future__ import annotations

import asyncio
import random
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar, TypeVarTuple

from asyncrevoke.client import log_events
from asyncrevoke.client.core.io.deadline import (
    CANCELLED_TASKS,
    CONNECTIONS_AFTER_TASKS,
    PASSED,
    Deadline,
)
from asyncrevoke.client.core.io.effects import (
    BackgroundHeartbeat,
    CancelTimer,
    CompleteRequest,
    Compute,
    Computed,
    DecodeBatch,
    DropSilentConnections,
    Effect,
    Emit,
    EnterLifespan,
    Event,
    ExitLifespan,
    LoseLifespan,
    Notify,
    ProbeBroker,
    ResetConnection,
    Send,
    SetTimer,
    StopBackgroundHeartbeat,
    TimerFired,
    TransactionDue,
    WakePoller,
)
from asyncrevoke.client.errors import ConsumerClosedError, FatalError
from asyncrevoke.client.printable import named_error
from asyncrevoke.client.runtime.loop.abandoned_tasks import abandon
from asyncrevoke.client.runtime.loop.blocked_loop import HeartbeatThread, LoopLag
from asyncrevoke.client.runtime.net.decode_threads import DecodeThreads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncrevoke.client.core.core import Core
    from asyncrevoke.client.core.io.driven_core import DrivenCore
    from asyncrevoke.client.runtime.hooks.event_log import EventLog
    from asyncrevoke.client.runtime.hooks.lifespan_events import LifespanEvent, LifespanEvents
    from asyncrevoke.client.runtime.hooks.rebalance_listener import ListenerCalls
    from asyncrevoke.client.runtime.loop.reactions import DriverReactions
    from asyncrevoke.client.runtime.net.requests import Requests


P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Driver:
    """Drives one core on the running event loop, from :meth:`start` to :meth:`aclose`.

    ``open_heartbeat_thread`` makes what sends heartbeats while the event loop is blocked; with
    None, none are sent then.
    """

    def __init__(
        self,
        core: DrivenCore,
        requests: Requests,
        log: EventLog,
        listener: ListenerCalls,
        lifespans: LifespanEvents,
        reactions: DriverReactions,
        *,
        tolerated_lag: float = 15.0,
        open_heartbeat_thread: Callable[[Driver], HeartbeatThread] | None = None,
        jitter: random.Random | None = None,
    ) -> None:
        self._core = core
        self._requests = requests
        self._log = log
        self._listener = listener
        self._lifespans = lifespans
        self._reactions = reactions
        self._jitter = jitter or random.Random()  # noqa: S311 - spreads timers, keeps no secret
        self._loop = asyncio.get_running_loop()
        self._lag = LoopLag(self._loop, tolerated_lag, log, self)
        self._heartbeat_thread = (
            None if open_heartbeat_thread is None else open_heartbeat_thread(self)
        )
        self._decode_threads = DecodeThreads()
        self._computing_thread = ComputingThread()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._calls: dict[int, asyncio.Future[object]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._root: asyncio.Task[None] | None = None
        self._stopping = self._loop.create_future()
        self._listener_task: asyncio.Task[None] | None = None
        self._next_call: asyncio.TimerHandle | None = None
        self.wake = asyncio.Event()
        self.error: FatalError | None = None

    def now(self) -> float:
        """The core's clock, in seconds: monotonic, without a meaning of its own."""
        return self._loop.time()

    def start(self) -> None:
        """Start the core and the root task."""
        self._root = self._loop.create_task(self._run_until_stopped(), name="asyncrevoke")
        self._root.add_done_callback(self._on_task_done)
        self._root.add_done_callback(lambda _root: self._reactions.driver_ended())
        self._lag.start()
        self._supervise(self._loop.create_task(self._watch_connections()))
        try:
            self.call(self._core.start)
        except Exception as error:  # noqa: BLE001 - raised by the next step
            self.fail(error)

    # --- calls of the core ---------------------------------------------------------------------

    def call(
        self, function: Callable[Concatenate[float, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call this method of the core with the present time, and carry out what follows. Raises
        what it raises."""
        try:
            return function(self._loop.time(), *args, **kwargs)
        finally:
            self.flush()

    def call_for_record(self, function: Callable[[float, *Ts], T], *args: *Ts) -> T:
        """Like :meth:`call`, for a method that is called for each record and mostly has no effect:
        only if it has one, something follows."""
        try:
            return function(self._loop.time(), *args)
        finally:
            if self._core.has_effects:
                self.flush()

    def ask(
        self, function: Callable[Concatenate[float, P], int], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[object]:
        """Like :meth:`call`, for a method that numbers a call: the future of its result.
        Cancelling it has no effect on the call. After the end it fails with the consumer's error,
        or with ConsumerClosedError."""
        future = self._loop.create_future()
        try:
            call_id = function(self._loop.time(), *args, **kwargs)
            if not self._stopping.done():
                self._calls[call_id] = future
            else:
                future.set_exception(self.error or ConsumerClosedError("this consumer is closed"))
        finally:
            self.flush()
        return future

    def flush(self) -> None:
        """Carry out what follows from the last call of the core. Before :meth:`start`, nothing."""
        if self._root is None:
            return
        try:
            self._carry_out(self._core.take_effects(self._loop.time()))
        except Exception as error:  # noqa: BLE001 - raised by the next step
            self.fail(error)

    def call_soon(self, call: Callable[[float], None]) -> None:
        """Call the core in the next iteration of the event loop, after all that is due now.

        Several requests before that make one call; ``call`` is the same each time.
        """
        if self._next_call is None:
            # A timer, because call_soon() runs before due timers.
            self._next_call = self._loop.call_at(self.now(), self._call_now, call)

    def cancel_call(self) -> None:
        """Forget the last :meth:`call_soon`, which costs an iteration of the event loop."""
        if self._next_call is not None:
            self._next_call.cancel()
            self._next_call = None

    def _call_now(self, call: Callable[[float], None]) -> None:
        self._next_call = None
        if self._stopping.done():
            return
        try:
            self.call(call)
        except Exception as error:  # noqa: BLE001 - raised by the next step
            self.fail(error)

    def fail(self, cause: BaseException) -> None:
        """End the consumer: nothing further is sent, and the next step raises the error."""
        if self._stopping.done():
            if not isinstance(cause, asyncio.CancelledError):
                log_events.INTERNAL_ERROR_CLOSING.write_to(self._log, exc_info=cause)
            return
        if isinstance(cause, FatalError):
            self.error = cause
        else:
            self.error = FatalError(f"internal error of the consumer: {named_error(cause)}")
            self.error.__cause__ = cause
        log_events.INTERNAL_ERROR.write_to(self._log, exc_info=cause)
        self._stop_sending()
        self.wake.set()

    async def wait_until(self, deadline: float | None) -> bool:
        """Wait for ``wake``: True, or until ``deadline``: False. If cancelled, nothing changes."""
        if deadline is None:
            await self.wake.wait()
            return True
        try:
            async with asyncio.timeout_at(deadline):
                await self.wake.wait()
        except TimeoutError:
            return False
        return True

    @property
    def stopped(self) -> bool:
        """Whether no requests are sent any more."""
        return self._stopping.done()

    async def listener_called(self, until: float) -> None:
        """Wait until no callbacks of the listener are pending, or ``until``."""
        if self._listener_task is not None:
            await asyncio.wait((self._listener_task,), timeout=max(0.0, until - self.now()))

    async def aclose(self, deadline: Deadline = PASSED) -> None:
        """End all timers and requests, and close the connections. Idempotent.

        Takes until the deadline at most, or half a second: then sockets are closed without waiting
        for their peers. If cancelled, closing goes on without being waited for.
        """
        self._stop_sending()
        root = self._root
        if root is None:
            return
        await asyncio.wait((root,), timeout=deadline.connections(self.now()) - self.now())
        if not root.done():
            root.cancel()
            await asyncio.wait((root,), timeout=CONNECTIONS_AFTER_TASKS)

    # --- effects -------------------------------------------------------------------------------

    def handle(self, event: Event) -> None:
        """Give an event to the core, and carry out what follows."""
        if self._stopping.done():
            return
        try:
            self._carry_out(self._core.handle(self.now(), event))
        except Exception as error:  # noqa: BLE001 - raised by the next step
            self.fail(error)

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        if self._stopping.done():
            return
        notifications: list[Notify] = []
        for effect in effects:
            match effect:
                case Send():
                    self._send(effect)
                case ResetConnection() | DropSilentConnections() | ProbeBroker():
                    self._reconnect(effect)
                case SetTimer():
                    self._set_timer(effect)
                case CancelTimer(key):
                    self._cancel_timer(key)
                case BackgroundHeartbeat() | StopBackgroundHeartbeat():
                    self._set_heartbeat(effect)
                case WakePoller():
                    self.wake.set()
                case Emit() | EnterLifespan() | ExitLifespan() | LoseLifespan() | TransactionDue():
                    self._report(effect)
                case Notify():
                    notifications.append(effect)
                case CompleteRequest(call_id, result, error):
                    self._complete_call(call_id, result, error)
                case DecodeBatch() | Compute():
                    self._supervise(self._loop.create_task(self._run_in_thread(effect)))
        if notifications:
            self._notify(notifications)

    def _report(self, effect: Emit | LifespanEvent | TransactionDue) -> None:
        if isinstance(effect, Emit):
            self._reactions.core_reported(effect)
        elif isinstance(effect, TransactionDue):
            self._reactions.transaction_due()
        else:
            self._lifespans.lifespan_due(effect)

    def _reconnect(self, effect: ResetConnection | DropSilentConnections | ProbeBroker) -> None:
        if isinstance(effect, ResetConnection):
            self._requests.reset(effect.node, effect.channel)
        elif isinstance(effect, ProbeBroker):
            self._supervise(self._loop.create_task(self._probe(effect)))
        else:
            self._requests.drop_silent(effect)

    def _set_heartbeat(self, effect: BackgroundHeartbeat | StopBackgroundHeartbeat) -> None:
        if self._heartbeat_thread is not None:
            self._heartbeat_thread.set_heartbeat(
                effect if isinstance(effect, BackgroundHeartbeat) else None
            )

    def _set_timer(self, effect: SetTimer) -> None:
        self._cancel_timer(effect.key)
        at = effect.at + effect.spread * self._jitter.random()
        self._timers[effect.key] = self._loop.call_at(at, self._fire, effect.key)

    def _cancel_timer(self, key: str) -> None:
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()

    def _fire(self, key: str) -> None:
        del self._timers[key]
        self.handle(TimerFired(key))

    def _complete_call(self, call_id: int, result: object, error: Exception | None) -> None:
        future = self._calls.pop(call_id, None)
        if future is None or future.done():
            return  # the caller was cancelled
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def loop_ticked(self, late: float) -> str | None:
        """The event loop ran this ``late`` seconds after it was due; once a second or more often.

        Returns the line that blocked it, if a warning was logged already.
        """
        blocked_at = None if self._heartbeat_thread is None else self._heartbeat_thread.tick()
        try:
            self._reactions.ticked(late)
        except Exception as error:  # noqa: BLE001 - raised by the next step
            self.fail(error)
        if self._listener.pending:
            self._call_listener_soon()
        return blocked_at

    def _send(self, send: Send) -> None:
        if not self._stopping.done() and not self._requests.begin(send, self.handle):
            self._supervise(self._loop.create_task(self._request(send)))

    async def _request(self, send: Send) -> None:
        self.handle(await self._requests.request(send))

    async def _watch_connections(self) -> None:
        while True:
            self.handle(await self._requests.report())

    async def _probe(self, probe: ProbeBroker) -> None:
        self.handle(await self._requests.probe(probe))

    async def _run_in_thread(self, effect: DecodeBatch | Compute) -> None:
        if isinstance(effect, DecodeBatch):
            self.handle(await self._decode_threads.submit(effect.run))
        else:
            self.handle(await self._computing_thread.run(effect))

    def _notify(self, notifications: list[Notify]) -> None:
        for notify in notifications:
            self._reactions.partitions_changed(notify)
        self._listener.queue(notifications)
        self._call_listener_soon()

    def _call_listener_soon(self) -> None:
        if self._listener_task is None:
            self._listener_task = self._loop.create_task(
                self._call_listener(), name="asyncrevoke rebalance listener"
            )
            self._supervise(self._listener_task)

    async def _call_listener(self) -> None:
        try:
            await self._listener.run(self._listener_called)
        finally:
            self._listener_task = None
            # A waiting step raises the error of a callback.
            self.wake.set()

    def _listener_called(self, instance_ids: Sequence[int]) -> None:
        """``on_partitions_assigned`` has returned, or failed: the partitions are delivered."""
        if not self._stopping.done():
            self.call(self._core.listener_called, instance_ids)

    # --- tasks ---------------------------------------------------------------------------------

    def _supervise(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            # Not by the driver: its request would never get a response.
            self.fail(
                asyncio.CancelledError(f"task {task.get_name()!r} was cancelled from outside")
            )
        elif (error := task.exception()) is not None:
            self.fail(error)

    async def _run_until_stopped(self) -> None:
        try:
            await self._stopping
        finally:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            try:
                if tasks:
                    _, left = await asyncio.wait(tasks, timeout=CANCELLED_TASKS)
                    # These caught their cancellation: only tasks that run user callbacks can.
                    for task in left:
                        log_events.CALLBACK_ABANDONED.write_to(self._log, callback=task.get_name())
                        abandon(task)
                self._decode_threads.stop()
                if self._heartbeat_thread is not None:
                    await self._heartbeat_thread.aclose()
            finally:
                await self._requests.close()

    def _stop_sending(self) -> None:
        if self._heartbeat_thread is not None:
            self._heartbeat_thread.stop()
        if not self._stopping.done():
            self._stopping.set_result(None)
        self._lag.stop()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        waiting, self._calls = self._calls, {}
        for future in waiting.values():
            if not future.done():
                if self.error is not None:
                    future.set_exception(self.error)
                else:
                    future.cancel()


class PollBoundary:
    """Inside, the caller awaits the library: ``max_poll_interval`` does not run, and partitions
    whose revocation was announced may be released.

    A class: contextlib's generators write into exceptions, and a user's class may forbid that.
    """

    def __init__(self, core: Core, driver: Driver) -> None:
        self._core = core
        self._driver = driver

    def __enter__(self) -> None:
        self._driver.call(self._core.poller.boundary, inside=True)

    def __exit__(self, *_error: object) -> None:
        self._driver.call(self._core.poller.boundary, inside=False)


class ComputingThread:
    """Computes assignments beside the event loop, one at a time, each in its own thread.

    The threads are daemons, so a user's assignor that never returns does not keep the process
    alive.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._one_at_a_time = asyncio.Lock()

    async def run(self, compute: Compute) -> Computed:
        """Compute it after the ones before it. If cancelled, the result is dropped."""
        async with self._one_at_a_time:
            future: asyncio.Future[Computed] = self._loop.create_future()
            threading.Thread(
                target=self._run, args=(compute, future), name="asyncrevoke-assign", daemon=True
            ).start()
            return await future

    def _run(self, compute: Compute, future: asyncio.Future[Computed]) -> None:
        computed = compute.run()
        # The event loop is closed if the consumer has ended meanwhile.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(_set_result, future, computed)


def _set_result(future: asyncio.Future[Computed], computed: Computed) -> None:
    if not future.done():
        future.set_result(computed)
