"""Partitions whose commits the coordinator rejects: when they are sent again, and when not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.backoff import Backoff
from asyncrevoke.client.core.io.wait_log import WaitLog
from asyncrevoke.client.core.partition.instance import InstanceState, PartitionInstance
from asyncrevoke.client.errors import PartitionsError, TopicAuthorizationError
from asyncrevoke.client.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from asyncrevoke.client.core.commit.committer import Committer
    from asyncrevoke.client.core.io.outbox import Outbox

_FIRST_BACKOFF = 0.1
# A retry needs a change of configuration or permissions first.
_LONGEST_BACKOFF = 5.0


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


class RejectedCommits:
    """Sends a rejected commit again after a backoff, while the partition is assigned.

    A partition in COMMITTING gets one more attempt, at once if its commit was rejected before. If
    that is rejected, it is released without a final commit.
    """

    def __init__(self, outbox: Outbox, commits: Committer) -> None:
        self._outbox = outbox
        self._log = WaitLog(outbox)
        self._backoff = PartitionBackoff(
            outbox, commits, timer="commit-rejected", first=_FIRST_BACKOFF, longest=_LONGEST_BACKOFF
        )
        # Whether the commit that was rejected last had been sent in COMMITTING.
        self._rejected: dict[PartitionInstance, bool] = {}

    def __contains__(self, instance: PartitionInstance) -> bool:
        return instance in self._rejected

    def add(
        self, now: float, instance: PartitionInstance, error: ErrorCode, flushing: bool
    ) -> bool:
        """Its commit was rejected; ``flushing`` if sent in COMMITTING. False: no more attempts."""
        was_last = flushing and instance in self._rejected
        self._rejected[instance] = flushing
        if was_last:
            return False
        self._backoff.add(now, instance)
        self._log.waiting(
            now,
            _key(instance),
            log_events.COMMIT_REJECTED,
            partition=str(instance.partition),
            error=error.name,
        )
        return True

    def has_to_wait(self, now: float, instance: PartitionInstance) -> bool:
        """Whether its commit is delayed."""
        if instance.state is InstanceState.COMMITTING and not self._rejected.get(instance, True):
            return False
        return self._backoff.has_to_wait(now, instance)

    def end_wait(self, now: float, instance: PartitionInstance) -> None:
        """Commit it now: a call waits for it."""
        self._backoff.end_wait(now, instance)

    def accepted(self, now: float, instance: PartitionInstance) -> None:
        """A commit of it was acknowledged."""
        if self._rejected.pop(instance, None) is not None:
            self._backoff.forget(instance)
            self._log.over(
                now, _key(instance), log_events.COMMITS_ACCEPTED, partition=str(instance.partition)
            )

    def forget(self, instance: PartitionInstance) -> None:
        """The instance has ended."""
        if self._rejected.pop(instance, None) is not None:
            self._backoff.forget(instance)
            self._log.forget(_key(instance))


def commit_error(instance: PartitionInstance, error: ErrorCode) -> PartitionsError:
    """The exception for calls that wait for a commit that was rejected with ``error``."""
    if error is ErrorCode.topic_authorization_failed:
        return TopicAuthorizationError([instance.partition])
    return PartitionsError(
        [instance.partition],
        f"{instance.partition}: the broker rejects its commits: {error.name}",
    )


def _key(instance: PartitionInstance) -> str:
    return f"commit-{instance.partition}"
