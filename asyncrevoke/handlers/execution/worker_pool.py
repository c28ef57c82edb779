"""At most ``concurrency`` tasks that run ready entries, and when they yield to the event loop."""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from time import monotonic
from typing import TYPE_CHECKING

from asyncrevoke.client.errors import HandlerCancelledError
from asyncrevoke.client.printable import reportable
from asyncrevoke.client.runtime.hooks.application_calls import run_handlers_of
from asyncrevoke.client.runtime.loop.abandoned_tasks import abandon

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextvars import Context

    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.client.runtime.loop.shutdown_deadline import ShutdownDeadline
    from asyncrevoke.client.runtime.session.membership_guard import MembershipGuard
    from asyncrevoke.handlers.execution.dispatch import Dispatcher
    from asyncrevoke.handlers.policy.batch import Item
    from asyncrevoke.handlers.scheduling.lanes import LaneQueue
    from asyncrevoke.handlers.scheduling.partition_lanes import Entry

# Seconds that cancelled handlers have to end before they are abandoned.
_GRACE = 5.0


# Seconds that workers together run without yielding to the event loop, if no handler awaits.
_MAX_RUN_WITHOUT_YIELD = 0.004
# Seconds more for workers whose handlers have yielded.
_MAX_YIELDED_EXTENSION = 0.012
_LONGEST_TURN = _MAX_RUN_WITHOUT_YIELD + _MAX_YIELDED_EXTENSION
# Workers that go on by themselves in the next turn. Each wakes others if entries are left; to let
# all go on would cost most of a turn's time if there are thousands whose handlers do not await.
_AWAKE_BETWEEN_TURNS = 8


class Worker:
    """Runs entries one after another, in a task; ``entry`` is the running one.

    After a handler has changed context variables, another task runs the worker.
    """

    __slots__ = (
        "_context",
        "_dispatch",
        "_lanes",
        "_parked",
        "_pool",
        "_turn",
        "abandoned",
        "cancelled",
        "entry",
        "task",
    )

    def __init__(
        self,
        lanes: LaneQueue,
        dispatch: Dispatcher,
        turn: Turn,
        context: Context,
        pool: WorkerPool,
    ) -> None:
        self._lanes = lanes
        self._dispatch = dispatch
        self._turn = turn
        self._context = context
        self._pool = pool
        self.entry: Entry | None = None
        self.cancelled = False
        self.abandoned = False
        self._parked: asyncio.Future[None] | None = None
        self.task: asyncio.Task[None] | None = None

    def run_by(self, task: asyncio.Task[None]) -> None:
        """This task runs the worker from now on."""
        self.task = task

    def cancel(self) -> None:
        """Cancel the running call, at most once."""
        if not self.cancelled:
            self.cancelled = True
            assert self.task is not None
            self.task.cancel()

    def abandon(self, task: asyncio.Task[None]) -> None:
        """Stop waiting for the running call; its end is not reported."""
        self.abandoned = True
        abandon(task)

    def wake(self) -> None:
        """Let an idle worker continue."""
        if self._parked is not None and not self._parked.done():
            self._parked.set_result(None)

    async def run(self, own_context: Context) -> None:
        """Run entries until the pool closes; the task has the context ``own_context``."""
        lanes, dispatch, turn, pool = self._lanes, self._dispatch, self._turn, self._pool
        take, free_lane = lanes.take, lanes.free_lane
        calls, start_again = dispatch.calls, dispatch.start_again
        attempts, completed, times = dispatch.attempts, dispatch.completed, dispatch.call_times
        clean = self._context
        item: Item | None
        result: object
        fresh = True
        last_turn = -1
        now = monotonic()
        while not pool.closing:
            if now > turn.ends and not turn.may_start(last_turn, now):
                fresh = True
                now, last_turn = await self._wait_for_turn(last_turn)
                continue
            last_turn = turn.number
            entry = take()
            if entry is None:
                # An idle worker keeps no value, which may be a view of a large buffer.
                item = result = None
                now, fresh, last_turn = await self._park(), True, turn.number
                continue
            if fresh:
                fresh = False
                pool.worker_found_entries()
            self.entry = entry
            item = entry[1]
            began = now
            try:
                first_call, queue_result = calls[item.topic]
                call = start_again if attempts and item in attempts else first_call
                result = await call(item)
                if queue_result is not None and (queuing := queue_result(item, result)) is not None:
                    await queuing
            except BaseException as error:  # noqa: BLE001 - of a handler, see _report_failure
                now = await self._call_failed(entry, error, began)
            else:
                self.entry = None
                if self.abandoned:
                    return
                # Read once for a call's end, the next one's beginning and the turn.
                now = monotonic()
                if times is not None:
                    times[item.topic].append(now - began)
                if queue_result is None:
                    completed(item)
                if entry is lanes.started_without_lane:
                    lanes.started_without_lane = None
                else:
                    free_lane(entry)
                if self.cancelled:
                    now = await self._absorb_cancel()
            if own_context != clean and not pool.closing:
                pool.worker_needs_task(self)
                return

    async def _wait_for_turn(self, last_turn: int) -> tuple[float, int]:
        """Wait until the next turn, or until the worker is woken; returns the time, and the turn
        after which it may start an entry: a worker that is woken has no extension."""
        turn = self._turn
        if turn.unconfirmed or turn.awaited_by >= _AWAKE_BETWEEN_TURNS:
            return await self._park(), turn.number
        turn.awaited_by += 1
        await asyncio.sleep(0)
        return monotonic(), last_turn

    async def _park(self) -> float:
        self._parked = asyncio.get_running_loop().create_future()
        self._pool.worker_parked(self)
        await self._parked
        return monotonic()

    async def _call_failed(self, entry: Entry, error: BaseException, began: float) -> float:
        self.entry = None
        error = reportable(error)
        self._dispatch.call_raised(entry[1], monotonic() - began, error)
        await self._report_failure(entry, error)
        return monotonic()

    async def _report_failure(self, entry: Entry, error: BaseException) -> None:
        item = entry[1]
        task = self.task
        assert task is not None
        if self._pool.closing:
            if not self.abandoned:
                self._dispatch.call_cancelled(item, error)
            return
        if self.cancelled:
            self._dispatch.call_cancelled(item, error)
            self._lanes.free_lane(entry)
            await self._absorb_cancel()
            return
        if isinstance(error, GeneratorExit):
            raise error
        by_others = False
        if isinstance(error, asyncio.CancelledError):
            # Other code has cancelled a future that the handler awaited, or this task. In the
            # second case the worker ends, because the event loop may be shutting down.
            by_others = task.cancelling() > 0
            error = HandlerCancelledError(
                "the task that ran the handler was cancelled from outside"
                if by_others
                else "the handler raised CancelledError without being cancelled"
            )
        self._lanes.free_limiter(entry)
        if self._dispatch.handle_failure(entry, error):
            self._lanes.free_lane(entry)
        if by_others:
            raise asyncio.CancelledError

    async def _absorb_cancel(self) -> float:
        """Undo the cancellation, which only the handler should receive; return the time."""
        self.cancelled = False
        task = self.task
        assert task is not None
        try:
            # If the handler ended without awaiting, the next await raises CancelledError.
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if self._pool.closing:
                raise
        if task.uncancel() > 0:
            raise asyncio.CancelledError
        return monotonic()


class Turn:
    """The turn of the event loop in which workers start entries, and when it ends.

    ``ends`` is a time of ``time.monotonic``; before it, workers need not call :meth:`may_start`.
    ``unconfirmed``: no entry starts until the membership is confirmed. ``awaited_by`` so many
    workers that go on in the next turn.
    """

    __slots__ = (
        "_begun",
        "_confirmation",
        "_dispatch",
        "_latest",
        "_may_start_until",
        "_membership",
        "_pool",
        "awaited_by",
        "ends",
        "number",
        "unconfirmed",
    )

    def __init__(self, membership: MembershipGuard, dispatch: Dispatcher, pool: WorkerPool) -> None:
        self._membership = membership
        self._dispatch = dispatch
        self._pool = pool
        # Whether _end() is scheduled.
        self._begun = False
        self.number = 0
        self.awaited_by = 0
        self.ends = 0.0
        self._latest = 0.0
        # By the loop's clock: until then the confirmed membership lets records start.
        self._may_start_until = float("-inf")
        self.unconfirmed = False
        self._confirmation: asyncio.Future[object] | None = None

    def may_start(self, last: int, now: float) -> bool:
        """Whether a worker that last started an entry in turn ``last`` may start one at ``now``.

        Not if the time of the turn is over, or the membership is unconfirmed. A worker whose
        handler has yielded since has more time: when hundreds of handlers end at once, another turn
        of the event loop costs more time than it saves.
        """
        if self._begun:
            return last != self.number and now <= self._latest
        self._begun = True
        self.number += 1
        self.awaited_by = 0
        self._dispatch.turn_began()
        now = monotonic()
        self.ends = now + _MAX_RUN_WITHOUT_YIELD
        self._latest = self.ends + _MAX_YIELDED_EXTENSION
        loop = asyncio.get_running_loop()
        loop.call_soon(self._end)
        # Asking once a turn is enough: if the process was frozen, the time of the turn is over.
        if loop.time() > self._may_start_until - _LONGEST_TURN:
            self._ask_membership(now, loop.time())
        return not self.unconfirmed

    def close(self) -> None:
        """Stop waiting for the confirmation of the membership."""
        if self._confirmation is not None:
            self._confirmation.cancel()

    def _ask_membership(self, turn_began: float, now: float) -> None:
        seconds = self._membership.may_begin_for()
        self.unconfirmed = seconds < 0
        self._may_start_until = now + seconds
        # If unconfirmed, the time of the turn is over before an entry starts in it.
        self.ends = min(self.ends, turn_began + seconds)
        self._latest = min(self._latest, turn_began + seconds)
        if self.unconfirmed and self._confirmation is None:
            self._confirmation = self._membership.confirmation()
            self._confirmation.add_done_callback(self._confirmed)

    def _confirmed(self, confirmation: asyncio.Future[object]) -> None:
        self._confirmation = None
        if not confirmation.cancelled() and confirmation.exception() is None:
            self._may_start_until = float("-inf")  # ask again
            self._pool.notify()

    def _end(self) -> None:
        self._begun = False
        self.ends = 0.0
        self._pool.turn_ended()


class WorkerPool:
    """At most ``concurrency`` workers, made when they are first needed, that take from ``lanes``.

    An idle worker waits for a future. :meth:`notify` wakes one worker when entries are ready. A
    woken worker that finds further entries wakes two others. So many entries start within few turns
    of the event loop, and one worker runs handlers that never yield, one after another.

    While the membership is unconfirmed, workers wait and no entry starts.

    Each item starts with the context variables that were set when the pool was made: after a
    handler has changed some, another task runs the worker.
    """

    def __init__(
        self,
        lanes: LaneQueue,
        dispatch: Dispatcher,
        concurrency: int,
        membership: MembershipGuard,
        deadline: ShutdownDeadline | None = None,
    ) -> None:
        self._lanes = lanes
        self._dispatch = dispatch
        self._concurrency = concurrency
        self._deadline = deadline
        self._workers: dict[Worker, None] = {}
        self._parked: list[Worker] = []
        self._turn = Turn(membership, dispatch, self)
        self._idle: asyncio.Future[None] | None = None
        self.closing = False
        self._failed = False
        self._flush_scheduled = False
        self._context = copy_context()
        run_handlers_of(membership, self._context)

    def running(self) -> Iterator[tuple[TopicPartition, Item]]:
        """The items that have started and not ended."""
        for worker in self._workers:
            if worker.entry is not None:
                yield worker.entry[0].partition, worker.entry[1]

    def notify(self) -> None:
        """Wake a worker if entries are ready; entries may also have been dropped."""
        if self.closing or self._failed:
            return
        if self._lanes.count_ready(1):
            self._wake_one()
        else:
            self._wake_if_idle()

    def cancel(self, partition: TopicPartition) -> None:
        """Cancel the calls of a lost partition; their lanes are freed when they have ended."""
        for worker in self._workers:
            entry = worker.entry
            if entry is not None and entry[0].partition == partition:
                worker.cancel()

    def cancel_calls(self, is_lost: Callable[[Item], bool]) -> None:
        """Cancel the calls of these items; their lanes are freed when they have ended."""
        for worker in self._workers:
            if worker.entry is not None and is_lost(worker.entry[1]):
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

    async def close(self) -> list[Item]:
        """Cancel the calls that run, wait for their end, and end the workers.

        Calls that have not ended after 5 s, or at the shutdown deadline, are abandoned; returns
        their items. If cancelled, the waiting ends, and the workers stay cancelled.
        """
        self.closing = True
        self._turn.close()
        self.flush_completed()
        tasks = {worker.task: worker for worker in self._workers if worker.task is not None}
        for task in tasks:
            task.cancel()
        if not tasks:
            return []
        deadline = self._deadline
        grace = _GRACE if deadline is None else deadline.until_commits_end(_GRACE)
        _, left = await asyncio.wait(tasks, timeout=grace)
        items: list[Item] = []
        for task in left:
            worker = tasks[task]
            worker.abandon(task)
            if worker.entry is not None:
                items.append(worker.entry[1])
        return items

    # -- the workers -----------------------------------------------------------------------------

    def _is_idle(self) -> bool:
        nothing_queued = not (self._lanes.count_ready(1) or self._lanes.limited)
        nothing_runs = len(self._parked) == len(self._workers)
        return (nothing_queued and nothing_runs) or self._failed

    def _wake_one(self) -> None:
        if self._parked:
            self._parked.pop().wake()
        elif len(self._workers) < self._concurrency:
            worker = Worker(self._lanes, self._dispatch, self._turn, self._context, self)
            self._workers[worker] = None
            self._begin(worker)

    def _begin(self, worker: Worker) -> None:
        context = self._context.copy()
        task = asyncio.get_running_loop().create_task(worker.run(context), context=context)
        worker.run_by(task)
        task.add_done_callback(lambda task: self._worker_ended(worker, task))

    # -- what workers and the turn report --------------------------------------------------------

    def worker_found_entries(self) -> None:
        """Wake up to two workers for further ready entries."""
        for _ in range(min(2, self._lanes.count_ready(2))):
            self._wake_one()

    def worker_parked(self, worker: Worker, /) -> None:
        """Keep the idle worker for the next entry."""
        self._parked.append(worker)
        self._wake_if_idle()

    def worker_needs_task(self, worker: Worker, /) -> None:
        """Run the worker in a new task."""
        self._begin(worker)

    def turn_ended(self) -> None:
        """Complete the items that have ended in this turn."""
        self._lanes.turn_ended()
        self.flush_completed()

    # -- the end of workers ----------------------------------------------------------------------

    def schedule_flush(self) -> None:
        """Call :meth:`flush_completed` once in the next iteration of the event loop."""
        if not self._flush_scheduled:
            self._flush_scheduled = True
            asyncio.get_running_loop().call_soon(self.flush_completed)

    def flush_completed(self) -> None:
        """Complete the items that have ended."""
        self._flush_scheduled = False
        try:
            self._dispatch.flush_completed()
        except Exception as error:  # noqa: BLE001 - like a worker's own failure
            self._failed = True
            self._dispatch.worker_failed(error)
            self._wake_if_idle()

    def _wake_if_idle(self) -> None:
        if self._idle is not None and not self._idle.done() and self._is_idle():
            self._idle.set_result(None)

    def _worker_ended(self, worker: Worker, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if worker.task is task:  # otherwise another task runs the worker now
            del self._workers[worker]
            if worker in self._parked:
                self._parked.remove(worker)
        self.flush_completed()
        if error is not None:
            self._failed = True
            self._dispatch.worker_failed(error)
        self.notify()
        self._wake_if_idle()
