"""Failed records and batches that wait for their next attempt, and partitions that wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from asyncrevoke.handlers.policy.batch import Item
    from asyncrevoke.handlers.scheduling.clock import HandlerClock, Timer
    from asyncrevoke.handlers.scheduling.partition_lanes import Entry
    from asyncrevoke.model import FailurePause, TopicPartition


class RetryReactions(Protocol):
    """What follows when a wait is over. Implemented by :class:`HandlerPipeline`."""

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


class ProbedPause:
    """A partition that is paused until a failed item succeeds.

    ``probe`` is tried again after a while; ``waiting`` have failed, too, and wait for that.

    ``probing``: the next attempt is due, and its end is not known yet. ``by_user``: the user has
    paused the partition as well, so that only the user resumes it.
    """

    __slots__ = ("by_user", "probe", "probing", "reason", "waiting")

    def __init__(self, probe: Entry[Item], reason: FailurePause, *, by_user: bool) -> None:
        self.probe = probe
        self.reason = reason
        self.waiting: list[Entry[Item]] = []
        self.probing = False
        self.by_user = by_user

    def is_probe(self, item: Item) -> bool:
        """Whether the pause ends when this item succeeds."""
        return self.probe[1] is item

    def attempt_due(self) -> None:
        """The next attempt may begin."""
        self.probing = True

    def attempt_failed(self, reason: FailurePause) -> None:
        """It has failed."""
        self.reason = reason
        self.probing = False

    def pause_by_user(self) -> None:
        """The user has paused the partition."""
        self.by_user = True
