"""The queues that have batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.producing.queueing.partition_queue import PartitionQueue
from asyncrevoke.client.producing.queueing.result_topics import ResultTopic

if TYPE_CHECKING:
    from collections.abc import Iterator


class ActiveQueues(dict[PartitionQueue, ResultTopic]):
    """The queues with batches, and their topics, in the order in which their first batches were
    added. Times are those of the event loop's clock."""

    @property
    def records(self) -> int:
        """Records that are neither acknowledged nor have failed."""
        return sum(batch.count for queue in self for batch in queue.batches)

    @property
    def first_expiry(self) -> float:
        """When the first of the batches expires; infinite without one."""
        return min(self._expiries(), default=float("inf"))

    @property
    def last_expiry(self) -> float:
        """When the last of the batches expires; 0 without one."""
        return max(self._expiries(), default=0.0)

    def next_at(self, now: float) -> float:
        """When a batch expires, or is due to be sent again; infinite without one."""
        due = float("inf")
        for queue in self:
            if not queue.in_flight:
                due = min(due, queue.batches[0].expires_at)
                # A retry that is due already waits for its broker, or for metadata.
                if queue.retry_at > now:
                    due = min(due, queue.retry_at)
        return due

    def _expiries(self) -> Iterator[float]:
        return (batch.expires_at for queue in self for batch in queue.batches)
