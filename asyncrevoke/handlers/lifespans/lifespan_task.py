"""The task of one lifespan: it enters a context manager, waits, and exits it."""

from __future__ import annotations

import asyncio
import enum
from typing import TYPE_CHECKING, cast

from asyncrevoke.client import log_events
from asyncrevoke.client.errors import (
    CallbackTimeoutError,
    HandlerCancelledError,
    PartitionLostError,
)
from asyncrevoke.client.printable import is_caught_by, reportable
from asyncrevoke.client.runtime.hooks.application_calls import calling
from asyncrevoke.client.runtime.loop.abandoned_tasks import abandon

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from asyncrevoke.client.log_events import Log
    from asyncrevoke.client.runtime.session.membership_guard import MembershipGuard
    from asyncrevoke.handlers.lifespans.assigned_partition import AssignedPartition
    from asyncrevoke.handlers.lifespans.partition_lifespans import OpenLifespan, PartitionLifespans

# A lifespan is cancelled so many seconds after its partition was lost, and abandoned so many
# seconds after that.
_AFTER_LOSS = 5.0
_CANCELLED = 5.0
# Seconds after which a lifespan that delays delivery or a revocation is logged.
_WARN_AFTER = 5.0


class _Phase(enum.Enum):
    ENTERING = "entering"
    ENTERED = "entered"
    EXITING = "exiting"


class LifespanTask:
    """One lifespan, run by a task of its own.

    It is entered when ``before`` is done, at once if that is None. ``ended`` is done when the task
    has ended, or is abandoned.
    """

    def __init__(
        self,
        instance_id: int,
        partition: AssignedPartition[object],
        open_one: OpenLifespan,
        owner: PartitionLifespans,
        log: Log,
        *,
        membership: MembershipGuard,
        enter_timeout: float,
        exit_timeout: float,
        before: asyncio.Future[None] | None,
    ) -> None:
        self.instance_id = instance_id
        self.partition = partition
        self._open_one = open_one
        self._owner = owner
        self._log = log
        self._membership = membership
        self._enter_timeout = enter_timeout
        self._exit_timeout = exit_timeout
        self._loop = asyncio.get_running_loop()
        self._phase = _Phase.ENTERING
        self._lost = False
        self._exit_requested: asyncio.Future[None] = self._loop.create_future()
        self._timers: list[asyncio.TimerHandle] = []
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._task = self._loop.create_task(
            self._run(before), name=f"asyncrevoke lifespan {partition.topic_partition}"
        )
        self._task.add_done_callback(self._task_ended)

    def exit(self) -> None:
        """Exit the lifespan, or cancel its entry."""
        if not self._exit_requested.done():
            self.partition.exit_requested()
            self._exit_requested.set_result(None)
            if self._phase is _Phase.ENTERING:
                self._task.cancel()

    def lose(self) -> None:
        """The partition is lost: ``yield`` raises PartitionLostError in the lifespan.

        A lifespan that is entering or exiting is cancelled.
        """
        if self._lost or self.ended.done():
            return
        self._lost = True
        self.partition.end()
        if self._phase is not _Phase.ENTERED:
            self._task.cancel()
        if not self._exit_requested.done():
            self._exit_requested.set_result(None)
        self._timers.append(self._loop.call_later(_AFTER_LOSS, self._cancel))
        until = _AFTER_LOSS + _CANCELLED
        self._timers.append(self._loop.call_later(until, self.cancel_and_abandon))

    def cancel_and_abandon(self) -> None:
        """Cancel the task, and stop waiting for it."""
        if not self.ended.done():
            self._task.cancel()
            log_events.LIFESPAN_ABANDONED.write_to(self._log, partition=self._name)
            abandon(self._task)
            self._over()

    def _cancel(self) -> None:
        self._task.cancel()

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if self.ended.done():
            return
        error = None if task.cancelled() else task.exception()
        if task.cancelled() and self._phase is _Phase.ENTERING and self._exit_requested.done():
            self._report_exited()  # the task was cancelled before its first step
        if error is not None:
            self._owner.lifespan_failed(self, error, entered=self._phase is not _Phase.ENTERING)
        self._over()

    def _over(self) -> None:
        self.partition.end()
        for timer in self._timers:
            timer.cancel()
        self._owner.lifespan_over(self)
        self.ended.set_result(None)

    # --- the task --------------------------------------------------------------------------------

    async def _run(self, before: asyncio.Future[None] | None) -> None:
        manager = await self._enter(before)
        if manager is None:
            return
        await asyncio.wait((self._exit_requested,))
        self._phase = _Phase.EXITING
        if self._lost:
            await self._exit_lost(manager)
        else:
            await self._exit(manager)

    async def _enter(
        self, before: asyncio.Future[None] | None
    ) -> AbstractAsyncContextManager[object] | None:
        """Enter the context manager and return it; None if this was cancelled or has failed."""
        warning = self._loop.call_later(_WARN_AFTER, self._log_slow_entry)
        limit = asyncio.timeout(self._enter_timeout)
        try:
            if before is not None:
                # The lifespan of a lost assignment of this partition may still write.
                await asyncio.wait((before,))
            with calling(self._membership):
                async with limit:
                    manager = self._open_one(self.partition)
                    state = await manager.__aenter__()
        except asyncio.CancelledError as error:
            self._entry_cancelled(error)
            return None
        except Exception as error:  # noqa: BLE001 - the consumer stops and raises it
            if self._exit_requested.done():
                log_events.LIFESPAN_FAILED_CANCELLED.write_to(
                    self._log, partition=self._name, exc_info=error
                )
                self._report_exited()
            else:
                too_late = limit.expired() and is_caught_by(error, TimeoutError)
                self._fail(self._too_late("enter", self._enter_timeout) if too_late else error)
            return None
        finally:
            warning.cancel()
        self._phase = _Phase.ENTERED
        self.partition.entered()
        if not self._lost:
            self._owner.lifespan_entered(self, state)
        return manager

    def _entry_cancelled(self, error: asyncio.CancelledError) -> None:
        if self._exit_requested.done():
            self._report_exited()
        elif _is_being_cancelled():
            raise error
        else:
            self._fail(_cancelled_itself(error))

    async def _exit(self, manager: AbstractAsyncContextManager[object]) -> None:
        warning = self._loop.call_later(_WARN_AFTER, self._log_slow_exit)
        limit = asyncio.timeout(self._exit_timeout)
        try:
            with calling(self._membership):
                async with limit:
                    await manager.__aexit__(None, None, None)
        except asyncio.CancelledError as error:
            if self._lost:
                log_events.LIFESPAN_STATE_INCOMPLETE.write_to(self._log, partition=self._name)
            elif _is_being_cancelled():
                raise
            else:
                self._fail(_cancelled_itself(error))
        except Exception as error:  # noqa: BLE001 - the consumer stops and raises it
            if is_caught_by(error, PartitionLostError) and self.partition.is_incomplete:
                if not self._lost:
                    self._owner.lifespan_incomplete(self, error)
                return
            too_late = limit.expired() and is_caught_by(error, TimeoutError)
            self._fail(self._too_late("exit", self._exit_timeout) if too_late else error)
        else:
            self._report_exited()
        finally:
            warning.cancel()

    async def _exit_lost(self, manager: AbstractAsyncContextManager[object]) -> None:
        lost = PartitionLostError([self.partition.topic_partition])
        try:
            with calling(self._membership):
                await manager.__aexit__(PartitionLostError, lost, None)
        except asyncio.CancelledError:
            log_events.LIFESPAN_CANCELLED.write_to(self._log, partition=self._name)
        except Exception as error:  # noqa: BLE001 - the partition is lost anyway
            if error is not lost:
                self._log_failure_after_loss(error)

    # --- reports ---------------------------------------------------------------------------------

    def _report_exited(self) -> None:
        if not self._lost:
            self._owner.lifespan_exited(self)

    def _fail(self, error: BaseException) -> None:
        if self._lost:
            self._log_failure_after_loss(error)
        else:
            entered = self._phase is not _Phase.ENTERING
            self._owner.lifespan_failed(self, reportable(error), entered=entered)

    def _too_late(self, what: str, seconds: float) -> CallbackTimeoutError:
        return CallbackTimeoutError(
            f"the lifespan of {self.partition.topic_partition} did not {what} within {seconds:g} s"
        )

    @property
    def _name(self) -> str:
        return str(self.partition.topic_partition)

    def _log_failure_after_loss(self, error: BaseException) -> None:
        log_events.LIFESPAN_FAILED_LOST.write_to(self._log, partition=self._name, exc_info=error)

    def _log_slow_entry(self) -> None:
        log_events.LIFESPAN_ENTERING.write_to(self._log, partition=self._name, seconds=_WARN_AFTER)

    def _log_slow_exit(self) -> None:
        log_events.LIFESPAN_EXITING.write_to(self._log, partition=self._name, seconds=_WARN_AFTER)


def _is_being_cancelled() -> bool:
    return cast("asyncio.Task[object]", asyncio.current_task()).cancelling() > 0


def _cancelled_itself(cause: BaseException) -> HandlerCancelledError:
    error = HandlerCancelledError("a partition lifespan raised CancelledError by itself")
    error.__cause__ = cause
    return error
