"""Collects records of each partition until they are a batch."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING

from asyncrevoke.client.record_parts import joined
from asyncrevoke.handlers.policy.batch import HandlerBatch

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, TimerHandle
    from collections.abc import Callable, Sequence

    from asyncrevoke.client.model import Record, TopicPartition
    from asyncrevoke.handlers.policy.registration import BatchOptions
    from asyncrevoke.handlers.scheduling.backlog import Backlog

_OFFSET = attrgetter("offset")


class _PartitionRecords:
    """The collected records of one partition in parts, each with its arrival time, and the open
    batches."""

    __slots__ = (
        "_timer",
        "batches",
        "count",
        "ends",
        "max_records",
        "max_wait",
        "one_at_a_time",
        "records",
    )

    def __init__(self, max_records: int, max_wait: float, *, one_at_a_time: bool) -> None:
        self.one_at_a_time = one_at_a_time
        self.max_records = max_records
        self.max_wait = max_wait
        # The records of a part are all read before or all read after a seek.
        self.records: deque[tuple[float, Sequence[Record]]] = deque()
        self.count = 0
        self.batches: dict[HandlerBatch, None] = {}
        # No record is added any more: a batch need not be full.
        self.ends = False
        self._timer: TimerHandle | None = None

    def may_form(self) -> bool:
        """Whether records are collected that need not wait for the end of a batch."""
        return bool(self.records) and not (self.one_at_a_time and self.batches)

    def is_full(self) -> bool:
        """Whether no later record can join the next batch."""
        records = self.records
        seeked = records[0][1][0].tracker_id != records[-1][1][0].tracker_id
        return self.count >= self.max_records or seeked or self.ends

    def take_batch(self) -> HandlerBatch:
        """The next batch: at most ``max_records``, all read before or all read after a seek."""
        queue = self.records
        tracker_id = queue[0][1][0].tracker_id
        taken: Sequence[Record] = []
        while queue and (left := self.max_records - len(taken)) > 0:
            arrived, part = queue[0]
            if part[0].tracker_id != tracker_id:
                break
            if len(part) > left:
                queue[0] = (arrived, part[left:])
                part = part[:left]
            else:
                queue.popleft()
            taken = joined(taken, part) if taken else part
        self.count -= len(taken)
        batch = HandlerBatch(taken)
        self.batches[batch] = None
        return batch

    def start_timer(self, clock: AbstractEventLoop, delay: float, form: Callable[[], None]) -> None:
        """Call ``form`` after ``delay`` seconds."""
        self._timer = clock.call_later(delay, form)

    def stop_timer(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class BatchAssembler:
    """Forms a batch at ``max_records``, or ``max_wait`` after its first record arrived."""

    def __init__(self, clock: AbstractEventLoop, backlog: Backlog) -> None:
        self._clock = clock
        self._backlog = backlog
        self._partitions: dict[TopicPartition, _PartitionRecords] = {}

    def put(
        self,
        partition: TopicPartition,
        records: Sequence[Record],
        options: BatchOptions,
        *,
        one_at_a_time: bool,
    ) -> None:
        """Add records in offset order.

        ``one_at_a_time``: a batch waits for the end of the partition's batch before it.
        """
        collected = self._partitions.get(partition)
        if collected is None:
            collected = self._partitions[partition] = _PartitionRecords(
                options.max_records, options.max_wait, one_at_a_time=one_at_a_time
            )
        now = self._clock.time()
        collected.ends = False
        # A batch may extend the first part that it takes.
        collected.records.append((now, records[:]))
        collected.count += len(records)
        self._form(partition, collected)

    def batch_ended(self, batch: HandlerBatch) -> None:
        """A batch is done or abandoned. Idempotent."""
        collected = self._partitions.get(batch.topic_partition)
        if collected is not None and batch in collected.batches:
            del collected.batches[batch]
            self._form(batch.topic_partition, collected)

    def partitions(self) -> list[TopicPartition]:
        """Every partition for which :meth:`put` was called."""
        return list(self._partitions)

    def collected(self, partition: TopicPartition) -> list[Record]:
        """The records of a partition that are in no batch."""
        collected = self._partitions.get(partition)
        if collected is None:
            return []
        return [record for _, records in collected.records for record in records]

    def drop(self, partition: TopicPartition, offset: int = 0) -> list[Record]:
        """Remove and return the records of a partition from ``offset`` on that are in no batch.

        Those before ``offset`` form batches at once, or when the batch before them has ended.
        """
        collected = self._partitions.get(partition)
        if collected is None:
            return []
        everything = list(collected.records)
        collected.records.clear()
        collected.count = 0
        collected.stop_timer()
        if not everything:
            return []
        tracker_id = everything[-1][1][0].tracker_id
        dropped: list[Record] = []
        for arrived, records in everything:
            kept = 0
            if records[0].tracker_id == tracker_id:
                kept = bisect_left(records, offset, key=_OFFSET)
            if kept:
                collected.records.append((arrived, records[:kept]))
                collected.count += kept
            dropped += records[kept:]
        collected.ends = True
        self._form(partition, collected)
        return dropped

    def _form(self, partition: TopicPartition, collected: _PartitionRecords) -> None:
        collected.stop_timer()
        while collected.may_form():
            wait = collected.records[0][0] + collected.max_wait - self._clock.time()
            if wait > 0 and not collected.is_full():
                collected.start_timer(
                    self._clock, wait, lambda: self._first_has_waited(partition, collected)
                )
                return
            self._backlog.batch_assembled(partition, collected.take_batch())

    def _first_has_waited(self, partition: TopicPartition, collected: _PartitionRecords) -> None:
        """Form a batch without asking the clock, which may be a rounding error before the timer."""
        collected.stop_timer()
        if collected.records:
            self._backlog.batch_assembled(partition, collected.take_batch())
            self._form(partition, collected)
