"""Collects records of one partition until they are a batch."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from asyncrevoke.handlers.policy.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncrevoke.handlers.scheduling.clock import Clock, Timer
    from asyncrevoke.model import Record, TopicPartition


class _Collection:
    """What one partition has collected: records with the time of their arrival."""

    __slots__ = ("alone", "max_records", "max_wait", "outstanding", "queue", "timer")

    def __init__(self, max_records: int, max_wait: float, *, alone: bool) -> None:
        self.alone = alone
        self.max_records = max_records
        self.max_wait = max_wait
        self.queue: deque[tuple[float, Record]] = deque()
        self.outstanding: dict[Batch, None] = {}
        self.timer: Timer | None = None

    def is_full(self) -> bool:
        """Whether no further record could join the next batch."""
        queue = self.queue
        return len(queue) >= self.max_records or queue[0][1].tracker_id != queue[-1][1].tracker_id

    def cut(self) -> Batch:
        """The next batch: records of one tracker, at most ``max_records``."""
        queue = self.queue
        tracker_id = queue[0][1].tracker_id
        records: list[Record] = []
        while queue and len(records) < self.max_records and queue[0][1].tracker_id == tracker_id:
            records.append(queue.popleft()[1])
        batch = Batch(records)
        self.outstanding[batch] = None
        return batch

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Collector:
    """Forms batches by number and by age.

    ``on_batch`` gets each batch when it may run. Until ``ended`` is called for it, it is
    outstanding.
    """

    def __init__(self, clock: Clock, on_batch: Callable[[TopicPartition, Batch], None]) -> None:
        self._clock = clock
        self._on_batch = on_batch
        self._collections: dict[TopicPartition, _Collection] = {}

    def put(
        self,
        partition: TopicPartition,
        records: Sequence[Record],
        max_records: int,
        max_wait: float,
        *,
        alone: bool,
    ) -> None:
        """Collect these, in offset order. ``alone``: one batch of the partition at a time."""
        collection = self._collections.get(partition)
        if collection is None:
            collection = self._collections[partition] = _Collection(
                max_records, max_wait, alone=alone
            )
        now = self._clock.time()
        collection.queue.extend([(now, record) for record in records])
        self._form(partition, collection)

    def ended(self, batch: Batch) -> None:
        """A batch has ended, whatever its end was. Idempotent."""
        collection = self._collections.get(batch.topic_partition)
        if collection is not None and batch in collection.outstanding:
            del collection.outstanding[batch]
            self._form(batch.topic_partition, collection)

    def partitions(self) -> list[TopicPartition]:
        """Every partition that anything was ever put of."""
        return list(self._collections)

    def drop(self, partition: TopicPartition) -> list[Record]:
        """What was being collected is no longer."""
        collection = self._collections.get(partition)
        if collection is None:
            return []
        dropped = [record for _, record in collection.queue]
        collection.queue.clear()
        collection.stop_timer()
        return dropped

    def _form(self, partition: TopicPartition, collection: _Collection) -> None:
        collection.stop_timer()
        while collection.queue and not (collection.alone and collection.outstanding):
            wait = collection.queue[0][0] + collection.max_wait - self._clock.time()
            if wait > 0 and not collection.is_full():
                collection.timer = self._clock.call_later(
                    wait, lambda: self._form_due(partition, collection)
                )
                return
            self._on_batch(partition, collection.cut())

    def _form_due(self, partition: TopicPartition, collection: _Collection) -> None:
        """The first record has waited for long enough, whatever rounding says of it."""
        collection.timer = None
        if collection.queue:
            self._on_batch(partition, collection.cut())
            self._form(partition, collection)
