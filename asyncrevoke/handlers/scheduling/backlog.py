"""What was taken and is not done: collected, queued, between two attempts, or running."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asyncrevoke.handlers.policy.batch import Batch, Item, first_offset, records_of
from asyncrevoke.handlers.scheduling.batch_assembler import Collector
from asyncrevoke.handlers.scheduling.retry_queue import Waiting

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from asyncrevoke.handlers.scheduling.clock import Clock
    from asyncrevoke.handlers.scheduling.handler_limiter import Gate
    from asyncrevoke.handlers.scheduling.lanes import Entry, LaneQueue
    from asyncrevoke.handlers.scheduling.ordering import Flow
    from asyncrevoke.handlers.scheduling.record_source import RecordSource
    from asyncrevoke.model import Record, TopicPartition


class Trial:
    """A record or batch that has failed. ``calls`` counts the calls that were made for it.

    ``failure`` is set when a record has no further ones here: it goes to another topic.
    ``refused`` is set before the first one, of a record whose lane cannot be known, or that cannot
    be read: it fails by it.
    """

    __slots__ = ("calls", "failure", "refused")

    def __init__(self, calls: int) -> None:
        self.calls = calls
        self.failure: BaseException | None = None
        self.refused: BaseException | None = None


# Of a record that has not failed: its first call goes through the tracer.
TRACED: Final = Trial(0)


class Backlog:
    """Records of all partitions, from being taken to being done or given up.

    ``trials`` holds those that have failed and are not given up.
    """

    def __init__(
        self,
        source: RecordSource,
        lanes: LaneQueue[Item],
        clock: Clock,
    ) -> None:
        self._source = source
        self._lanes = lanes
        self._collector = Collector(clock, self._batch_formed)
        self.waiting: Waiting[Item] = Waiting(lanes, clock)
        self.trials: dict[Item, Trial] = {}
        # The partitions that a failure has halted, and the tracker of that time.
        self._halted: dict[TopicPartition, int] = {}
        self._stopping = False
        # How the batches of a partition flow.
        self._batches: dict[TopicPartition, Flow] = {}

    def put(self, partition: TopicPartition, records: Sequence[Record], flow: Flow) -> None:
        """Queue records of one partition."""
        self._lanes.put(partition, records, flow.order, flow.gate)

    def collect(
        self,
        partition: TopicPartition,
        records: Sequence[Record],
        max_records: int,
        max_wait: float,
        flow: Flow,
    ) -> None:
        """Queue records of one partition as batches."""
        self._batches[partition] = flow
        self._collector.put(partition, records, max_records, max_wait, alone=flow.alone)

    def _batch_formed(self, partition: TopicPartition, batch: Batch) -> None:
        flow = self._batches[partition]
        self._lanes.put(partition, [batch], flow.order, flow.gate)
        self.waiting.notify()

    def refuse(self, record: Record, error: BaseException) -> None:
        """This record is about to be put, and fails when it is taken."""
        trial = self.trials[record] = Trial(0)
        trial.refused = error

    def trace(self, records: Iterable[Record]) -> None:
        """These records are about to be put, and their first calls go through the tracer."""
        self.trials |= dict.fromkeys(records, TRACED)

    def admit(self, gate: Gate[Entry[Item]]) -> None:
        """This gate may have opened."""
        self._lanes.admit(gate)
        self.waiting.notify()

    def batch_ended(self, batch: Batch) -> None:
        """The partition's next batch may run, if they run alone."""
        self._collector.ended(batch)

    def may_try_again(self, item: Item) -> bool:
        """Whether a failed item may wait for another attempt: not while its partition stops."""
        return not (
            self._stopping or self.is_halted(item) or self._source.is_revoking(item.topic_partition)
        )

    def is_halted(self, item: Item) -> bool:
        """Whether a failure has halted its partition, and the user has not resumed it since."""
        partition = item.topic_partition
        return self._halted.get(partition) == item.tracker_id and self._source.is_paused(partition)

    def try_again(self, entry: Entry[Item], delay: float) -> None:
        """This entry is tried again after ``delay`` seconds; its lane waits."""
        self.waiting.put(entry, delay)

    def send_on(self, entry: Entry[Item]) -> None:
        """This entry goes to another topic next, also while its partition drains."""
        self._lanes.again(entry, limited=False)

    def abandon(self, item: Item) -> None:
        """It has ended and is not done."""
        self.trials.pop(item, None)
        for record in records_of(item):
            self._source.abandon(record)
        if isinstance(item, Batch):
            self.batch_ended(item)

    def give_up(self, entry: Entry[Item]) -> None:
        """A started entry has ended and is not done: nor is what waits behind it in its lane."""
        item = entry[1]
        if isinstance(item, Batch):
            self._abandon_all(self._collector.drop(entry[0].partition))
        self.abandon(item)
        self._abandon_all(self._lanes.give_up(entry))

    def drain(self, partition: TopicPartition) -> None:
        """A revoke is announced: what has started runs to its end, the rest is dropped.

        Records before the offset that ``RecordSource.droppable_from`` tells, if others after them
        have started, are worked off first. An item between two attempts gets no further one. A
        pause ends.
        """
        self._lanes.resume(partition)
        unstarted = self._lanes.unstarted(partition, self._has_started)
        records = [record for item in unstarted for record in records_of(item)]
        self._drain(partition, self._source.droppable_from(partition, records) if records else 0)
        self._lanes.put_lagging_last(partition)

    def _drain(self, partition: TopicPartition, droppable_from: int) -> None:
        self._lanes.resume(partition)
        self._give_back_unstarted(partition, droppable_from)
        for entry in self.waiting.give_up(partition):
            self.give_up(entry)
        # What was dropped may have kept others from being let through.
        self.waiting.notify()

    def _give_back_unstarted(
        self, partition: TopicPartition, droppable_from: int | None = None
    ) -> None:
        last_started = self._lanes.last_started(partition)
        dropped = [
            *self._lanes.drain(partition, droppable_from, self._has_started),
            *self._collector.drop(partition),
        ]
        if dropped:
            # Only those of the newest tracker can be given back; a seek has left the others behind.
            tracker_id = dropped[-1].tracker_id
            current = [item for item in dropped if item.tracker_id == tracker_id]
            gaps = [item for item in current if item.offset < last_started]
            rest = [first_offset(item) for item in current if item.offset > last_started]
            self._forget(current)
            self._abandon_all(item for item in dropped if item.tracker_id != tracker_id)
            if rest:
                self._source.drop_after(partition, min(rest) - 1)
            if gaps:
                self._source.abandon_all([record for item in gaps for record in records_of(item)])

    def drop(self, partition: TopicPartition) -> None:
        """The partition is read elsewhere: nothing begins that has not begun, and what waits for
        another attempt gets none. What runs goes on."""
        self._abandon_all(self._collector.drop(partition))
        for entry in self.waiting.give_up(partition):
            self.give_up(entry)
        self._abandon_all(self._lanes.lose(partition))
        # What was dropped may have kept others from being let through.
        self.waiting.notify()

    def pause(self, partition: TopicPartition) -> None:
        """Nothing of this partition begins until :meth:`resume`.

        Records after the highest offset that has started are given back, so that they take no room
        from other partitions: they come again. A partition that drains goes on draining.
        """
        if self._stopping or self._source.is_revoking(partition):
            return
        self._give_back_unstarted(partition)
        self._lanes.pause(partition)
        self.waiting.notify()

    def resume(self, partition: TopicPartition) -> None:
        """A pause ends."""
        self._lanes.resume(partition)
        self.waiting.notify()

    def drain_all(self) -> None:
        """The consumer stops: nothing more of any partition starts, those of later records too.

        What has started runs to its end. Records below a started one are not done either.
        """
        self._stopping = True
        for partition in self.partitions():
            self._drain(partition, 0)
            self._abandon_all(self._lanes.drop_unstarted(partition, self._has_started))

    def _has_started(self, item: Item) -> bool:
        """Of what is queued: whether a call was made for it already."""
        trial = self.trials.get(item)
        return trial is not None and (trial.calls > 0 or trial.failure is not None)

    def partitions(self) -> list[TopicPartition]:
        """Every partition that anything was ever put of."""
        return list(dict.fromkeys([*self._lanes.partitions(), *self._collector.partitions()]))

    def halt(self, item: Item) -> None:
        """Nothing more of this item's partition begins, and it stays ours."""
        partition = item.topic_partition
        self._halted[partition] = item.tracker_id
        self._source.pause(records_of(item)[0])
        self._drain(partition, 0)
        self._abandon_all(self._lanes.lose(partition))

    def lose(self, partition: TopicPartition) -> None:
        """Forget all of a lost partition that does not run."""
        self._lanes.resume(partition)
        self._collector.drop(partition)
        for entry in self.waiting.give_up(partition):
            self._forget([entry[1], *self._lanes.give_up(entry)])
        self._forget(self._lanes.lose(partition))
        self._halted.pop(partition, None)

    def clear(self) -> None:
        """Give up all that does not run."""
        for partition in self._collector.partitions():
            self._abandon_all(self._collector.drop(partition))
        for entry in self.waiting.give_up():
            self.give_up(entry)
        self._abandon_all(self._lanes.clear())

    def _abandon_all(self, items: Iterable[Item]) -> None:
        for item in items:
            self.abandon(item)

    def _forget(self, items: Iterable[Item]) -> None:
        for item in items:
            self.trials.pop(item, None)
            if isinstance(item, Batch):
                self.batch_ended(item)
