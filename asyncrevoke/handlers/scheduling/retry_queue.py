"""What has failed and waits for its next attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from asyncrevoke.handlers.scheduling.lane_order import Keyed

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.handlers.scheduling.clock import Clock, Timer
    from asyncrevoke.handlers.scheduling.lanes import Entry, LaneQueue
    from asyncrevoke.model import TopicPartition

T = TypeVar("T", bound=Keyed)


class Waiting(Generic[T]):
    """Entries between two attempts: each keeps its lane, and no worker.

    When an entry is due it goes back to ``lanes``, before all that is ready; until a worker has
    begun with it, it still counts as waiting.
    """

    def __init__(self, lanes: LaneQueue[T], clock: Clock) -> None:
        self._lanes = lanes
        self._clock = clock
        self._entries: dict[T, tuple[Entry[T], Timer]] = {}
        # Something is ready: wakes the workers.
        self.notify: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, entry: Entry[T], delay: float) -> None:
        """This entry is tried again after ``delay`` seconds."""
        self._entries[entry[1]] = entry, self._clock.call_later(delay, lambda: self._due(entry))

    def begin(self, item: T) -> None:
        """Its next attempt begins."""
        self._entries.pop(item, None)

    def give_up(self, partition: TopicPartition | None = None) -> list[Entry[T]]:
        """Take out all entries, of one partition or of any; their lanes stay busy."""
        given_up: list[Entry[T]] = []
        for item, (entry, timer) in list(self._entries.items()):
            if partition is None or entry[0].partition == partition:
                timer.cancel()
                del self._entries[item]
                given_up.append(entry)
        return given_up

    def _due(self, entry: Entry[T]) -> None:
        self._lanes.again(entry)
        self.notify()
