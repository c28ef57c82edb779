"""Since when each call of a handler runs, by looking now and then: no call pays for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from asyncrevoke.model import RunningHandler

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Seconds that a handler has to end after it was cancelled at its max_handler_time.
HANDLER_GRACE = 5.0


class RunningCall(NamedTuple):
    """A call that has begun and not ended; ``item`` is the record or the batch that it has."""

    item: object
    attempt: int
    handler: str
    topic: str
    partition: int
    offset: int
    max_handler_time: float | None


@runtime_checkable
class Calling(Protocol):
    """Who runs handlers."""

    def running(self) -> Iterator[RunningCall]:
        """The calls that run just now."""
        ...


class RunningCalls:
    """Knows when a call was first seen. A call is older than that by the time between two looks,
    at most."""

    def __init__(self) -> None:
        # Held, so that another item cannot be taken for one that has ended.
        self._since: dict[tuple[object, int], float] = {}

    def look(self, now: float, running: Iterable[RunningCall]) -> list[RunningHandler]:
        """These run at ``now``; the longest first, with the seconds that they have been seen."""
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
