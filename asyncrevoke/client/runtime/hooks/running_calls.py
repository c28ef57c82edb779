"""Measures how long calls of handlers run, by sampling: a call itself costs nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from asyncrevoke.client.model import RunningHandler, Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Seconds that a handler has to end after it was cancelled at its max_handler_time.
HANDLER_GRACE = 5.0


class RunningCall(Value, frozen=True):
    """A call that has not ended; ``item`` is its record or batch."""

    item: object
    attempt: int
    handler: str
    topic: str
    partition: int
    offset: int
    max_handler_time: float | None


@runtime_checkable
class ReportsRunningCalls(Protocol):
    """Runs handlers, and lists their calls. Implemented by :class:`HandlerRunner`."""

    def running(self) -> Iterator[RunningCall]:
        """The calls that have not ended."""
        ...


class RunningCalls:
    """Remembers when a call was first sampled; it may be older by the time between two samples."""

    def __init__(self) -> None:
        # Items are kept alive, so that a new one cannot have the identity of one that has ended.
        self._since: dict[tuple[object, int], float] = {}

    def update(self, now: float, running: Iterable[RunningCall]) -> list[RunningHandler]:
        """The calls that run at ``now`` with their seconds, the longest first."""
        before, self._since = self._since, {}
        found: list[RunningHandler] = []
        for call in running:
            key = call.item, call.attempt
            since = self._since[key] = before.get(key, now)
            found.append(
                RunningHandler(
                    call.handler,
                    call.topic,
                    call.partition,
                    call.offset,
                    now - since,
                    call.max_handler_time,
                )
            )
        found.sort(key=lambda one: -one.seconds)
        return found
