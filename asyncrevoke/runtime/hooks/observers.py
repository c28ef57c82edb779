"""The observers of one consumer, told one by one; one that fails does no harm."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Literal, TypeAlias

from asyncrevoke.errors import ConfigError
from asyncrevoke.runtime.hooks.observer import Called, Facts, Observer, Tracer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncrevoke.core.io.effects import Emit
    from asyncrevoke.model import PollResult, Record
    from asyncrevoke.runtime.hooks.call_recorder import Decision
    from asyncrevoke.runtime.hooks.event_log import EventLog

Hook: TypeAlias = Literal["closed", "decided", "happened", "polled", "raised", "ticked", "timed"]

# How long another thread waits for the event loop (seconds).
_PATIENCE = 1.0


class Observers:
    """Tells those that override a hook. ``facts`` answers for :class:`Observed`."""

    def __init__(
        self,
        observers: Sequence[Observer],
        log: EventLog,
        facts: Callable[[], Facts],
        *,
        group_id: str | None,
        client_id: str,
    ) -> None:
        self.group_id = group_id
        self.client_id = client_id
        self._facts = facts
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._observers = list(observers)
        self.tracer = next((o for o in observers if isinstance(o, Tracer)), None)

    def wants(self, hook: Hook) -> bool:
        """Whether any of them overrides this."""
        return any(_overrides(observer, hook) for observer in self._observers)

    # --- Observed --------------------------------------------------------------------------------

    def facts(self) -> Facts:
        """What the consumer is like now; see :class:`Observed`."""
        if threading.get_ident() == self._thread:
            return self._facts()
        answer: Future[Facts] = Future()

        def look() -> None:
            if answer.set_running_or_notify_cancel():
                try:
                    answer.set_result(self._facts())
                except Exception as error:  # noqa: BLE001 - raised in the thread that asks
                    answer.set_exception(error)

        try:
            self._loop.call_soon_threadsafe(look)
        except RuntimeError as error:
            raise TimeoutError("the consumer's event loop has ended") from error
        try:
            return answer.result(_PATIENCE)
        except TimeoutError:
            answer.cancel()
            raise

    # --- hooks -----------------------------------------------------------------------------------

    def opened(self) -> None:
        """The consumer was entered."""
        self._tell(lambda observer: observer.opened(self))

    def closed(self) -> None:
        """It has left."""
        self._tell(lambda observer: observer.closed())

    def happened(self, event: Emit) -> None:
        """An event of the core."""
        self._tell(lambda observer: observer.happened(event.event, event.fields))

    def polled(self, batch: PollResult) -> None:
        """A step returns this."""
        self._tell(lambda observer: observer.polled(batch))

    def ticked(self, late: float) -> None:
        """A second has passed, and ``late`` more."""
        self._tell(lambda observer: observer.ticked(late))

    def timed(self, topic: str, seconds: Sequence[float]) -> None:
        """Calls have ended well."""
        self._tell(lambda observer: observer.timed(topic, seconds))

    def raised(self, what: Called, seconds: float, error: BaseException) -> None:
        """A call has ended by an error."""
        self._tell(lambda observer: observer.raised(what, seconds, error))

    def decided(self, record: Record, decision: Decision) -> None:
        """This becomes of a record whose call has failed."""
        self._tell(lambda observer: observer.decided(record, decision))

    def _tell(self, call: Callable[[Observer], None]) -> None:
        for observer in list(self._observers):
            try:
                call(observer)
            except Exception as error:  # noqa: BLE001 - what looks on must not end what it looks at
                self._observers.remove(observer)
                self._log.exception(
                    "an observer failed: it hears nothing any more",
                    observer=type(observer).__name__,
                    exc_info=error,
                )


def check_observer(observer: object) -> Observer:
    """ConfigError, in a sentence that names the fix, for what is none."""
    if not isinstance(observer, Observer):
        call = getattr(observer, "__name__", "it")
        hint = f": call it, {call}()" if isinstance(observer, type) else ""
        raise ConfigError(f"{observer!r} is no Observer{hint}")
    return observer


def _overrides(observer: Observer, hook: Hook) -> bool:
    return getattr(type(observer), hook) is not getattr(Observer, hook)
