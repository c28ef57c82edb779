"""Resources that only one call uses at a time, such as database sessions."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from asyncrevoke.client import log_events
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import is_caught_by, named_error, shown_option
from asyncrevoke.client.runtime.loop.abandoned_tasks import abandon

if TYPE_CHECKING:
    from asyncrevoke.client.log_events import Log
    from asyncrevoke.client.runtime.loop.shutdown_deadline import ShutdownDeadline

# The types of ``Consumer(resources=...)``. A function is called whenever the consumer is entered,
# so that tests may enter it again.
OpenResources: TypeAlias = Callable[[], AbstractAsyncContextManager[object]]
Resources: TypeAlias = AbstractAsyncContextManager[object] | OpenResources
# The type of ``Consumer(worker_resources=...)``: called with the object that ``resources`` opened.
OpenWorkerResource: TypeAlias = Callable[[Any], AbstractAsyncContextManager[object]]

# Seconds that cancelled resources have to close before they are abandoned.
_GRACE = 5.0


class WorkerResourceError(Exception):
    """A resource could not be opened; the cause says why."""


class WorkerResource:
    """One resource. The same task enters and exits it, because cancel scopes need that."""

    __slots__ = ("closing", "opened", "task")

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[object] = loop.create_future()
        self.closing: asyncio.Future[None] = loop.create_future()
        self.task: asyncio.Task[None] | None = None

    def held_by(self, task: asyncio.Task[None]) -> None:
        """This task opens the resource, and closes it when ``closing`` is done."""
        self.task = task

    @property
    def state(self) -> object:
        """The object that the context manager has returned."""
        return self.opened.result()


class WorkerResources:
    """Opens a resource when no free one is left, and keeps it for later calls.

    So there are at most ``concurrency``. Leaving this closes all of them, and raises the first
    error, unless it is left with another error; further errors are logged. Resources that have not
    closed at the end of ``deadline`` are cancelled.
    """

    def __init__(
        self,
        open_one: OpenWorkerResource,
        state: object,
        log: Log,
        deadline: ShutdownDeadline | None = None,
    ) -> None:
        self._deadline = deadline
        self._open_one = open_one
        self._state = state
        self._log = log
        self._resources: list[WorkerResource] = []
        self._free: list[WorkerResource] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Close all resources. If cancelled, those that have not closed are cancelled."""
        tasks = [resource.task for resource in self._resources if resource.task is not None]
        for resource in self._resources:
            if not resource.closing.done():
                resource.closing.set_result(None)
        if not tasks:
            return
        deadline = self._deadline
        try:
            await asyncio.wait(tasks, timeout=None if deadline is None else deadline.until_end())
        except asyncio.CancelledError:
            await self._cancel(tasks)
            raise
        await self._cancel([task for task in tasks if not task.done()])
        failures = [
            failure
            for task in tasks
            if task.done() and not task.cancelled() and (failure := task.exception()) is not None
        ]
        for failure in failures if error is not None else failures[1:]:
            log_events.RESOURCES_CLOSE_FAILED.write_to(self._log, exc_info=failure)
        if failures and error is None:
            raise failures[0]

    async def _cancel(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        if not tasks:
            return
        for task in tasks:
            task.cancel()
        deadline = self._deadline
        grace = _GRACE if deadline is None else deadline.until_commits_end(_GRACE)
        _, left = await asyncio.wait(tasks, timeout=grace)
        for task in left:
            abandon(task)
        if left:
            log_events.RESOURCES_CLOSE_ABANDONED.write_to(self._log, count=len(left))

    @property
    def has_free(self) -> bool:
        """Whether :meth:`acquire` returns without waiting."""
        return bool(self._free) and self._free[-1].opened.done()

    async def acquire(self) -> WorkerResource:
        """Return a resource that no other call uses; WorkerResourceError if it cannot be opened.

        If cancelled while the resource opens, the next call gets it.
        """
        resource = self._free.pop() if self._free else self._new()
        opened = resource.opened
        if opened.done() and not opened.cancelled() and opened.exception() is None:
            return resource
        try:
            await asyncio.shield(resource.opened)
        except asyncio.CancelledError:
            self._free.append(resource)
            raise
        except BaseException as error:
            self._resources.remove(resource)
            raise WorkerResourceError from error
        return resource

    def put_back(self, resource: WorkerResource) -> None:
        """The call that had this resource has ended."""
        self._free.append(resource)

    def _new(self) -> WorkerResource:
        resource = WorkerResource()
        self._resources.append(resource)
        resource.held_by(
            asyncio.get_running_loop().create_task(
                self._hold(resource), name="asyncrevoke worker_resources"
            )
        )
        return resource

    async def _hold(self, resource: WorkerResource) -> None:
        try:
            opening = self._open_one(self._state)
            state = await opening.__aenter__()
        except BaseException as error:  # noqa: BLE001 - acquire() raises it
            if is_caught_by(error, (asyncio.CancelledError, StopIteration)):
                # A future accepts neither of these as its exception.
                unopened = RuntimeError(
                    f"worker_resources raised {named_error(error)} while opening"
                )
                unopened.__cause__ = error
                error = unopened
            resource.opened.set_exception(error)
            resource.opened.exception()  # asyncio would warn if no call waits for it
            return
        resource.opened.set_result(state)
        try:
            await resource.closing
        finally:
            await opening.__aexit__(None, None, None)


def check_worker_resources(given: object) -> None:
    """ConfigError for a value that cannot open resources."""
    if isinstance(given, AbstractAsyncContextManager) or not callable(given):
        raise ConfigError(
            f"worker_resources={shown_option(given)}: "  # pyright: ignore[reportUnknownArgumentType]
            "give the function itself, which is called for each worker: an @asynccontextmanager "
            "with one parameter, for what resources= has opened"
        )
    try:
        inspect.signature(given).bind(None)
    except TypeError as error:
        raise ConfigError(
            f"worker_resources={getattr(given, '__name__', given)} is called with what resources= "
            f"has opened, or None ({error}): give it one parameter"
        ) from error
    except ValueError:
        return  # a built-in without a signature
