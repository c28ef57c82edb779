"""The batches for one partition, in the order in which they are sent."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from asyncrevoke.client.backoff import Backoff
from asyncrevoke.client.producing.record_batch import BatchSequence, ResultBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.model import TopicPartition

_LARGEST_EPOCH: Final = 2**15 - 1
_SEQUENCES: Final = 2**31
_FIRST_BACKOFF: Final = 0.05
_LONGEST_BACKOFF: Final = 1.0
# In place of a producer id: brokers do not look for duplicates of such batches.
NO_PRODUCER_ID: Final = -1
_NO_SEQUENCE: Final = BatchSequence(NO_PRODUCER_ID, -1, -1)


class PartitionQueue:
    """The batches for one partition. One is in flight at a time; the last one may be open.

    An acknowledged batch uses up its sequence number. A batch that may have been written keeps its
    number. If it fails, the next batch begins a new producer epoch with number 0, as idempotence
    (KIP-98, KIP-360) allows for one partition without affecting others. Without idempotence no
    batch has a number.
    """

    __slots__ = ("_backoff", "_next", "batches", "in_flight", "partition", "retry_at")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.batches: deque[ResultBatch] = deque()
        self.in_flight = False
        # By the event loop's clock: no batch is sent before.
        self.retry_at = 0.0
        self._backoff = Backoff(_FIRST_BACKOFF, _LONGEST_BACKOFF)
        # None until a producer id is known.
        self._next: BatchSequence | None = None

    def needs_producer_id(self) -> bool:
        """Whether :meth:`start` needs a new producer id."""
        return self._next is None

    def start(self, producer_id: int) -> bytearray:
        """Begin to send the first batch, and return its bytes."""
        self.in_flight = True
        batch = self.batches[0]
        if producer_id == NO_PRODUCER_ID:
            return batch.with_sequence(_NO_SEQUENCE)
        if self._next is None:
            self._next = BatchSequence(producer_id, 0, 0)
        return batch.with_sequence(
            batch.sequence if batch.in_doubt and batch.sequence else self._next
        )

    def acknowledged(self) -> ResultBatch:
        """The first batch is acknowledged: remove and return it."""
        batch = self._ended()
        self._backoff.succeeded()
        sequence = batch.sequence
        if sequence is not None and sequence != _NO_SEQUENCE:
            self._next = sequence._replace(number=(sequence.number + batch.count) % _SEQUENCES)
        return batch

    def failed(self) -> ResultBatch:
        """The first batch has failed: remove and return it."""
        batch = self._ended()
        if batch.in_doubt:
            self._begin_epoch()
        return batch

    def retry(self, now: float, *, in_doubt: bool) -> None:
        """Send the first batch again after a backoff. ``in_doubt``: it may be written."""
        self.in_flight = False
        if in_doubt:
            self.batches[0].may_be_written()
        self.retry_at = now + self._backoff.failed()

    def begin_epoch(self, now: float) -> None:
        """The broker expects another sequence: send the first batch again in a new epoch."""
        self.retry(now, in_doubt=False)
        self.batches[0].forget_sequence()
        self._begin_epoch()

    def split(self) -> int:
        """Replace the first batch, of several records, by its halves.

        Returns by how many bytes the halves are larger.
        """
        return self._replace_first(self.batches[0].halves())

    def compress(self, compression: int) -> int:
        """Replace the first batch by one with this compression. Returns by how many bytes its
        records are larger."""
        return self._replace_first([self.batches[0].with_compression(compression)])

    def _replace_first(self, parts: Sequence[ResultBatch]) -> int:
        batch = self._ended()
        if batch.in_doubt:
            for part in parts:
                part.may_be_written()
            self._begin_epoch()
        self.batches.extendleft(reversed(parts))
        return sum(part.size for part in parts) - batch.size

    def put_first(self, batches: Sequence[ResultBatch]) -> None:
        """Send these batches before all that have no sequence number yet."""
        waiting = self.batches
        taken = waiting and (self.in_flight or waiting[0].sequence is not None)
        for position, batch in enumerate(batches, 1 if taken else 0):
            waiting.insert(position, batch)

    def _ended(self) -> ResultBatch:
        self.in_flight = False
        self.retry_at = 0.0
        return self.batches.popleft()

    def _begin_epoch(self) -> None:
        following = self._next
        if following is None or following.epoch >= _LARGEST_EPOCH:
            self._next = None
        else:
            self._next = BatchSequence(following.producer_id, following.epoch + 1, 0)
