"""The offsets that the user asks to commit (``commit_mode="manual"``), one for each partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.protocol.messages import CommitEntry

if TYPE_CHECKING:
    from asyncrevoke.client.core.io.outbox import Outbox
    from asyncrevoke.client.core.partition.instance import PartitionInstance
    from asyncrevoke.client.model import OffsetAndMetadata


class RequestedOffsets:
    """The newest request of each partition, until it is acknowledged or rejected."""

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
