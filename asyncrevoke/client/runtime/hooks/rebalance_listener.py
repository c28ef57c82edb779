"""The callbacks of rebalances, and how they are called: one after the other."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

from asyncrevoke.client.errors import CallbackTimeoutError, ConfigError
from asyncrevoke.client.model import BlockingRecord, TopicPartition
from asyncrevoke.client.printable import shown_option
from asyncrevoke.client.runtime.hooks.application_calls import calling, is_called_by

if TYPE_CHECKING:
    from asyncrevoke.client.core.io.effects import Notify

Done: TypeAlias = "Awaitable[None] | None"


class RebalanceListener:
    """Override the callbacks that you need, as ``def`` or ``async def`` (KIP-429).

    Callbacks are called after the change, one after the other: lost, revoked, assigned; never with
    an empty set. An exception does not stop the other callbacks; the next step raises the first
    one, and the step after it continues. Records of other partitions are delivered meanwhile.
    """

    def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> Done:
        """These are assigned to this consumer, and their positions are known.

        No record of them is delivered before an ``async def`` has returned, so that it may load
        state and :meth:`~asyncrevoke.Consumer.seek`. It is cancelled after ``max_poll_interval``
        seconds, and the next step raises CallbackTimeoutError.
        """

    def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> Done:
        """These are released, their offsets committed; another member may have them now.

        ``position()`` of them returns where they stood, ``committed()`` what was committed. When
        the consumer closes, these, ``assignment()`` and other calls that change nothing work as in
        a rebalance. ``commit()``, ``pause()`` and the like raise ConsumerClosedError.
        """

    def on_partitions_lost(self, lost: frozenset[TopicPartition]) -> Done:
        """These are lost: another member may have them, and nothing can be committed for them.

        By default it calls :meth:`on_partitions_revoked`.
        """
        return self.on_partitions_revoked(lost)

    def on_revocation_delayed(self, blocking: Sequence[BlockingRecord]) -> Done:
        """These records, the oldest of each partition, delay the revocation of their partitions.

        Called for a partition after 5 s, and then every 30 s; also while the consumer closes.
        """


_CALLBACKS = (
    "on_partitions_assigned",
    "on_partitions_revoked",
    "on_partitions_lost",
    "on_revocation_delayed",
)


def check_listener(listener: object) -> RebalanceListener | None:
    """Raise ConfigError, with a hint, for an object that has none of the callbacks."""
    if isinstance(listener, type):
        name = listener.__name__
        raise ConfigError(f"listener={name} is a class: create an object, listener={name}()")
    if listener is not None and not any(
        callable(getattr(listener, name, None)) for name in _CALLBACKS
    ):
        raise ConfigError(
            f"listener={shown_option(listener)} has none of the methods {', '.join(_CALLBACKS)}: "
            "inherit from RebalanceListener, and override those that you need"
        )
    return cast("RebalanceListener | None", listener)


_ORDER = ("lost", "revoked", "assigned")


def awaits_assignment(listener: object) -> bool:
    """Whether delivery waits for the listener: its ``on_partitions_assigned`` is ``async def``."""
    return inspect.iscoroutinefunction(getattr(listener, "on_partitions_assigned", None))


class _Call(NamedTuple):
    """A callback and its argument, the instances that wait for it, and the last positions of
    partitions that are released."""

    name: str
    argument: object
    waiting: tuple[int, ...] = ()
    released: Mapping[TopicPartition, int | None] = MappingProxyType({})


class ListenerCalls:
    """The calls of a listener that are pending. The driver runs :meth:`run` while there are any.

    If delivery waits for them, each is cancelled after ``max_poll_interval`` seconds.
    """

    def __init__(self, listener: object, max_poll_interval: float) -> None:
        self._listener = listener
        self._longest_call = max_poll_interval if awaits_assignment(listener) else None
        self._pending: deque[_Call] = deque()
        self._error: Exception | None = None

    @property
    def pending(self) -> bool:
        """Whether calls are waiting."""
        return bool(self._pending)

    def queue(self, notifications: Iterable[Notify]) -> None:
        """Queue these calls, in the order lost, revoked, assigned."""
        self._pending.extend(
            _Call(
                f"on_partitions_{notify.kind.value}",
                notify.partitions,
                notify.instance_ids,
                notify.released,
            )
            for notify in sorted(notifications, key=lambda notify: _ORDER.index(notify.kind.value))
        )

    def queue_delayed_revocation(self, blocking: Sequence[BlockingRecord]) -> None:
        """Queue the call for records that delay a revocation."""
        self._pending.append(_Call("on_revocation_delayed", blocking))

    def released(self) -> Mapping[TopicPartition, int | None]:
        """The last positions of the partitions that the calling callback is told of, because they
        are not assigned any more; empty outside of a callback."""
        return self._pending[0].released if is_called_by(self) else {}

    def take_error(self) -> Exception | None:
        """The first exception since this was last called; None while calls are pending."""
        return None if self._pending else self.take_last_error()

    def take_last_error(self) -> Exception | None:
        """The first exception since the last call, also while calls are pending."""
        error, self._error = self._error, None
        return error

    async def run(self, called: Callable[[Sequence[int]], None]) -> None:
        """Make all pending calls. After each, ``called`` gets the instances that waited for it.

        If cancelled, the current call is cancelled as well.
        """
        while self._pending:
            name, argument, waiting, _ = self._pending[0]
            try:
                await self._call_in_time(name, argument)
            except asyncio.CancelledError as cancelled:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                # Raised by the callback itself: the next step raises it like any failure.
                error = RuntimeError(f"the callback {name} cancelled itself")
                error.__cause__ = cancelled
                self._error = error if self._error is None else self._error
            except Exception as error:  # noqa: BLE001 - raised by the next step
                self._error = error if self._error is None else self._error
            self._pending.popleft()
            if waiting:
                called(waiting)
            if (task := asyncio.current_task()) is not None and task.cancelling():
                return  # the callback has caught it

    async def _call_in_time(self, name: str, argument: object) -> None:
        limit = asyncio.timeout(self._longest_call)
        try:
            async with limit:
                await self._call(name, argument)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise CallbackTimeoutError(
                f"the callback {name} has not returned within max_poll_interval "
                f"({self._longest_call:g} s)"
            ) from error

    async def _call(self, name: str, argument: object) -> None:
        callback = getattr(self._listener, name, None)
        if callback is None and name == "on_partitions_lost":
            callback = getattr(self._listener, "on_partitions_revoked", None)
        if callback is None:
            return
        with calling(self):
            done: object = callback(argument)
            if inspect.isawaitable(done):
                await done
