"""Calls that wait for commits to be acknowledged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.core.io.effects import CompleteRequest
from asyncrevoke.client.errors import PartitionLostError
from asyncrevoke.client.model import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.core.commit.committer import Committer
    from asyncrevoke.client.core.io.outbox import Outbox
    from asyncrevoke.client.core.partition.instance import PartitionInstance


class Waiter(Value, frozen=True):
    """``needs``: for each instance, the number of the first OffsetCommit that has what was asked
    for. Acknowledged instances are removed; the call is completed when none is left."""

    call_id: int
    needs: dict[PartitionInstance, int]


class CommitWaiters:
    """Completes each waiting call once: when all its commits are acknowledged, or cannot be."""

    def __init__(self, outbox: Outbox, commits: Committer) -> None:
        self._outbox = outbox
        self._commits = commits
        self._waiters: list[Waiter] = []

    def add(self, waiter: Waiter) -> bool:
        """Add a waiting call; False if it needs nothing and was completed at once."""
        if not waiter.needs:
            self._outbox.put(CompleteRequest(waiter.call_id))
            return False
        self._waiters.append(waiter)
        return True

    def needs(self, instance: PartitionInstance) -> bool:
        """Whether a call waits for a commit of this instance."""
        return any(instance in waiter.needs for waiter in self._waiters)

    def check(self) -> None:
        """Complete the calls whose commits are acknowledged."""
        for waiter in self._waiters:
            for instance in [
                i for i, number in waiter.needs.items() if self._commits.is_satisfied(i, number)
            ]:
                del waiter.needs[instance]
        self._complete()

    def ended(self, instance: PartitionInstance, *, acknowledged: bool) -> None:
        """The instance has ended, with all of it committed (``acknowledged``) or not."""
        if acknowledged:
            for waiter in self._waiters:
                waiter.needs.pop(instance, None)
            self._complete()
        else:
            concerned = [waiter for waiter in self._waiters if instance in waiter.needs]
            self._fail(concerned, PartitionLostError([instance.partition]))

    def reject(self, instance: PartitionInstance, number: int, error: Exception) -> None:
        """The OffsetCommit ``number`` was rejected for this instance: fail the calls that need it,
        not those that wait for a later one."""
        concerned = [
            waiter for waiter in self._waiters if waiter.needs.get(instance, number + 1) <= number
        ]
        self._fail(concerned, error)

    def fail(self, error: Exception) -> None:
        """Fail all calls with ``error``: nothing more will be committed."""
        self._fail(list(self._waiters), error)

    def _complete(self) -> None:
        done = [waiter.call_id for waiter in self._waiters if not waiter.needs]
        if done:
            self._waiters = [waiter for waiter in self._waiters if waiter.needs]
            for call_id in done:
                self._outbox.put(CompleteRequest(call_id))

    def _fail(self, failed: Sequence[Waiter], error: Exception) -> None:
        calls = {waiter.call_id for waiter in failed}
        self._waiters = [waiter for waiter in self._waiters if waiter.call_id not in calls]
        for waiter in failed:
            self._outbox.put(CompleteRequest(waiter.call_id, error=error))
