"""Callbacks of a rebalance, as notifications: they are told what happened, and change nothing."""

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
    """The calls that a listener is owed. Whoever owns the tasks runs :meth:`run` while ``owed``."""

    def __init__(self, listener: object) -> None:
        self._listener = listener
        # The name of a callback, and what it is given.
        self._owed: deque[tuple[str, object]] = deque()
        self._error: Exception | None = None

    @property
    def owed(self) -> bool:
        """Whether calls are waiting."""
        return bool(self._owed)

    def put(self, notifications: Iterable[Notify]) -> None:
        """Owe these calls, in the order lost, revoked, assigned."""
        self._owed.extend(
            (f"on_partitions_{notify.kind.value}", notify.partitions)
            for notify in sorted(notifications, key=lambda notify: _ORDER[notify.kind])
        )

    def put_blocking(self, blocking: Sequence[BlockingRecord]) -> None:
        """Owe the call for records that hold a revoke back."""
        self._owed.append(("on_revocation_delayed", blocking))

    def take_error(self) -> Exception | None:
        """The first exception since the last call, if every call of its round has ended."""
        if self._owed:
            return None
        error, self._error = self._error, None
        return error

    def take_last_error(self) -> Exception | None:
        """The first exception since the last call; what is still owed is not called any more."""
        error, self._error = self._error, None
        return error

    async def run(self) -> None:
        """Make all calls that are owed. If cancelled, the current call is cancelled as well."""
        while self._owed:
            name, argument = self._owed[0]
            try:
                await self._call(name, argument)
            except asyncio.CancelledError as cancelled:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                # Raised by the callback on its own account: for a step it is like any failure.
                error = RuntimeError(f"the callback {name} cancelled itself")
                error.__cause__ = cancelled
                self._error = self._error or error
            except Exception as error:  # noqa: BLE001 - raised by the next step
                self._error = self._error or error
            self._owed.popleft()
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
