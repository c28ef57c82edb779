"""The tasks that run ready entries: at most ``concurrency``, none for a single record."""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from time import monotonic
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from asyncrevoke.errors import HandlerCancelledError
from asyncrevoke.handlers.scheduling.lane_order import LaneItem
from asyncrevoke.runtime.loop.abandoned_tasks import abandon

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

    from asyncrevoke.handlers.scheduling.lanes import LaneQueue
    from asyncrevoke.handlers.scheduling.partition_lanes import Entry
    from asyncrevoke.model import TopicPartition
    from asyncrevoke.runtime.session.membership_guard import MembershipGuard
    from asyncrevoke.runtime.session.shutdown_deadline import ShutdownDeadline


class SchedulableItem(LaneItem, Protocol):
    """What workers need to know of an item."""

    @property
    def topic(self) -> str:
        """The topic; the times of calls are kept by topic."""
        ...


T = TypeVar("T", bound=SchedulableItem)

# Seconds that workers together run without yielding to the event loop, if no handler awaits.
_MAX_RUN_WITHOUT_YIELD = 0.004
# Seconds more if each handler yields by itself.
_MAX_YIELDED_EXTENSION = 0.012
_LONGEST_TURN = _MAX_RUN_WITHOUT_YIELD + _MAX_YIELDED_EXTENSION
# Seconds that cancelled handlers have to end before they are abandoned.
_GRACE = 5.0


class ItemDispatch(Protocol[T]):
    """What workers call for each item, and when it has ended."""

    # By topic, the seconds of calls that have returned; None if no observer wants them.
    call_times: dict[str, list[float]] | None

    def start(self, item: T, /) -> Awaitable[object]:
        """Call the handler. An error may be raised here, or by the awaitable."""
        ...

    def completed(self, item: T, /) -> object:
        """The handler has returned."""
        ...

    def call_raised(self, item: T, seconds: float, error: BaseException, /) -> None:
        """The handler has raised. Called only if ``call_times`` is not None."""
        ...

    def flush_completed(self) -> None:
        """Items may have completed since the last call. Called once in each turn of the event loop
        in which something ran, when a worker has ended, and before workers are cancelled."""
        ...

    def handle_failure(self, entry: Entry[T], error: BaseException, /) -> bool:
        """An item has failed. True frees its lane; after False the lane waits until ``requeue``,
        ``free_lane`` or ``drop_lane`` is called for the entry."""
        ...

    def call_cancelled(self, item: T, error: BaseException, /) -> None:
        """The item has ended because its partition was lost or the pool closes."""
        ...

    def worker_failed(self, error: BaseException, /) -> None:
        """A worker has ended by an error that is no handler's: no item can complete any more."""
        ...


class _Worker(Generic[T]):
    """One task; ``entry`` is what it runs. Another task may take its place: see WorkerPool."""

    __slots__ = ("_parked", "abandoned", "cancelled", "entry", "task")

    def __init__(self) -> None:
        self.entry: Entry[T] | None = None
        self.cancelled = False
        self.abandoned = False
        self._parked: asyncio.Future[None] | None = None
        self.task: asyncio.Task[None] | None = None

    def run_by(self, task: asyncio.Task[None]) -> None:
        """This task runs it from now on."""
        self.task = task

    def cancel(self) -> None:
        """Cancel the call that runs; once for each call."""
        if not self.cancelled:
            self.cancelled = True
            assert self.task is not None
            self.task.cancel()

    def cancellation_absorbed(self) -> None:
        """The worker goes on after a call that was cancelled."""
        self.cancelled = False

    def abandon(self, task: asyncio.Task[None]) -> None:
        """Nobody waits for the call any more, and its end is not reported."""
        self.abandoned = True
        abandon(task)

    def park(self) -> asyncio.Future[None]:
        """Returns what the worker awaits until it is woken."""
        self._parked = asyncio.get_running_loop().create_future()
        return self._parked

    def wake(self) -> None:
        """End the waiting."""
        if self._parked is not None and not self._parked.done():
            self._parked.set_result(None)


class WorkerPool(Generic[T]):
    """At most ``concurrency`` tasks, made when they are first needed, that take from ``lanes``.

    An idle worker waits for a future. Whoever makes entries ready calls :meth:`notify`, which wakes
    one worker; one that was woken and finds further entries wakes two others. So many entries are
    spread within few turns of the event loop, and handlers that never yield are run by one worker,
    one after another.

    While the membership is unconfirmed no entry starts: workers wait until it is confirmed.

    Each item starts with the context variables that were set when the pool was made: if a handler
    has changed some, another task takes the worker's place.
    """

    def __init__(
        self,
        lanes: LaneQueue[T],
        dispatch: ItemDispatch[T],
        concurrency: int,
        membership: MembershipGuard,
        deadline: ShutdownDeadline | None = None,
    ) -> None:
        self._lanes = lanes
        self._dispatch = dispatch
        self._concurrency = concurrency
        self._membership = membership
        self._deadline = deadline
        self._workers: dict[_Worker[T], None] = {}
        self._parked: list[_Worker[T]] = []
        # Whether a callback is due at the end of this turn of the event loop.
        self._in_turn = False
        self._turn = 0
        self._turn_ends = 0.0
        self._turn_latest = 0.0
        # Until when, by the loop's clock, the confirmed membership lets records start.
        self._may_start_until = float("-inf")
        self._unconfirmed = False
        self._confirmation: asyncio.Future[object] | None = None
        self._idle: asyncio.Future[None] | None = None
        self._closing = False
        self._failed = False
        self._context = copy_context()

    def running(self) -> Iterator[tuple[TopicPartition, T]]:
        """The items that have started and not ended."""
        for worker in self._workers:
            if worker.entry is not None:
                yield worker.entry[0].partition, worker.entry[1]

    def notify(self) -> None:
        """Entries may be ready, or nothing is left to wait for."""
        if self._closing or self._failed:
            return
        if self._lanes.ready:
            self._wake_one()
        elif self._unconfirmed:
            # Entries that waited for the membership may have been dropped.
            self._wake_if_idle()

    def cancel(self, partition: TopicPartition) -> None:
        """Cancel the calls of a lost partition; their lanes are freed when they have ended."""
        for worker in self._workers:
            entry = worker.entry
            if entry is not None and entry[0].partition == partition:
                worker.cancel()

    async def wait_until_idle(self) -> None:
        """Wait until no entry runs or is ready, or a worker has failed.

        If cancelled, only the waiting ends. One caller at a time.
        """
        if self._is_idle():
            return
        self.notify()
        self._idle = asyncio.get_running_loop().create_future()
        try:
            await self._idle
        finally:
            self._idle = None

    async def close(self) -> list[T]:
        """Cancel the calls that run, wait for their end, and end the workers.

        Returns the items whose calls have still not ended after 5 s, or when the shutdown has no
        more time for them: these calls are abandoned. If cancelled, the workers are cancelled all
        the same and the waiting ends.
        """
        self._closing = True
        if self._confirmation is not None:
            self._confirmation.cancel()
        self._flush_completed()
        tasks = {worker.task: worker for worker in self._workers if worker.task is not None}
        for task in tasks:
            task.cancel()
        if not tasks:
            return []
        deadline = self._deadline
        grace = _GRACE if deadline is None else deadline.until_commits_end(_GRACE)
        _, left = await asyncio.wait(tasks, timeout=grace)
        items: list[T] = []
        for task in left:
            worker = tasks[task]
            worker.abandon(task)
            if worker.entry is not None:
                items.append(worker.entry[1])
        return items

    # -- the workers -----------------------------------------------------------------------------

    def _is_idle(self) -> bool:
        nothing_queued = not (self._lanes.ready or self._lanes.limited)
        nothing_runs = len(self._parked) == len(self._workers)
        return (nothing_queued and nothing_runs) or self._failed

    def _wake_one(self) -> None:
        if self._parked:
            self._parked.pop().wake()
        elif len(self._workers) < self._concurrency:
            worker: _Worker[T] = _Worker()
            self._workers[worker] = None
            self._begin(worker)

    def _begin(self, worker: _Worker[T]) -> None:
        task = asyncio.get_running_loop().create_task(
            self._run(worker), context=self._context.copy()
        )
        worker.run_by(task)
        task.add_done_callback(lambda task: self._worker_ended(worker, task))

    async def _run(self, worker: _Worker[T]) -> None:
        lanes, dispatch = self._lanes, self._dispatch
        take, free_lane = lanes.take, lanes.free_lane
        start, completed, clean = dispatch.start, dispatch.completed, self._context
        times = dispatch.call_times
        fresh = True
        turn = -1
        now = monotonic()
        while not self._closing:
            if now > self._turn_ends and not self._begin_turn(turn, now):
                if self._unconfirmed:
                    await self._park(worker)
                    fresh = True
                else:
                    await asyncio.sleep(0)
                now = monotonic()
                continue
            turn = self._turn
            entry = take()
            if entry is None:
                await self._park(worker)
                fresh = True
                now = monotonic()
                continue
            if fresh:
                fresh = False
                for _ in range(min(2, lanes.ready)):
                    self._wake_one()
            worker.entry = entry  # an assignment: a method would cost time for each record
            item = entry[1]
            began = now
            try:
                await start(item)
            except BaseException as error:  # noqa: BLE001 - all of it is a handler's, see _call_failed
                worker.entry = None
                if times is not None:
                    dispatch.call_raised(item, monotonic() - began, error)
                await self._call_failed(worker, entry, error)
                now = monotonic()
            else:
                worker.entry = None
                if worker.abandoned:
                    return
                # Read once for a call's end, the next one's beginning and the turn.
                now = monotonic()
                if times is not None:
                    times[item.topic].append(now - began)
                completed(item)
                free_lane(entry)
                if worker.cancelled:
                    await self._absorb_cancel(worker)
                    now = monotonic()
            if copy_context() != clean and not self._closing:
                self._begin(worker)
                return

    def _begin_turn(self, last: int, now: float) -> bool:
        """Whether a worker that last started something in turn ``last`` may start an entry now.

        Not if the turn has used its time, or the membership is unconfirmed. A worker whose handler
        has yielded meanwhile has some more time: when hundreds of handlers end at once, another
        turn of the event loop costs more than it gives.
        """
        if self._in_turn:
            return last != self._turn and now <= self._turn_latest
        self._in_turn = True
        self._turn += 1
        now = monotonic()
        self._turn_ends = now + _MAX_RUN_WITHOUT_YIELD
        self._turn_latest = self._turn_ends + _MAX_YIELDED_EXTENSION
        loop = asyncio.get_running_loop()
        loop.call_soon(self._end_turn)
        # Asking once in a turn is enough: a process that was frozen finds the turn's time used.
        if loop.time() > self._may_start_until - _LONGEST_TURN:
            self._ask_membership(now, loop.time())
        return not self._unconfirmed

    def _ask_membership(self, turn_began: float, now: float) -> None:
        seconds = self._membership.may_begin_for()
        self._unconfirmed = seconds < 0
        self._may_start_until = now + seconds
        # If unconfirmed, the turn's time is used before anything starts in it.
        self._turn_ends = min(self._turn_ends, turn_began + seconds)
        self._turn_latest = min(self._turn_latest, turn_began + seconds)
        if self._unconfirmed and self._confirmation is None:
            self._confirmation = self._membership.confirmation()
            self._confirmation.add_done_callback(self._confirmed)

    def _confirmed(self, confirmation: asyncio.Future[object]) -> None:
        self._confirmation = None
        if not confirmation.cancelled() and confirmation.exception() is None:
            self._may_start_until = float("-inf")  # ask again
            self.notify()

    def _end_turn(self) -> None:
        self._in_turn = False
        self._turn_ends = 0.0
        self._flush_completed()

    def _flush_completed(self) -> None:
        try:
            self._dispatch.flush_completed()
        except Exception as error:  # noqa: BLE001 - like a worker's own failure
            self._failed = True
            self._dispatch.worker_failed(error)
            self._wake_if_idle()

    async def _park(self, worker: _Worker[T]) -> None:
        parked = worker.park()
        self._parked.append(worker)
        self._wake_if_idle()
        await parked

    def _wake_if_idle(self) -> None:
        if self._idle is not None and not self._idle.done() and self._is_idle():
            self._idle.set_result(None)

    async def _call_failed(self, worker: _Worker[T], entry: Entry[T], error: BaseException) -> None:
        item = entry[1]
        task = worker.task
        assert task is not None
        if self._closing:
            if not worker.abandoned:
                self._dispatch.call_cancelled(item, error)
            return
        if worker.cancelled:
            self._dispatch.call_cancelled(item, error)
            self._lanes.free_lane(entry)
            await self._absorb_cancel(worker)
            return
        if isinstance(error, GeneratorExit):
            raise error
        by_others = False
        if isinstance(error, asyncio.CancelledError):
            # A future that the handler awaited was cancelled, or this task was, by someone else. In
            # the second case the worker ends, because the event loop may be shutting down.
            by_others = task.cancelling() > 0
            error = HandlerCancelledError(
                "the task that ran the handler was cancelled from outside"
                if by_others
                else "the handler raised CancelledError, and nobody had cancelled it"
            )
        self._lanes.free_limiter(entry)
        if self._dispatch.handle_failure(entry, error):
            self._lanes.free_lane(entry)
        if by_others:
            raise asyncio.CancelledError

    async def _absorb_cancel(self, worker: _Worker[T]) -> None:
        """Undo the cancellation, which was meant for the handler only."""
        worker.cancellation_absorbed()
        task = worker.task
        assert task is not None
        try:
            # If the handler ended without awaiting, the cancellation comes at the next await.
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if self._closing:
                raise
        if task.uncancel() > 0:
            raise asyncio.CancelledError

    def _worker_ended(self, worker: _Worker[T], task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if worker.task is task:  # else another task has taken its place
            del self._workers[worker]
            if worker in self._parked:
                self._parked.remove(worker)
        self._flush_completed()
        if error is not None:
            self._failed = True
            self._dispatch.worker_failed(error)
        self.notify()
        self._wake_if_idle()
