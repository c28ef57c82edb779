"""Calls the callbacks of a rebalance listener, one after the other."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from typing import TYPE_CHECKING

from asyncrevoke.core.io.effects import Notify, NotifyKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from asyncrevoke.model import BlockingRecord

_ORDER = {NotifyKind.LOST: 0, NotifyKind.REVOKED: 1, NotifyKind.ASSIGNED: 2}


class ListenerCalls:
    """The calls of a listener that are pending. The driver runs :meth:`run` while there are any."""

    def __init__(self, listener: object) -> None:
        self._listener = listener
        # The name of a callback, and what it is given.
        self._pending: deque[tuple[str, object]] = deque()
        self._error: Exception | None = None

    @property
    def pending(self) -> bool:
        """Whether calls are waiting."""
        return bool(self._pending)

    def queue(self, notifications: Iterable[Notify]) -> None:
        """Queue these calls, in the order lost, revoked, assigned."""
        self._pending.extend(
            (f"on_partitions_{notify.kind.value}", notify.partitions)
            for notify in sorted(notifications, key=lambda notify: _ORDER[notify.kind])
        )

    def queue_delayed_revocation(self, blocking: Sequence[BlockingRecord]) -> None:
        """Queue the call for records that delay a revocation."""
        self._pending.append(("on_revocation_delayed", blocking))

    def take_error(self) -> Exception | None:
        """The first exception since this was last called; None while calls are pending."""
        if self._pending:
            return None
        error, self._error = self._error, None
        return error

    def take_last_error(self) -> Exception | None:
        """The first exception since the last call, also while calls are pending."""
        error, self._error = self._error, None
        return error

    async def run(self) -> None:
        """Make all pending calls. If cancelled, the current call is cancelled as well."""
        while self._pending:
            name, argument = self._pending[0]
            try:
                await self._call(name, argument)
            except asyncio.CancelledError as cancelled:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                # Raised by the callback itself: the next step raises it like any failure.
                error = RuntimeError(f"the callback {name} cancelled itself")
                error.__cause__ = cancelled
                self._error = self._error or error
            except Exception as error:  # noqa: BLE001 - raised by the next step
                self._error = self._error or error
            self._pending.popleft()
            if (task := asyncio.current_task()) is not None and task.cancelling():
                return  # the callback has caught it

    async def _call(self, name: str, argument: object) -> None:
        callback = getattr(self._listener, name, None)
        if callback is None and name == "on_partitions_lost":
            callback = getattr(self._listener, "on_partitions_revoked", None)
        if callback is None:
            return
        done: object = callback(argument)
        if inspect.isawaitable(done):
            await done
