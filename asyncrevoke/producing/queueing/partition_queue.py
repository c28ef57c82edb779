"""The batches for one partition, in the order in which they are sent, and their sequence."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from asyncrevoke.backoff import Backoff
from asyncrevoke.producing.record_batch import ResultBatch, Sequence32

if TYPE_CHECKING:
    from asyncrevoke.model import TopicPartition

_LARGEST_EPOCH: Final = 2**15 - 1
_SEQUENCES: Final = 2**31
_FIRST_BACKOFF: Final = 0.05
_LONGEST_BACKOFF: Final = 1.0


class PartitionQueue:
    """One batch at a time is sent; the last one may be open.

    A sequence number is used up by an acknowledged batch. A batch that may have been written keeps
    its number. If it is given up, the next batch begins a new epoch: the broker takes batches of a
    new epoch from number 0 on, so that other partitions are not concerned.
    """

    __slots__ = ("_backoff", "_next", "batches", "in_flight", "partition", "retry_at")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.batches: deque[ResultBatch] = deque()
        self.in_flight = False
        # Not sent before, by the event loop's clock.
        self.retry_at = 0.0
        self._backoff = Backoff(_FIRST_BACKOFF, _LONGEST_BACKOFF)
        # None until a producer id is known.
        self._next: Sequence32 | None = None

    def needs_producer_id(self) -> bool:
        """Whether :meth:`start` needs a new producer id."""
        return self._next is None

    def start(self, producer_id: int) -> bytearray:
        """The bytes of the first batch, which is in flight from now on."""
        if self._next is None:
            self._next = Sequence32(producer_id, 0, 0)
        self.in_flight = True
        batch = self.batches[0]
        return batch.stamped(batch.sequence if batch.in_doubt and batch.sequence else self._next)

    def acknowledged(self) -> ResultBatch:
        """The log has the first batch, which is returned."""
        batch = self._ended()
        self._backoff.succeeded()
        sequence = batch.sequence
        if sequence is not None:
            self._next = sequence._replace(number=(sequence.number + batch.count) % _SEQUENCES)
        return batch

    def failed(self) -> ResultBatch:
        """The first batch is given up, and returned."""
        batch = self._ended()
        if batch.in_doubt:
            self._begin_epoch()
        return batch

    def retry(self, now: float, *, in_doubt: bool) -> None:
        """Send the first batch again, after a while."""
        self.in_flight = False
        if in_doubt:
            self.batches[0].may_be_written()
        self.retry_at = now + self._backoff.failed()

    def begin_epoch(self, now: float) -> None:
        """The broker knows another sequence: send the first batch again in a new epoch."""
        self.retry(now, in_doubt=False)
        self.batches[0].forget_sequence()
        self._begin_epoch()

    def split(self) -> int:
        """The first batch, of several records, is too large: send its halves. Returns by how many
        bytes they are larger."""
        batch = self._ended()
        halves = batch.halves()
        if batch.in_doubt:
            for half in halves:
                half.may_be_written()
            self._begin_epoch()
        self.batches.extendleft(reversed(halves))
        return sum(half.size for half in halves) - batch.size

    def _ended(self) -> ResultBatch:
        self.in_flight = False
        self.retry_at = 0.0
        return self.batches.popleft()

    def _begin_epoch(self) -> None:
        following = self._next
        if following is None or following.epoch >= _LARGEST_EPOCH:
            self._next = None
        else:
            self._next = Sequence32(following.producer_id, following.epoch + 1, 0)
