"""An asyncio event loop for the coroutines of one member, in virtual time.

What the product writes transactions with are coroutines. Here they run as the member's own work:
not while it is frozen, and no more once it is dead.
"""

from __future__ import annotations

import asyncio
from asyncio import events
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from simulation.invariants.oracle_state import Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextvars import Context

    from simulation.members.member import SimulatedMember

T = TypeVar("T")


class MemberLoop:
    """The part of ``asyncio.AbstractEventLoop`` that the writer of transactions uses."""

    def __init__(self, member: SimulatedMember) -> None:
        self._member = member
        self._violation: Violation | None = None
        self._coroutines: list[Coroutine[Any, Any, Any]] = []

    def end(self) -> None:
        """The run has ended: so do the coroutines, those too that have not begun."""
        for coroutine in self._coroutines:
            coroutine.close()
        self._coroutines.clear()

    def watch(self, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Call a function that an oracle may object to. The coroutine that calls this may take a
        violation for an error of its own: the run ends with it all the same."""
        try:
            return function(*arguments, **options)
        except Violation as violation:
            self._violation = self._violation or violation
            raise

    @property
    def _as_loop(self) -> asyncio.AbstractEventLoop:
        return cast("asyncio.AbstractEventLoop", self)

    def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function that uses the running event loop."""
        before = events._get_running_loop()
        events._set_running_loop(self._as_loop)
        try:
            return function(*arguments)
        finally:
            events._set_running_loop(before)

    def time(self) -> float:
        """The member's own clock."""
        return self._member.now

    def call_soon(
        self,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Call it after what is due already."""
        handle = asyncio.Handle(callback, args, self._as_loop, context)
        self._member.later(0.0, partial(self._run_handle, handle))
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """There is one thread."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call it after so many seconds."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call it at this time of the member's clock."""
        handle = asyncio.TimerHandle(when, callback, args, self._as_loop, context)
        self._arm(handle)
        return handle

    def _arm(self, handle: asyncio.TimerHandle) -> None:
        # Not the exact time: rounded down, it would be early, and be set again at once.
        left = max(handle.when() - self.time(), 0.0) + 1e-9
        self._member.later(left, partial(self._run_handle, handle))

    def _run_handle(self, handle: asyncio.Handle) -> None:
        if not handle.cancelled():
            self.run(handle._run)
            if self._violation is not None:
                raise self._violation

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """What is cancelled does nothing when it is due."""

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self._as_loop)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """Run a coroutine."""
        self._coroutines.append(coro)
        return asyncio.Task(coro, loop=self._as_loop, name=name, context=context)

    def get_debug(self) -> bool:
        """No: nothing here depends on real time."""
        return False

    def is_running(self) -> bool:
        """Always."""
        return True

    def is_closed(self) -> bool:
        """Never."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report an exception that nobody has handled. Coroutines that are left as they are when
        their member is dead, or when the run has ended, have none."""
        error = context.get("exception")
        if isinstance(error, Violation):
            self._violation = self._violation or error
        elif self._member.alive and error is not None:
            what = f"client {self._member.client}: {context.get('message')}: {error!r}"
            self._violation = self._violation or Violation("raised", what)
