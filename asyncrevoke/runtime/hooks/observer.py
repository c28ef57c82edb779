"""Who looks on while a consumer runs: metrics, traces, pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from asyncrevoke.core.partition.status import PartitionStatus
from asyncrevoke.model import Health

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from asyncrevoke.model import PollResult, Record
    from asyncrevoke.runtime.hooks.call_recorder import Decision

    Headers = Sequence[tuple[str, bytes | None]]


class Called(Protocol):
    """What a handler was called with: a record, or a batch of one partition."""

    @property
    def topic(self) -> str:
        """The topic."""
        ...

    @property
    def partition(self) -> int:
        """The number of the partition."""
        ...


class Facts(NamedTuple):
    """What a consumer is like at one moment: ``at`` on the event loop's clock, in seconds.

    ``health`` has its ``blocking``: what each partition that is being revoked waits for.
    """

    at: float
    health: Health
    partitions: tuple[PartitionStatus, ...]


class Observed(Protocol):
    """An entered consumer, as observers see it."""

    @property
    def group_id(self) -> str | None:
        """The group, None without one."""
        ...

    @property
    def client_id(self) -> str:
        """What the consumer calls itself."""
        ...

    def facts(self) -> Facts:
        """What it is like now. From any thread.

        In another thread than the event loop's this waits for the loop, a second at most: then it
        raises TimeoutError, as it does when the loop has ended.
        """
        ...


class Observer:
    """Override what is of interest: what is not overridden costs nothing.

    All methods but those of :class:`Observed` are called in the event loop's thread, must return
    quickly, and never call back. One that raises is told in the log, and its observer hears nothing
    any more: what looks on must not change what happens.
    """

    def opened(self, consumer: Observed) -> None:
        """A consumer was entered."""

    def closed(self) -> None:
        """The consumer has left."""

    def happened(self, event: str, fields: Mapping[str, object]) -> None:
        """An event of the core; ``docs/logging.md`` has their names."""

    def polled(self, batch: PollResult) -> None:
        """A step returns this."""

    def ticked(self, late: float) -> None:
        """Once a second or more often; ``late`` is by how many seconds the loop was late."""

    def timed(self, topic: str, seconds: Sequence[float]) -> None:
        """Calls of handlers that have ended well since the last turn of the event loop, and how
        long each took. In the order in which they have ended."""

    def raised(self, what: Called, seconds: float, error: BaseException) -> None:
        """A call of a handler has ended by this, a ``CancelledError`` included."""

    def decided(self, record: Record, decision: Decision) -> None:
        """This becomes of a record whose call has failed, or whose value does not decode."""


class Tracer(Observer):
    """An observer that is also there around each call of a handler."""

    def wants(self, record: Record) -> bool:
        """Whether :meth:`call` is to be used for this record, each time it is called."""
        raise NotImplementedError

    def choose(self, records: Sequence[Record]) -> Sequence[Record]:
        """Those that :meth:`wants` is true of, among records of one partition in offset order.
        Hot path: to be overridden if all at once can be done faster."""
        return [record for record in records if self.wants(record)]

    def call(
        self,
        handler: str,
        records: Sequence[Record],
        attempt: int,
        call: Callable[[], Awaitable[object]],
    ) -> Awaitable[object]:
        """Make this call. Whatever it raises is raised on."""
        raise NotImplementedError

    def headers(self, topic: str, headers: Headers, error: BaseException) -> Headers:
        """The headers with which a record that failed is sent to another topic."""
        raise NotImplementedError
