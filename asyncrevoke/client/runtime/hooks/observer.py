"""The interface of metrics, traces and dashboards to a running consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from asyncrevoke.client.core.partition.status import PartitionStatus
from asyncrevoke.client.model import Health

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from asyncrevoke.client.model import PollResult, Record
    from asyncrevoke.client.runtime.hooks.call_recorder import FailureDecision

    Headers = Sequence[tuple[str, bytes | None]]


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


class Observed(Protocol):
    """An entered consumer, as observers see it. Implemented by :class:`Observers`."""

    @property
    def group_id(self) -> str | None:
        """The group, None without one."""
        ...

    @property
    def client_id(self) -> str:
        """The option ``client_id``."""
        ...

    def snapshot(self) -> ConsumerSnapshot:
        """Its present state. May be called in any thread.

        In another thread than the event loop's it waits for the loop, at most a second. Raises
        TimeoutError after that, or if the loop has ended.
        """
        ...


class Observer:
    """Override the methods that you need; the others cost nothing.

    Methods are called in the event loop's thread, must return quickly and must not call the
    consumer. If one raises, the error is logged and the observer is not called any more.
    """

    def on_open(self, consumer: Observed) -> None:
        """A consumer was entered."""

    def on_close(self) -> None:
        """The consumer has left."""

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
