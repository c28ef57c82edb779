"""Checks the function of partition lifespans; enters and exits each lifespan in a separate task."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from asyncrevoke.client import log_events
from asyncrevoke.client.core.io.effects import EnterLifespan, ExitLifespan, LoseLifespan
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option
from asyncrevoke.handlers.lifespans.assigned_partition import AssignedPartition
from asyncrevoke.handlers.lifespans.lifespan_task import LifespanTask
from asyncrevoke.handlers.policy.signature import handler_name

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.errors import PartitionLostError
    from asyncrevoke.client.log_events import Log
    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.client.runtime.hooks.lifespan_events import LifespanEvent
    from asyncrevoke.client.runtime.session.membership_guard import MembershipGuard
    from asyncrevoke.client.runtime.session.shutdown_deadline import ShutdownDeadline
    from asyncrevoke.handlers.lifespans.assigned_partition import LifespanSource

LifespanFunction: TypeAlias = Callable[
    [AssignedPartition[Any]], AsyncGenerator[Any] | AbstractAsyncContextManager[Any]
]
L = TypeVar("L", bound=LifespanFunction)
OpenLifespan: TypeAlias = Callable[[AssignedPartition[Any]], AbstractAsyncContextManager[object]]

_SHAPE = "async def counts(partition: AssignedPartition) -> AsyncGenerator[Counts]: ... yield ..."
# Seconds that cancelled lifespans have to end, unless closing has less time.
_CANCELLED = 5.0


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
        source: LifespanSource,
        config: ConsumerConfig,
        log: Log,
        deadline: ShutdownDeadline,
        membership: MembershipGuard,
    ) -> None:
        self._open_one = open_one
        self._membership = membership
        self._source = source
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
                self._source.lifespan_exited(event.instance_id)
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
            self._source.lifespan_exited(event.instance_id)

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
        self._source.lifespan_entered(lifespan.instance_id)

    def lifespan_exited(self, lifespan: LifespanTask) -> None:
        """Let the final commit of the partition be sent."""
        self._source.lifespan_exited(lifespan.instance_id)

    def lifespan_incomplete(self, lifespan: LifespanTask, error: PartitionLostError) -> None:
        """The partition is lost without a final commit; the next owner begins where the state that
        was stored last ends."""
        self._source.lifespan_failed(lifespan.instance_id, str(error))

    def lifespan_failed(
        self, lifespan: LifespanTask, error: BaseException, *, entered: bool
    ) -> None:
        """Stop the consumer. After entry, the partition is also lost without a final commit."""
        partition = str(lifespan.partition.topic_partition)
        if entered:
            log_events.LIFESPAN_EXIT_FAILED.write_to(self._log, partition=partition, exc_info=error)
            reason = "its lifespan failed at exit"
            self._source.lifespan_failed(lifespan.instance_id, reason)
        else:
            log_events.LIFESPAN_ENTRY_FAILED.write_to(
                self._log, partition=partition, exc_info=error
            )
            self._source.lifespan_exited(lifespan.instance_id)
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
        partition: AssignedPartition[object] = AssignedPartition(due, state, self._source)
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
