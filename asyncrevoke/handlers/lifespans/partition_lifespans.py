"""Checks the function of partition lifespans; enters and exits each lifespan in a separate task."""

from __future__ import annotations

import asyncio
import enum
import inspect
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from asyncrevoke.client import log_events
from asyncrevoke.client.core.io.effects import EnterLifespan, ExitLifespan, LoseLifespan
from asyncrevoke.client.errors import (
    CallbackTimeoutError,
    ConfigError,
    HandlerCancelledError,
    PartitionLostError,
)
from asyncrevoke.client.printable import is_caught_by, reportable, shown_option
from asyncrevoke.client.runtime.hooks.application_calls import calling
from asyncrevoke.client.runtime.loop.abandoned_tasks import abandon
from asyncrevoke.handlers.lifespans.assigned_partition import AssignedPartition
from asyncrevoke.handlers.policy.signature import handler_name

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.log_events import Log
    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.client.runtime.hooks.lifespan_events import LifespanEvent
    from asyncrevoke.client.runtime.loop.shutdown_deadline import ShutdownDeadline
    from asyncrevoke.client.runtime.session.membership_guard import MembershipGuard
    from asyncrevoke.client.runtime.session.session import Session

LifespanFunction: TypeAlias = Callable[
    [AssignedPartition[Any]], AsyncGenerator[Any] | AbstractAsyncContextManager[Any]
]
L = TypeVar("L", bound=LifespanFunction)
OpenLifespan: TypeAlias = Callable[[AssignedPartition[Any]], AbstractAsyncContextManager[object]]

_SHAPE = "async def counts(partition: AssignedPartition) -> AsyncGenerator[Counts]: ... yield ..."
# Seconds that cancelled lifespans have to end before they are abandoned, unless closing has less
# time.
_CANCELLED = 5.0
# A lifespan is cancelled so many seconds after its partition was lost.
_AFTER_LOSS = 5.0
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


class PartitionLifespans:
    """The lifespans of a consumer's partitions, from :meth:`start` to :meth:`aclose`.

    Events before :meth:`start` are kept until then; after :meth:`aclose` no lifespan is entered.
    Entering may take ``max_poll_interval``; exiting may take ``revoke_timeout``, or without it
    ``rebalance_timeout``. The core ends both earlier if a revocation or closing does not wait as
    long.
    """

    def __init__(
        self,
        open_one: OpenLifespan,
        session: Session,
        config: ConsumerConfig,
        log: Log,
        deadline: ShutdownDeadline,
        membership: MembershipGuard,
    ) -> None:
        self._open_one = open_one
        self._membership = membership
        self._session = session
        self._log = log
        self._deadline = deadline
        self._enter_timeout = config.max_poll_interval
        self._exit_timeout = config.revoke_timeout or config.rebalance_timeout
        self._kept: dict[int, EnterLifespan] = {}
        self._started: tuple[object, Callable[[BaseException], None]] | None = None
        self._closed = False
        self._lifespans: dict[int, LifespanTask] = {}
        self._newest: dict[TopicPartition, LifespanTask] = {}
        self._states: dict[TopicPartition, object] = {}

    def state_of(self, partition: TopicPartition) -> object:
        """The object that a partition's lifespan has yielded; None if it is not entered."""
        return self._states.get(partition)

    def start(self, state: object, stop: Callable[[BaseException], None]) -> None:
        """Enter lifespans from now on; the error of one that fails is passed to ``stop``.

        ``Consumer(resources=...)`` has opened ``state``.
        """
        self._started = state, stop
        self._handle_kept()

    def lifespan_due(self, event: LifespanEvent) -> None:
        """See :class:`~asyncrevoke.client.runtime.hooks.lifespan_events.RunsLifespans`."""
        if self._closed:
            if isinstance(event, EnterLifespan):
                # Closing: no record of this instance will be handled.
                self._session.lifespan_exited(event.instance_id)
            else:
                self._end(event)
        elif self._started is None:
            self._keep(event)
        elif isinstance(event, EnterLifespan):
            self._enter(event, self._started[0])
        else:
            self._end(event)

    def _keep(self, event: LifespanEvent) -> None:
        """Keep an event until resources are open. A revocation does not wait for them."""
        if isinstance(event, EnterLifespan):
            self._kept[event.instance_id] = event
        elif self._kept.pop(event.instance_id, None) and isinstance(event, ExitLifespan):
            self._session.lifespan_exited(event.instance_id)

    async def aclose(self, *, lost: bool = False) -> None:
        """Exit all lifespans, and return when they have ended. Call it when no handler runs.

        ``lost``: the consumer has failed, and its partitions are lost. A cancelled call waits for
        the lifespans until final commits would be too late, and abandons those that still run.
        """
        self._closed = True
        self._handle_kept()
        for lifespan in list(self._lifespans.values()):
            if lost:
                lifespan.lose()
            else:
                lifespan.exit()
        ended = [lifespan.ended for lifespan in self._lifespans.values()]
        if not ended:
            return
        try:
            await asyncio.wait(ended)
        except asyncio.CancelledError:
            left = self._deadline.until_commits_end(_CANCELLED)
            await asyncio.wait(ended, timeout=left + _CANCELLED / 20)
            raise
        finally:
            for lifespan in list(self._lifespans.values()):
                lifespan.cancel_and_abandon()

    def _handle_kept(self) -> None:
        kept, self._kept = self._kept, {}
        for event in kept.values():
            self.lifespan_due(event)

    # --- what lifespans report -------------------------------------------------------------------

    def lifespan_entered(self, lifespan: LifespanTask, state: object) -> None:
        """Let the partition's records be delivered, with this state."""
        self._states[lifespan.partition.topic_partition] = state
        self._session.lifespan_entered(lifespan.instance_id)

    def lifespan_exited(self, lifespan: LifespanTask) -> None:
        """Let the final commit of the partition be sent."""
        self._session.lifespan_exited(lifespan.instance_id)

    def lifespan_incomplete(self, lifespan: LifespanTask, error: PartitionLostError) -> None:
        """The partition is lost without a final commit; the next owner begins where the state that
        was stored last ends."""
        self._session.lifespan_failed(lifespan.instance_id, str(error))

    def lifespan_failed(
        self, lifespan: LifespanTask, error: BaseException, *, entered: bool
    ) -> None:
        """Stop the consumer. After entry, the partition is also lost without a final commit."""
        partition = str(lifespan.partition.topic_partition)
        if entered:
            log_events.LIFESPAN_EXIT_FAILED.write_to(self._log, partition=partition, exc_info=error)
            reason = "its lifespan failed at exit"
            self._session.lifespan_failed(lifespan.instance_id, reason)
        else:
            log_events.LIFESPAN_ENTRY_FAILED.write_to(
                self._log, partition=partition, exc_info=error
            )
            self._session.lifespan_exited(lifespan.instance_id)
        if self._started is not None:
            self._started[1](error)

    def lifespan_over(self, lifespan: LifespanTask) -> None:
        """Forget the lifespan and its state."""
        partition = lifespan.partition.topic_partition
        self._lifespans.pop(lifespan.instance_id, None)
        if self._newest.get(partition) is lifespan:
            del self._newest[partition]
            self._states.pop(partition, None)

    # --- one lifespan ----------------------------------------------------------------------------

    def _enter(self, due: EnterLifespan, state: object) -> None:
        partition: AssignedPartition[object] = AssignedPartition(due, state, self._session)
        before = self._newest.get(due.partition)
        lifespan = LifespanTask(
            due.instance_id,
            partition,
            self._open_one,
            self,
            self._log,
            membership=self._membership,
            enter_timeout=self._enter_timeout,
            exit_timeout=self._exit_timeout,
            before=None if before is None else before.ended,
        )
        self._lifespans[due.instance_id] = self._newest[due.partition] = lifespan

    def _end(self, event: ExitLifespan | LoseLifespan) -> None:
        lifespan = self._lifespans.get(event.instance_id)
        if lifespan is None:
            return
        if isinstance(event, LoseLifespan):
            self._states.pop(lifespan.partition.topic_partition, None)
            lifespan.lose()
        elif event.drained:
            lifespan.exit()
        # If not drained, closing has cancelled handlers that may still run: aclose() exits later.


def open_lifespan(function: object) -> OpenLifespan:
    """Return a function that makes a partition's context manager. Raises ConfigError."""
    if not callable(function):
        raise ConfigError(
            f"a partition lifespan is a function, not {shown_option(function)}: {_SHAPE}"
        )
    name = handler_name(function)
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        raise ConfigError(
            f"{name} is called with one AssignedPartition, and takes other parameters ({error}): "
            f"{_SHAPE}"
        ) from error
    if inspect.isasyncgenfunction(function):
        return cast("OpenLifespan", asynccontextmanager(function))
    if inspect.iscoroutinefunction(function):
        raise ConfigError(
            f"{name} has no `yield`: code before it runs before the first record of a partition, "
            f"code after it runs before the final commit: {_SHAPE}"
        )
    if inspect.isgeneratorfunction(function):
        raise ConfigError(f"{name} is not an async function: {_SHAPE}")
    return _checked(function, name)


def _checked(function: Callable[..., object], name: str) -> OpenLifespan:
    def checked(partition: AssignedPartition[Any]) -> AbstractAsyncContextManager[object]:
        manager = function(partition)
        if not isinstance(manager, AbstractAsyncContextManager):
            raise ConfigError(
                f"{name} returned {shown_option(manager)}, no async context manager: {_SHAPE}"
            )
        return cast("AbstractAsyncContextManager[object]", manager)

    return checked
