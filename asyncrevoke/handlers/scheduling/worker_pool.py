"""The tasks that run what the lanes allow: a fixed set, none per record."""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from time import monotonic
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from asyncrevoke.errors import HandlerCancelledError
from asyncrevoke.handlers.scheduling.lane_order import Keyed
from asyncrevoke.runtime.loop.abandoned_tasks import abandon

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

    from asyncrevoke.handlers.policy.log import Log
    from asyncrevoke.handlers.scheduling.lanes import Entry, LaneQueue
    from asyncrevoke.model import TopicPartition
    from asyncrevoke.runtime.session.membership_guard import MembershipGuard
    from asyncrevoke.runtime.session.shutdown_deadline import ShutdownDeadline


class Workable(Keyed, Protocol):
    """What workers know of an item."""

    @property
    def topic(self) -> str:
        """The topic, by which calls are timed."""
        ...


T = TypeVar("T", bound=Workable)

# How long workers, all together, may go on without giving the loop a turn, if no handler awaits
# anything.
_BREATH = 0.004
# How much longer if each of them does await something.
_LATEST = 0.012
_LONGEST_TURN = _BREATH + _LATEST
# How long cancelled handlers may take to end before they are left behind.
_GRACE = 5.0


class Work(Protocol[T]):
    """What the workers do, and whom they tell."""

    # By topic, where the seconds of calls that have ended well are put; None if nobody looks on.
    times: dict[str, list[float]] | None

    def raised(self, item: T, seconds: float, error: BaseException, /) -> None:
        """A call has ended by an error. Told only if somebody looks on."""
        ...

    def start(self, item: T, /) -> Awaitable[object]:
        """Call the handler. What it raises itself counts like what its awaitable raises."""
        ...

    def finished(self, item: T, /) -> object:
        """The item is done."""
        ...

    def settle(self) -> None:
        """Items may have finished since the last call. Called once in a turn of the loop in which
        something ran, when a worker has ended, and by ``close`` before it cancels."""
        ...

    def failed(self, entry: Entry[T], error: BaseException, /) -> bool:
        """An item has failed. True lets its lane go on; False leaves it to whom is told: the lane
        is blocked until that calls ``again``, ``done`` or ``give_up`` for the entry."""
        ...

    def cancelled(self, item: T, error: BaseException, /) -> None:
        """The item ended because ``cancel`` or ``close`` asked for it."""
        ...

    def crashed(self, error: BaseException, /) -> None:
        """A worker has ended by an error that is no handler's: nothing can be relied on."""
        ...


class _Worker(Generic[T]):
    __slots__ = ("cancelled", "entry", "left_behind", "parked", "task")

    def __init__(self) -> None:
        self.entry: Entry[T] | None = None
        self.cancelled = False
        self.left_behind = False
        self.parked: asyncio.Future[None] | None = None
        self.task: asyncio.Task[None] | None = None


class Workers(Generic[T]):
    """At most ``concurrency`` tasks, made when they are first needed, that take from ``lanes``.

    An idle worker is parked on a future. Whoever puts something calls ``notify``, which wakes one;
    a worker that was woken and finds more than it can take wakes two others. So a burst is spread
    in few turns of the loop, and handlers that await nothing are run by one worker in a row.

    While the membership is in doubt nothing starts: the workers are parked until it is confirmed.

    Each item starts with the context variables that were set when this object was made: a worker
    whose handler has left some changed is replaced.
    """

    def __init__(
        self,
        lanes: LaneQueue[T],
        work: Work[T],
        concurrency: int,
        log: Log,
        membership: MembershipGuard,
        deadline: ShutdownDeadline | None = None,
    ) -> None:
        self._lanes = lanes
        self._work = work
        self._concurrency = concurrency
        self._log = log
        self._membership = membership
        self._deadline = deadline
        self._workers: dict[_Worker[T], None] = {}
        self._parked: list[_Worker[T]] = []
        # Set while a callback is due that says that the loop has gone round.
        self._in_turn = False
        self._turn = 0
        self._turn_ends = 0.0
        self._turn_latest = 0.0
        # Until when, by the loop's clock, the membership is known to let records begin.
        self._may_begin_until = float("-inf")
        self._held = False
        self._confirmation: asyncio.Future[object] | None = None
        self._idle: asyncio.Future[None] | None = None
        self._closing = False
        self._crashed = False
        self._context = copy_context()

    def running(self) -> Iterator[tuple[TopicPartition, T]]:
        """What has been started and has not ended."""
        for worker in self._workers:
            if worker.entry is not None:
                yield worker.entry[0].partition, worker.entry[1]

    def notify(self) -> None:
        """Something may be ready."""
        if self._closing or self._crashed:
            return
        if self._lanes.ready:
            self._wake_one()
        elif self._held:
            # What was held has been dropped.
            self._tell_idle()

    def cancel(self, partition: TopicPartition) -> None:
        """Cancel what runs of a lost partition. Its lanes go on when it has ended."""
        for worker in self._workers:
            entry = worker.entry
            if entry is not None and entry[0].partition == partition and not worker.cancelled:
                worker.cancelled = True
                assert worker.task is not None
                worker.task.cancel()

    async def drained(self) -> None:
        """Wait until nothing runs and nothing is ready, or no worker is left.

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
        """Cancel what runs, wait for its end, and end the workers.

        Returns what has still not ended 5 s later, or when the shutdown's deadline for it is over:
        it is left behind, nobody waits for it, and its end is not told. If cancelled, the workers
        are cancelled all the same and the waiting ends.
        """
        self._closing = True
        if self._confirmation is not None:
            self._confirmation.cancel()
        self._settle()
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
            worker.left_behind = True
            abandon(task)
            if worker.entry is not None:
                items.append(worker.entry[1])
        return items

    # -- the workers -----------------------------------------------------------------------------

    def _is_idle(self) -> bool:
        nothing_left = not (self._lanes.ready or self._lanes.held) and len(self._parked) == len(
            self._workers
        )
        return nothing_left or self._crashed

    def _wake_one(self) -> None:
        if self._parked:
            parked = self._parked.pop().parked
            if parked is not None and not parked.done():
                parked.set_result(None)
        elif len(self._workers) < self._concurrency:
            worker: _Worker[T] = _Worker()
            self._workers[worker] = None
            self._begin(worker)

    def _begin(self, worker: _Worker[T]) -> None:
        task = asyncio.get_running_loop().create_task(
            self._run(worker), context=self._context.copy()
        )
        worker.task = task
        task.add_done_callback(lambda task: self._ended(worker, task))

    async def _run(self, worker: _Worker[T]) -> None:
        lanes, work = self._lanes, self._work
        take, lane_done = lanes.take, lanes.done
        start, finished, clean = work.start, work.finished, self._context
        times = work.times
        fresh = True
        turn = -1
        now = monotonic()
        while not self._closing:
            if now > self._turn_ends and not self._begin_turn(turn, now):
                if self._held:
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
            worker.entry = entry
            item = entry[1]
            began = now
            try:
                await start(item)
            except BaseException as error:  # noqa: BLE001 - all of it is a handler's, see _failed
                worker.entry = None
                if times is not None:
                    work.raised(item, monotonic() - began, error)
                await self._failed(worker, entry, error)
                now = monotonic()
            else:
                worker.entry = None
                if worker.left_behind:
                    return
                # Read once for a call's end, the next one's beginning and the turn.
                now = monotonic()
                if times is not None:
                    times[item.topic].append(now - began)
                finished(item)
                lane_done(entry)
                if worker.cancelled:
                    await self._absorb_cancel(worker)
                    now = monotonic()
            if copy_context() != clean and not self._closing:
                self._begin(worker)
                return

    def _begin_turn(self, last: int, now: float) -> bool:
        """False if its time is up, or records are held, for a worker whose last turn was ``last``.

        One whose handler has given the loop a turn may begin another after that time all the same:
        when hundreds of them end at once, going round once more costs more than it gives.
        """
        if self._in_turn:
            return last != self._turn and now <= self._turn_latest
        self._in_turn = True
        self._turn += 1
        now = monotonic()
        self._turn_ends = now + _BREATH
        self._turn_latest = self._turn_ends + _LATEST
        loop = asyncio.get_running_loop()
        loop.call_soon(self._end_turn)
        # Once a turn suffices: a process that is frozen within one finds that it is over.
        if loop.time() > self._may_begin_until - _LONGEST_TURN:
            self._ask_membership(now, loop.time())
        return not self._held

    def _ask_membership(self, turn_began: float, now: float) -> None:
        seconds = self._membership.may_begin_for()
        self._held = seconds < 0
        self._may_begin_until = now + seconds
        # If held, the turn is over before anything begins in it.
        self._turn_ends = min(self._turn_ends, turn_began + seconds)
        self._turn_latest = min(self._turn_latest, turn_began + seconds)
        if self._held and self._confirmation is None:
            self._confirmation = self._membership.confirmation()
            self._confirmation.add_done_callback(self._confirmed)

    def _confirmed(self, confirmation: asyncio.Future[object]) -> None:
        self._confirmation = None
        if not confirmation.cancelled() and confirmation.exception() is None:
            self._may_begin_until = float("-inf")  # ask again
            self.notify()

    def _end_turn(self) -> None:
        self._in_turn = False
        self._turn_ends = 0.0
        self._settle()

    def _settle(self) -> None:
        try:
            self._work.settle()
        except Exception as error:  # noqa: BLE001 - told as a worker's end is
            self._crashed = True
            self._work.crashed(error)
            self._tell_idle()

    async def _park(self, worker: _Worker[T]) -> None:
        worker.parked = asyncio.get_running_loop().create_future()
        self._parked.append(worker)
        self._tell_idle()
        await worker.parked

    def _tell_idle(self) -> None:
        if self._idle is not None and not self._idle.done() and self._is_idle():
            self._idle.set_result(None)

    async def _failed(self, worker: _Worker[T], entry: Entry[T], error: BaseException) -> None:
        item = entry[1]
        task = worker.task
        assert task is not None
        if self._closing:
            if not worker.left_behind:
                self._work.cancelled(item, error)
            return
        if worker.cancelled:
            self._work.cancelled(item, error)
            self._lanes.done(entry)
            await self._absorb_cancel(worker)
            return
        if isinstance(error, GeneratorExit):
            raise error
        by_others = False
        if isinstance(error, asyncio.CancelledError):
            # Either a future that the handler awaited was cancelled, or this task was, by someone
            # else: then the worker ends, or it would hold up whoever shuts the loop down.
            by_others = task.cancelling() > 0
            error = HandlerCancelledError(
                "the task that ran the handler was cancelled from outside"
                if by_others
                else "the handler raised CancelledError, and nobody had cancelled it"
            )
        self._lanes.leave(entry)
        if self._work.failed(entry, error):
            self._lanes.done(entry)
        if by_others:
            raise asyncio.CancelledError

    async def _absorb_cancel(self, worker: _Worker[T]) -> None:
        """Take back the cancellation that was meant for the handler only."""
        worker.cancelled = False
        task = worker.task
        assert task is not None
        try:
            # A handler that ended without awaiting leaves the cancellation for the next await.
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if self._closing:
                raise
        if task.uncancel() > 0:
            raise asyncio.CancelledError

    def _ended(self, worker: _Worker[T], task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if worker.task is task:  # else another task goes on for it
            del self._workers[worker]
            if worker in self._parked:
                self._parked.remove(worker)
        self._settle()
        if error is not None:
            self._crashed = True
            self._work.crashed(error)
        self.notify()
        self._tell_idle()
