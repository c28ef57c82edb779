"""Records one by one: each is done when the next is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from asyncrevoke.model import PollResult, Record, TopicPartition


class Steps(Protocol):
    """What records are taken from."""

    counts_single_records: bool

    async def poll_for_records(self) -> PollResult:
        """One step on behalf of single records; StopAsyncIteration at the end."""
        ...

    def complete(self, record: Record) -> bool:
        """It is done."""
        ...

    def drop_after(self, partition: TopicPartition, offset: int) -> None:
        """Records after this offset were not handed out: they are to be returned again."""
        ...


class RecordIterator:
    """An async iterator over single records. Cancelling ``__anext__`` loses none of them.

    What a step has returned and nobody has taken yet stays here; there is one per consumer, so
    that a second loop goes on where the first one stopped.
    """

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._records: Sequence[Record] = ()
        self._taken = 0
        self._last: Record | None = None

    def __aiter__(self) -> RecordIterator:
        return self

    async def __anext__(self) -> Record:
        self._count_last()
        while self._taken == len(self._records):
            batch = await self._steps.poll_for_records()
            self._records, self._taken = batch.records, 0
        record = self._records[self._taken]
        self._taken += 1
        if self._steps.counts_single_records:
            self._last = record
        return record

    def first_left(self) -> dict[TopicPartition, int]:
        """The first offset of each partition that was returned here and not handed out."""
        first: dict[TopicPartition, int] = {}
        for record in self._records[self._taken :]:
            first.setdefault(record.topic_partition, record.offset)
        return first

    def give_back(self) -> None:
        """Somebody takes whole batches now: what was not handed out is to be returned again."""
        self._count_last()
        if self._taken < len(self._records):
            first = self.first_left()
            self._records, self._taken = (), 0
            for partition, offset in first.items():
                self._steps.drop_after(partition, offset - 1)

    def lose(self, partitions: Iterable[TopicPartition]) -> None:
        """These are not ours to handle any more."""
        gone = frozenset(partitions)
        left = self._records[self._taken :]
        self._records = [record for record in left if record.topic_partition not in gone]
        self._taken = 0

    def _count_last(self) -> None:
        if self._last is not None:
            self._steps.complete(self._last)
            self._last = None
