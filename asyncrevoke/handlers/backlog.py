"""What was taken and is not done: queued, between two attempts, or running; and giving it up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.handlers.waiting import Clock, Waiting

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from asyncrevoke.handlers.lanes import Entry, LaneQueue
    from asyncrevoke.handlers.source import RecordSource
    from asyncrevoke.model import Record, TopicPartition


class Trial:
    """A record that has failed. ``calls`` counts the calls that were made for it.

    ``failure`` is set when there are no further ones: it goes to the dead letter topic.
    """

    __slots__ = ("calls", "failure")

    def __init__(self, calls: int) -> None:
        self.calls = calls
        self.failure: BaseException | None = None


class Backlog:
    """Records of all partitions, from being taken to being done or given up.

    ``trials`` holds those that have failed and are not given up.
    """

    def __init__(self, source: RecordSource, lanes: LaneQueue[Record], clock: Clock) -> None:
        self._source = source
        self._lanes = lanes
        self.waiting: Waiting[Record] = Waiting(lanes, clock)
        self.trials: dict[Record, Trial] = {}
        # The partitions that a failure has halted, and the ledger of that time.
        self._halted: dict[TopicPartition, int] = {}
        self._stopping = False

    def put(self, partition: TopicPartition, records: Sequence[Record]) -> None:
        """Queue records of one partition."""
        self._lanes.put(partition, records)

    def may_try_again(self, record: Record) -> bool:
        """Whether a failed record may wait for another attempt: not while its partition stops."""
        return not (
            self._stopping
            or self.is_halted(record)
            or self._source.is_revoking(record.topic_partition)
        )

    def is_halted(self, record: Record) -> bool:
        """Whether a failure has halted its partition."""
        return self._halted.get(record.topic_partition) == record.ledger_id

    def try_again(self, entry: Entry[Record], delay: float) -> None:
        """This entry is tried again after ``delay`` seconds; its lane waits."""
        self.waiting.put(entry, delay)

    def bury(self, entry: Entry[Record]) -> None:
        """This entry goes to the dead letter topic next, also while its partition drains."""
        self._lanes.again(entry)

    def abandon(self, record: Record) -> None:
        """It has ended and is not done."""
        self.trials.pop(record, None)
        self._source.abandon(record)

    def give_up(self, entry: Entry[Record]) -> None:
        """A started entry has ended and is not done: nor is what waits behind it in its lane."""
        self.abandon(entry[1])
        self._abandon_all(self._lanes.give_up(entry))

    def drain(self, partition: TopicPartition) -> None:
        """What has started runs to its end; the rest is given up.

        With H the highest offset that has started, records after H are given back unstarted. A
        record between two attempts gets no further one.
        """
        dropped = self._lanes.drain(partition)
        for entry in self.waiting.give_up(partition):
            self.give_up(entry)
        if dropped:
            self._source.drop_after(partition, min(record.offset for record in dropped) - 1)

    def drain_all(self) -> None:
        """Drain every partition, those of later records too."""
        self._stopping = True
        for partition in self._lanes.partitions():
            self.drain(partition)

    def halt(self, record: Record) -> None:
        """Nothing more of this record's partition begins, and it stays ours."""
        partition = record.topic_partition
        self._halted[partition] = record.ledger_id
        self._source.pause(record)
        self.drain(partition)
        self._abandon_all(self._lanes.lose(partition))

    def lose(self, partition: TopicPartition) -> None:
        """Forget all of a lost partition that does not run."""
        for entry in self.waiting.give_up(partition):
            self._forget(entry[1], *self._lanes.give_up(entry))
        self._forget(*self._lanes.lose(partition))
        self._halted.pop(partition, None)

    def clear(self) -> None:
        """Give up all that does not run."""
        for entry in self.waiting.give_up():
            self.give_up(entry)
        self._abandon_all(self._lanes.clear())

    def _abandon_all(self, records: Iterable[Record]) -> None:
        for record in records:
            self.abandon(record)

    def _forget(self, *records: Record) -> None:
        if self.trials:
            for record in records:
                self.trials.pop(record, None)
