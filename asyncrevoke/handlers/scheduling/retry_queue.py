"""Failed records and batches between two attempts, and partitions paused until one succeeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from asyncrevoke.client.model import FailurePause, TopicPartition
    from asyncrevoke.handlers.policy.batch import Item
    from asyncrevoke.handlers.scheduling.clock import HandlerClock, Timer
    from asyncrevoke.handlers.scheduling.partition_lanes import Entry


class RetryReactions(Protocol):
    """Reacts when a retry is due. Implemented by :class:`HandlerPipeline`."""

    def retry_due(self, entry: Entry[Item]) -> None:
        """Begin the next attempt of this entry."""


class RetryQueue:
    """Entries that wait for their next attempt. Each keeps its lane busy, without a worker.

    An entry stays in the queue until a worker begins the attempt.
    """

    def __init__(self, clock: HandlerClock, reactions: RetryReactions) -> None:
        self._clock = clock
        self._reactions = reactions
        # The timer is None for an entry without a set time, see hold().
        self._entries: dict[Item, tuple[Entry[Item], Timer | None]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, entry: Entry[Item], delay: float) -> None:
        """The next attempt of this entry is due after ``delay`` seconds."""
        timer = self._clock.call_later(delay, lambda: self._reactions.retry_due(entry))
        self._entries[entry[1]] = entry, timer

    def hold(self, entry: Entry[Item]) -> None:
        """Keep this entry without a time for its next attempt."""
        self._entries[entry[1]] = entry, None

    def __contains__(self, item: Item) -> bool:
        return item in self._entries

    def stop_timer(self, entry: Entry[Item]) -> None:
        """Keep this entry, and cancel the timer of its next attempt."""
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
    """The pause of a partition until a failed item, the ``probe``, succeeds.

    ``waiting``: other failed items, which are retried after the probe has succeeded. ``probing``:
    an attempt at the probe is due or runs. ``by_user``: the user has paused the partition as well,
    so only the user resumes it.
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

    def wait(self, entry: Entry[Item]) -> None:
        """Another failed item waits for the probe to succeed."""
        self.waiting.append(entry)

    def attempt_due(self) -> None:
        """The next attempt at the probe may begin."""
        self.probing = True

    def attempt_failed(self, reason: FailurePause) -> None:
        """The attempt at the probe has failed."""
        self.reason = reason
        self.probing = False

    def pause_by_user(self) -> None:
        """The user has paused the partition."""
        self.by_user = True
