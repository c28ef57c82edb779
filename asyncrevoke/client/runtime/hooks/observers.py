"""Metrics, traces and dashboards observe a running consumer: their interface, its calls, and the
status of partitions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from asyncrevoke.client import log_events
from asyncrevoke.client.core.partition.instance import InstanceState, PartitionInstance
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.model import (
    Health,
    PollResult,
    ProducerHealth,
    Record,
    TopicPartition,
    Value,
)
from asyncrevoke.client.printable import shown_option

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from asyncrevoke.client.core.io.effects import Emit
    from asyncrevoke.client.core.partition.assignment import Assignment
    from asyncrevoke.client.core.share.counts import ShareCounts
    from asyncrevoke.client.runtime.hooks.event_log import EventLog
    from asyncrevoke.client.runtime.hooks.recorders import FailureDecision
SnapshotT = TypeVar("SnapshotT")
Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
Hook: TypeAlias = Literal[
    "on_close",
    "on_dead_letter",
    "on_event",
    "on_failure_decision",
    "on_handler_error",
    "on_handlers_completed",
    "on_poll",
    "on_publish_failed",
    "on_results_published",
    "on_tick",
    "on_transaction",
]

TransactionOutcome: TypeAlias = Literal[
    "committed",
    "partition_lost",
    "offsets_rejected",
    "results_refused",
    "fenced",
    "timed_out",
    "failed",
]

# Seconds that another thread waits for the event loop.
_PATIENCE = 1.0


class PartitionStatus(Value, frozen=True):
    """One assigned partition.

    ``revoking`` is ``"requested"`` until a step has announced it, ``"draining"`` while records are
    in flight, ``"committing"`` until its last commit is acknowledged, empty if it stays.
    ``oldest`` is the lowest offset in flight, None without one. ``lag`` is the high watermark of
    the last fetch, with ``read_committed`` the last stable offset, minus the position; None before
    the first fetch.
    """

    partition: TopicPartition
    revoking: str
    paused: bool
    in_flight: int
    oldest: int | None
    position: int | None
    committed: int | None
    lag: int | None


def partition_statuses(assignment: Assignment) -> tuple[PartitionStatus, ...]:
    """The status of each assigned partition."""
    return tuple(
        _status(instance, in_flight, assignment.position(instance))
        for instance, in_flight in assignment.returned().items()
    )


def _status(instance: PartitionInstance, in_flight: int, position: int | None) -> PartitionStatus:
    return PartitionStatus(
        instance.partition,
        _revoking(instance),
        instance.paused,
        in_flight,
        instance.oldest_in_flight if in_flight else None,
        position,
        instance.committed_offset,
        None if position is None else instance.lag(position),
    )


def _revoking(instance: PartitionInstance) -> str:
    if instance.state is InstanceState.REVOKE_REQUESTED:
        return "requested"
    if instance.state is InstanceState.COMMITTING:
        return "committing"
    return "draining" if instance.revoking else ""


class HandledItem(Protocol):
    """The argument of a handler: a record, or a batch of one partition.

    Implemented by :class:`Record` and :class:`HandlerBatch`.
    """

    @property
    def topic(self) -> str:
        """The topic."""
        ...

    @property
    def partition(self) -> int:
        """The number of the partition."""
        ...


class ConsumerSnapshot(NamedTuple):
    """The state of a consumer at one moment: ``at`` seconds on the event loop's clock.

    ``health.blocking_records`` are those that delay a revocation.
    """

    at: float
    health: Health
    partitions: tuple[PartitionStatus, ...]


class _Seen(Generic[SnapshotT]):
    """What observers see of an entered consumer or producer. ``look`` collects its state in the
    event loop's thread."""

    def __init__(self, look: Callable[[], SnapshotT], client_id: str) -> None:
        self.client_id = client_id
        self._look = look
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def snapshot(self) -> SnapshotT:
        """Its present state. May be called in any thread.

        In another thread than the event loop's it waits for the loop, at most a second. Raises
        TimeoutError after that, or if the loop has ended.
        """
        if threading.get_ident() == self._thread:
            return self._look()
        future: Future[SnapshotT] = Future()

        def look() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(self._look())
                except Exception as error:  # noqa: BLE001 - raised in the thread that asks
                    future.set_exception(error)

        try:
            self._loop.call_soon_threadsafe(look)
        except RuntimeError as error:
            raise TimeoutError("the event loop has ended") from error
        try:
            return future.result(_PATIENCE)
        except TimeoutError:
            future.cancel()
            raise


class Observed(_Seen[ConsumerSnapshot]):
    """An entered consumer, as observers see it. ``share`` is what a member of a share group counts;
    None in other groups."""

    def __init__(
        self,
        look: Callable[[], ConsumerSnapshot],
        *,
        group_id: str | None,
        client_id: str,
        share: ShareCounts | None = None,
    ) -> None:
        super().__init__(look, client_id)
        self.group_id = group_id
        self.share = share


class ObservedProducer(_Seen[ProducerHealth]):
    """An entered producer, as observers see it."""


class EndedTransaction(NamedTuple):
    """A transaction that was committed or aborted (``processing="exactly_once"``).

    ``outcome`` is ``"committed"``, or why it was aborted: a partition of it was lost, the
    coordinator has rejected offsets, a broker has refused results, another producer has fenced this
    one, it was not written in time, or it has failed otherwise, for
    example because no broker responded. ``error`` is None if it was committed, or a partition was
    lost. ``seconds``: since it began.

    ``result_headers`` are the headers of its results that have any, if there is a :class:`Tracer`;
    otherwise it is empty.
    """

    outcome: TransactionOutcome
    records: int
    results: int
    seconds: float
    error: Exception | None
    result_headers: Sequence[Headers]


class Observer:
    """Override the methods that you need; the others cost nothing.

    Methods are called in the event loop's thread, must return quickly and must not call the
    consumer. If one raises, the error is logged and the observer is not called any more.
    """

    def on_open(self, consumer: Observed) -> None:
        """A consumer was entered."""

    def on_producer_open(self, producer: ObservedProducer) -> None:
        """A producer of its own was entered; :meth:`on_close` is called when it has closed."""

    def on_close(self) -> None:
        """The consumer has left, or the producer has closed."""

    def on_event(self, event: str, fields: Mapping[str, object]) -> None:
        """The core has reported an event; ``docs/reference/log-events.md`` lists them."""

    def on_poll(self, batch: PollResult) -> None:
        """A step returns this."""

    def on_tick(self, late: float) -> None:
        """Called once a second or more often; ``late``: delay of the event loop, in seconds."""

    def on_handlers_completed(self, handler: str, topic: str, seconds: Sequence[float]) -> None:
        """Calls of a handler for this topic have completed since the last iteration of the event
        loop: the seconds that each took, in the order of completion."""

    def on_handler_error(
        self, handler: str, what: HandledItem, seconds: float, error: BaseException
    ) -> None:
        """This handler has raised this; a ``CancelledError`` too."""

    def on_failure_decision(self, handler: str, record: Record, decision: FailureDecision) -> None:
        """What happens to a record whose handler has failed, or whose value does not decode;
        ``handler`` is empty if its topic has several and none takes the record."""

    def on_dead_letter(self, record: Record, topic: str, error: BaseException) -> None:
        """A record was written to this dead letter topic after this error; with the topic, the
        partition and the offset that it was first read from."""

    def on_results_published(self, handler: str, topic: str, count: int) -> None:
        """The brokers have acknowledged so many results of a handler for this topic; ``handler`` is
        empty for what code outside of handlers publishes. Called for each batch."""

    def on_publish_failed(self, topic: str, count: int, error: Exception) -> None:
        """So many records for this topic, which code outside of handlers has published, were not
        acknowledged. Called for each batch."""

    def on_transaction(self, transaction: EndedTransaction) -> None:
        """A transaction has ended; called before :meth:`on_results_published`."""


class PublishSpan:
    """The publishing of one result. ``headers`` carry its trace on to the result: none if there is
    no span."""

    def __init__(self, headers: Headers = ()) -> None:
        self.headers = headers

    def end(self, error: BaseException | None) -> None:
        """The result is acknowledged, or has failed with this error. Called once."""


class Tracer(Observer):
    """An observer that makes the calls of handlers, for example in a span."""

    def wants(self, record: Record) -> bool:
        """Whether :meth:`call` makes the calls for this record."""
        raise NotImplementedError

    def choose(self, records: Sequence[Record]) -> Sequence[Record]:
        """The records that :meth:`wants` is true for; ``records`` are of one partition, ascending.
        Hot path: override it if there is a faster way than one by one."""
        return [record for record in records if self.wants(record)]

    def call(
        self,
        handler: str,
        records: Sequence[Record],
        attempt: int,
        call: Callable[[], Awaitable[object]],
    ) -> Awaitable[object]:
        """Make this call. What it raises must be raised."""
        raise NotImplementedError

    def publish_span(self, topic: str, *, in_call: bool) -> PublishSpan:  # noqa: ARG002
        """Called before a result for this topic is queued: its span.

        ``in_call``: only inside of a span that :meth:`call` has begun. What the task that runs
        handlers was started in is none of theirs.
        """
        return PublishSpan()

    def take_failed_call(self, error: BaseException) -> Headers:  # noqa: ARG002
        """The headers that carry the trace of the call that has just raised ``error``.

        Asked once for each failure, before any other call of a handler runs; empty if the call had
        no span. The records that are sent to another topic because of it get these headers.
        """
        return ()


class Observers:
    """Calls those of one consumer or producer that override a hook; one that fails is removed."""

    def __init__(
        self,
        observers: Sequence[Observer],
        log: EventLog,
        observed: Observed | ObservedProducer,
    ) -> None:
        self._observed = observed
        self._log = log
        self._observers = list(observers)
        self.tracer = next((o for o in observers if isinstance(o, Tracer)), None)

    def wants(self, hook: Hook) -> bool:
        """Whether any of them overrides this."""
        return any(_overrides(observer, hook) for observer in self._observers)

    def wants_any(self, *hooks: Hook) -> bool:
        """Whether any of them overrides one of these."""
        return any(map(self.wants, hooks))

    def on_open(self) -> None:
        """The consumer or producer was entered."""
        observed = self._observed
        if isinstance(observed, ObservedProducer):
            self._call_each(lambda observer: observer.on_producer_open(observed))
        else:
            self._call_each(lambda observer: observer.on_open(observed))

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

    def on_publish_failed(self, topic: str, count: int, error: Exception) -> None:
        """Records are not acknowledged."""
        self._call_each(lambda observer: observer.on_publish_failed(topic, count, error))

    def on_transaction(self, transaction: EndedTransaction) -> None:
        """A transaction has ended."""
        self._call_each(lambda observer: observer.on_transaction(transaction))

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
    """Raise ConfigError, with a hint, for what is not an observer."""
    if not isinstance(observer, Observer):
        call = getattr(observer, "__name__", "it")
        hint = f": call it, {call}()" if isinstance(observer, type) else ""
        raise ConfigError(f"{shown_option(observer)} is no Observer{hint}")
    return observer


def _overrides(observer: Observer, hook: Hook) -> bool:
    return getattr(type(observer), hook) is not getattr(Observer, hook)
