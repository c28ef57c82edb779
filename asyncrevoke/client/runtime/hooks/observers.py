"""Calls the observers of one consumer; one that fails is removed."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from asyncrevoke.client import log_events
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option
from asyncrevoke.client.runtime.hooks.observer import (
    ConsumerSnapshot,
    HandledItem,
    Observer,
    Tracer,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncrevoke.client.core.io.effects import Emit
    from asyncrevoke.client.model import PollResult, Record
    from asyncrevoke.client.runtime.hooks.call_recorder import FailureDecision
    from asyncrevoke.client.runtime.hooks.event_log import EventLog

Hook: TypeAlias = Literal[
    "on_close",
    "on_dead_letter",
    "on_event",
    "on_failure_decision",
    "on_handler_error",
    "on_handlers_completed",
    "on_poll",
    "on_results_published",
    "on_tick",
]

# Seconds that another thread waits for the event loop.
_PATIENCE = 1.0


class Status(Protocol):
    """The consumer, as far as observers ask it. Implemented by :class:`SessionStatus`."""

    def snapshot(self) -> ConsumerSnapshot:
        """Health and partitions at this moment."""
        ...


class Observers:
    """Calls those that override a hook. ``status`` is read for :class:`Observed`."""

    def __init__(
        self,
        observers: Sequence[Observer],
        log: EventLog,
        status: Status,
        *,
        group_id: str | None,
        client_id: str,
    ) -> None:
        self.group_id = group_id
        self.client_id = client_id
        self._status = status
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._observers = list(observers)
        self.tracer = next((o for o in observers if isinstance(o, Tracer)), None)

    def wants(self, hook: Hook) -> bool:
        """Whether any of them overrides this."""
        return any(_overrides(observer, hook) for observer in self._observers)

    def snapshot(self) -> ConsumerSnapshot:
        """See :class:`Observed`."""
        if threading.get_ident() == self._thread:
            return self._status.snapshot()
        future: Future[ConsumerSnapshot] = Future()

        def look() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(self._status.snapshot())
                except Exception as error:  # noqa: BLE001 - raised in the thread that asks
                    future.set_exception(error)

        try:
            self._loop.call_soon_threadsafe(look)
        except RuntimeError as error:
            raise TimeoutError("the consumer's event loop has ended") from error
        try:
            return future.result(_PATIENCE)
        except TimeoutError:
            future.cancel()
            raise

    def on_open(self) -> None:
        """The consumer was entered."""
        self._call_each(lambda observer: observer.on_open(self))

    def on_close(self) -> None:
        """It has left."""
        self._call_each(lambda observer: observer.on_close())

    def on_event(self, event: Emit) -> None:
        """An event of the core."""
        self._call_each(lambda observer: observer.on_event(event.event, event.fields))

    def on_poll(self, batch: PollResult) -> None:
        """A step returns this."""
        self._call_each(lambda observer: observer.on_poll(batch))

    def on_tick(self, late: float) -> None:
        """A second has passed, and ``late`` more."""
        self._call_each(lambda observer: observer.on_tick(late))

    def on_handlers_completed(self, handler: str, topic: str, seconds: Sequence[float]) -> None:
        """Calls have ended well."""
        self._call_each(lambda observer: observer.on_handlers_completed(handler, topic, seconds))

    def on_handler_error(
        self, handler: str, what: HandledItem, seconds: float, error: BaseException
    ) -> None:
        """A call has ended by an error."""
        self._call_each(lambda observer: observer.on_handler_error(handler, what, seconds, error))

    def on_failure_decision(self, handler: str, record: Record, decision: FailureDecision) -> None:
        """This becomes of a record whose call has failed."""
        self._call_each(lambda observer: observer.on_failure_decision(handler, record, decision))

    def on_dead_letter(self, record: Record, topic: str, error: BaseException) -> None:
        """A record was written to a dead letter topic."""
        self._call_each(lambda observer: observer.on_dead_letter(record, topic, error))

    def on_results_published(self, handler: str, topic: str, count: int) -> None:
        """Results are acknowledged."""
        self._call_each(lambda observer: observer.on_results_published(handler, topic, count))

    def _call_each(self, call: Callable[[Observer], None]) -> None:
        for observer in list(self._observers):
            try:
                call(observer)
            except Exception as error:  # noqa: BLE001 - an observer must not end the consumer
                self._observers.remove(observer)
                log_events.OBSERVER_FAILED.write_to(
                    self._log.of_application(), observer=type(observer).__name__, exc_info=error
                )


def check_observer(observer: object) -> Observer:
    """Raise ConfigError, with a hint, for what is no observer."""
    if not isinstance(observer, Observer):
        call = getattr(observer, "__name__", "it")
        hint = f": call it, {call}()" if isinstance(observer, type) else ""
        raise ConfigError(f"{shown_option(observer)} is no Observer{hint}")
    return observer


def _overrides(observer: Observer, hook: Hook) -> bool:
    return getattr(type(observer), hook) is not getattr(Observer, hook)
