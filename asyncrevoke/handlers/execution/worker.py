"""A task that runs ready entries."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

from asyncrevoke.client.errors import HandlerCancelledError
from asyncrevoke.client.printable import reportable
from asyncrevoke.client.runtime.loop.abandoned_tasks import abandon

if TYPE_CHECKING:
    from contextvars import Context

    from asyncrevoke.handlers.execution.dispatch import Dispatcher
    from asyncrevoke.handlers.execution.worker_pool import Turn, WorkerPool
    from asyncrevoke.handlers.policy.batch import Item
    from asyncrevoke.handlers.scheduling.lanes import LaneQueue
    from asyncrevoke.handlers.scheduling.partition_lanes import Entry


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
                fresh |= turn.unconfirmed
                now = await self._wait_for_turn()
                continue
            last_turn = turn.number
            entry = take()
            if entry is None:
                # An idle worker keeps no value, which may be a view of a large buffer.
                item = result = None
                now, fresh = await self._park(), True
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
                free_lane(entry)
                if self.cancelled:
                    now = await self._absorb_cancel()
            if own_context != clean and not pool.closing:
                pool.worker_needs_task(self)
                return

    async def _wait_for_turn(self) -> float:
        """Wait until the next turn, or until the membership is confirmed; returns the time."""
        if self._turn.unconfirmed:
            return await self._park()
        await asyncio.sleep(0)
        return monotonic()

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
