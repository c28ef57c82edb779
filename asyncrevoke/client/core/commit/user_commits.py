"""Commits that the user asks for: the offsets, with ``commit_mode="manual"``, and the calls that
wait for commits to be acknowledged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.core.io.effects import CompleteRequest
from asyncrevoke.client.errors import PartitionLostError
from asyncrevoke.client.model import OffsetAndMetadata, Value
from asyncrevoke.client.protocol.messages import CommitEntry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.core.commit.committer import Committer
    from asyncrevoke.client.core.io.outbox import Outbox
    from asyncrevoke.client.core.partition.instance import PartitionInstance


class RequestedOffsets:
    """The newest request of each partition (``commit_mode="manual"``), until it is acknowledged or
    rejected."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._requested: dict[PartitionInstance, OffsetAndMetadata] = {}
        self._acknowledged: dict[PartitionInstance, OffsetAndMetadata] = {}

    def __contains__(self, instance: PartitionInstance) -> bool:
        return instance in self._requested

    def request(self, instance: PartitionInstance, offset: OffsetAndMetadata) -> None:
        """Commit this offset instead of an earlier request."""
        self._requested[instance] = offset

    def entry(self, instance: PartitionInstance) -> CommitEntry | None:
        """What to commit; None without a request."""
        requested = self._requested.get(instance)
        if requested is None:
            return None
        return CommitEntry(
            partition=instance.partition,
            offset=requested.offset,
            leader_epoch=requested.leader_epoch,
            metadata=requested.metadata,
        )

    def acknowledged(self, instance: PartitionInstance, entry: CommitEntry) -> None:
        """The broker has stored ``entry``; there may be a newer request."""
        if self.entry(instance) == entry:
            self._acknowledged[instance] = self._requested.pop(instance)

    def rejected(self, instance: PartitionInstance, entry: CommitEntry, error: str) -> bool:
        """The broker rejects ``entry``: do not send it again, as the user may continue from an
        earlier offset. False if there is no newer request."""
        self._outbox.emit(
            log_events.COMMIT_NOT_RETRIED,
            partition=str(instance.partition),
            offset=entry.offset,
            error=error,
        )
        if self.entry(instance) == entry:
            del self._requested[instance]
        return instance in self._requested

    def rewound(self, instance: PartitionInstance) -> None:
        """An earlier request was stored after the last one: request that again."""
        if instance in self._acknowledged:
            self._requested.setdefault(instance, self._acknowledged[instance])

    def drop_metadata(self, instance: PartitionInstance) -> None:
        """The broker rejects metadata of this size: commit without it."""
        requested = self._requested.get(instance)
        if requested is not None:
            self._outbox.emit(
                log_events.COMMIT_METADATA_TOO_LARGE,
                size=len(requested.metadata),
                partition=str(instance.partition),
            )
            self._requested[instance] = requested._replace(metadata="")

    def forget(self, instance: PartitionInstance) -> None:
        """The instance has ended."""
        self._requested.pop(instance, None)
        self._acknowledged.pop(instance, None)


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
