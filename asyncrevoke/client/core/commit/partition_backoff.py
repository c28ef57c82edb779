"""When a partition is committed again after the coordinator has not accepted its commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.backoff import Backoff

if TYPE_CHECKING:
    from asyncrevoke.client.core.commit.committer import Committer
    from asyncrevoke.client.core.io.outbox import Outbox
    from asyncrevoke.client.core.partition.instance import PartitionInstance


class PartitionBackoff:
    """A backoff for each partition, from ``first`` to ``longest`` seconds. When a delay ends,
    ``commits`` is flushed; ``timer`` is the key of the timer."""

    def __init__(
        self,
        outbox: Outbox,
        commits: Committer,
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
        self._backoffs: dict[PartitionInstance, Backoff] = {}
        # The ends of their present delays.
        self._until: dict[PartitionInstance, float] = {}

    def add(self, now: float, instance: PartitionInstance) -> None:
        """The coordinator has not accepted a commit of this partition."""
        backoff = self._backoffs.get(instance)
        if backoff is None:
            backoff = self._backoffs[instance] = Backoff(self._first, self._longest)
        self._until[instance] = now + backoff.failed()
        self._arm(now)

    def end_wait(self, now: float, instance: PartitionInstance) -> None:
        """Commit this partition now; its backoff stays."""
        if self.has_to_wait(now, instance):
            self._until[instance] = now

    def _arm(self, now: float) -> None:
        due = min((until for until in self._until.values() if until > now), default=None)
        if due is not None:
            self._outbox.set_timer(self._timer, due, self._over, spread=(due - now) / 2)

    def _over(self, now: float) -> None:
        self._arm(now)
        self._commits.flush(now)

    def has_to_wait(self, now: float, instance: PartitionInstance) -> bool:
        """Whether this partition must not be committed yet."""
        return self._until.get(instance, 0.0) > now

    def forget(self, instance: PartitionInstance) -> None:
        """Forget the backoff: the partition was committed, or its instance has ended."""
        self._backoffs.pop(instance, None)
        self._until.pop(instance, None)
