"""What each of the handlers that run at once has for itself."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, TypeAlias

from asyncrevoke.errors import ConfigError
from asyncrevoke.runtime.loop.abandoned_tasks import abandon

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from asyncrevoke.handlers.policy.log import Log
    from asyncrevoke.runtime.session.shutdown_deadline import ShutdownDeadline

# Is called with what ``resources`` has given.
OpenWorker: TypeAlias = Callable[[object], AbstractAsyncContextManager[object]]

# How long those that were cancelled may take to close before they are left behind.
_GRACE = 5.0


class UnopenedError(Exception):
    """It could not be opened; the cause says why."""


class Slot:
    """One that was opened. A task of its own enters and leaves it, as cancel scopes need it."""

    __slots__ = ("leave", "opened", "task")

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[object] = loop.create_future()
        self.leave: asyncio.Future[None] = loop.create_future()
        self.task: asyncio.Task[None] | None = None

    @property
    def state(self) -> object:
        """What was opened."""
        return self.opened.result()


class WorkerResources:
    """Opens one for each call that runs at the same time as others, and keeps it for later calls.

    So there are never more than ``concurrency``, and no two calls have the same one at once. All
    are closed when this is left; an error of that is raised, the others are logged. What has not
    closed at the end of ``deadline`` is cancelled.
    """

    def __init__(
        self,
        open_one: OpenWorker,
        state: object,
        log: Log,
        deadline: ShutdownDeadline | None = None,
    ) -> None:
        self._deadline = deadline
        self._open_one = open_one
        self._state = state
        self._log = log
        self._slots: list[Slot] = []
        self._free: list[Slot] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """If cancelled, what is still being closed is cancelled too."""
        tasks = [slot.task for slot in self._slots if slot.task is not None]
        for slot in self._slots:
            if not slot.leave.done():
                slot.leave.set_result(None)
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
            self._log.error("worker_resources could not be closed", exc_info=failure)
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
            self._log.error("worker_resources did not close when cancelled", abandoned=len(left))

    @property
    def has_free(self) -> bool:
        """Whether :meth:`take` returns without waiting."""
        return bool(self._free) and self._free[-1].opened.done()

    async def take(self) -> Slot:
        """One that no other call has; UnopenedError if it cannot be opened.

        If cancelled, it goes on opening, for the next call.
        """
        slot = self._free.pop() if self._free else self._new()
        if slot.opened.done() and not slot.opened.cancelled() and slot.opened.exception() is None:
            return slot
        try:
            await asyncio.shield(slot.opened)
        except asyncio.CancelledError:
            self._free.append(slot)
            raise
        except BaseException as error:
            self._slots.remove(slot)
            raise UnopenedError from error
        return slot

    def give_back(self, slot: Slot) -> None:
        """Its call has ended."""
        self._free.append(slot)

    def _new(self) -> Slot:
        slot = Slot()
        self._slots.append(slot)
        slot.task = asyncio.get_running_loop().create_task(
            self._keep(slot), name="asyncrevoke worker_resources"
        )
        return slot

    async def _keep(self, slot: Slot) -> None:
        try:
            opening = self._open_one(self._state)
            state = await opening.__aenter__()
        except BaseException as error:  # noqa: BLE001 - raised by take, or by the next one
            if isinstance(error, (asyncio.CancelledError, StopIteration)):
                # Neither can be given to a future.
                unopened = RuntimeError(f"worker_resources ended by {error!r} while it opened")
                unopened.__cause__ = error
                error = unopened
            slot.opened.set_exception(error)
            slot.opened.exception()  # nobody may be waiting any more: then it was not needed
            return
        slot.opened.set_result(state)
        try:
            await slot.leave
        finally:
            await opening.__aexit__(None, None, None)


def check_worker_resources(given: object) -> None:
    """ConfigError for what opens nothing."""
    if given is None:
        return
    if isinstance(given, AbstractAsyncContextManager) or not callable(given):
        raise ConfigError(
            f"worker_resources={given!r}: give the function itself, which is called for each "
            "worker: an @asynccontextmanager with one parameter, for what resources= has opened"
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
