"""When a partition is committed again after the coordinator has not accepted its commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.backoff import Backoff

if TYPE_CHECKING:
    from asyncrevoke.client.core.commit.reactions import CommitRetries
    from asyncrevoke.client.core.io.outbox import Outbox
    from asyncrevoke.client.core.partition.instance import PartitionInstance


class _Wait:
    """The backoff of one partition, and the end of its present delay."""

    def __init__(self, backoff: Backoff) -> None:
        self.backoff = backoff
        self.until = 0.0

    def extend(self, now: float) -> None:
        """The commit was not accepted (again)."""
        self.until = now + self.backoff.failed()

    def end(self, now: float) -> None:
        """End the delay now."""
        self.until = min(self.until, now)


class PartitionBackoff:
    """A backoff for each partition, from ``first`` to ``longest`` seconds. When a delay ends,
    ``commits`` is flushed; ``timer`` is the key of the timer."""

    def __init__(
        self,
        outbox: Outbox,
        commits: CommitRetries,
        *,
        timer: str,
        first: float,
        longest: float,
    ) -> None:
        self._outbox = outbox
        self._commits = commits
        self._timer = timer
        self._first = first
        self._longest = longest
        self._waits: dict[PartitionInstance, _Wait] = {}

    def add(self, now: float, instance: PartitionInstance) -> None:
        """The coordinator has not accepted a commit of this partition."""
        wait = self._waits.get(instance)
        if wait is None:
            wait = self._waits[instance] = _Wait(Backoff(self._first, self._longest))
        wait.extend(now)
        self._arm(now)

    def end_wait(self, now: float, instance: PartitionInstance) -> None:
        """Commit this partition now; its backoff stays."""
        wait = self._waits.get(instance)
        if wait is not None:
            wait.end(now)

    def _arm(self, now: float) -> None:
        ahead = [wait.until for wait in self._waits.values() if wait.until > now]
        if ahead:
            due = min(ahead)
            self._outbox.set_timer(self._timer, due, self._over, spread=(due - now) / 2)

    def _over(self, now: float) -> None:
        self._arm(now)
        self._commits.flush(now)

    def has_to_wait(self, now: float, instance: PartitionInstance) -> bool:
        """Whether this partition must not be committed yet."""
        wait = self._waits.get(instance)
        return wait is not None and wait.until > now

    def forget(self, instance: PartitionInstance) -> None:
        """Forget the backoff: the partition was committed, or its instance has ended."""
        self._waits.pop(instance, None)
