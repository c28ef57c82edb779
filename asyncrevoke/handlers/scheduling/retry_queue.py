"""Failed records and batches that wait for their next attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from asyncrevoke.handlers.policy.batch import Item
    from asyncrevoke.handlers.scheduling.clock import HandlerClock, Timer
    from asyncrevoke.handlers.scheduling.partition_lanes import Entry
    from asyncrevoke.model import TopicPartition


class RetryReactions(Protocol):
    """What follows when a wait is over."""

    def retry_due(self, entry: Entry[Item]) -> None:
        """The next attempt of this entry may begin."""
        ...


class RetryQueue:
    """Entries between two attempts: each keeps its lane busy, and needs no worker.

    An entry stays in the queue until a worker begins its next attempt.
    """

    def __init__(self, clock: HandlerClock, reactions: RetryReactions) -> None:
        self._clock = clock
        self._reactions = reactions
        # Without a timer, an entry waits for another one.
        self._entries: dict[Item, tuple[Entry[Item], Timer | None]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, entry: Entry[Item], delay: float) -> None:
        """The next attempt of this entry is due after ``delay`` seconds."""
        timer = self._clock.call_later(delay, lambda: self._reactions.retry_due(entry))
        self._entries[entry[1]] = entry, timer

    def hold(self, entry: Entry[Item]) -> None:
        """No time is set for the next attempt of this entry."""
        self._entries[entry[1]] = entry, None

    def stop_timer(self, entry: Entry[Item]) -> None:
        """The next attempt does not begin by time any more."""
        _, timer = self._entries[entry[1]]
        if timer is not None:
            timer.cancel()
        self.hold(entry)

    def attempt_started(self, item: Item) -> None:
        """A worker has begun the next attempt."""
        self._entries.pop(item, None)

    def remove(self, partition: TopicPartition | None = None) -> list[Entry[Item]]:
        """Remove the entries of one partition, or all; their lanes stay busy."""
        removed: list[Entry[Item]] = []
        for item, (entry, timer) in list(self._entries.items()):
            if partition is None or entry[0].partition == partition:
                if timer is not None:
                    timer.cancel()
                del self._entries[item]
                removed.append(entry)
        return removed
