"""One partition of a topic to which transactions write, as its leader keeps it (KIP-890)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from aiokafka.record.default_records import DefaultRecordBatch

from asyncrevoke.client.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

# So many batches of a producer a leader compares with, to find those that are sent again.
_REMEMBERED: Final = 5


@dataclass(slots=True)
class OutputBatch:
    """A batch; ``committed`` is None while its transaction is open."""

    producer_id: int
    epoch: int
    first: int
    offset: int
    values: tuple[bytes, ...]
    committed: bool | None = None


@dataclass(slots=True)
class _ProducerState:
    """What the leader knows of a producer: the epoch, and the sequence that comes next in it."""

    epoch: int = -1
    following: int = 0
    last: deque[OutputBatch] = field(default_factory=lambda: deque[OutputBatch](maxlen=_REMEMBERED))
    is_open: bool = False


class OutputLog:
    """The batches and the markers of a partition."""

    def __init__(self, leader_id: int = 0) -> None:
        self.leader_id = leader_id
        self.leader_epoch = 0
        self.end = 0
        self.batches: list[OutputBatch] = []
        self._producers: dict[int, _ProducerState] = {}
        self._open: list[OutputBatch] = []

    def begin_epoch(self) -> None:
        """Begin a leader epoch after an election. All replicas have all that was acknowledged."""
        self.leader_epoch += 1

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Whether a transaction of this producer and epoch has a batch here."""
        known = self._producers.get(producer_id)
        return known is not None and known.is_open and known.epoch == epoch

    def check(self, producer_id: int, epoch: int) -> ErrorCode:
        """Whether batches of this epoch may be written."""
        known = self._producers.get(producer_id)
        if known is not None and epoch < known.epoch:
            return ErrorCode.invalid_producer_epoch
        return ErrorCode.none

    def append(self, records: bytes) -> tuple[ErrorCode, int]:
        """Write a transactional batch. Returns the error, and its offset or that of the batch that
        it repeats."""
        batch = cast("Any", DefaultRecordBatch(records))
        producer_id, epoch = int(batch.producer_id), int(batch.producer_epoch)
        first = int(batch.base_sequence)
        error = self.check(producer_id, epoch)
        if error is not ErrorCode.none:
            return error, -1
        state = self._producers.setdefault(producer_id, _ProducerState())
        if epoch == state.epoch:
            for written in state.last:
                if written.first == first:
                    return ErrorCode.none, written.offset
        if first != (state.following if epoch == state.epoch else 0):
            return ErrorCode.out_of_order_sequence_number, -1
        if epoch > state.epoch:
            state.epoch, state.following = epoch, 0
            state.last.clear()
        values = tuple(bytes(record.value or b"") for record in batch)
        added = OutputBatch(producer_id, epoch, first, self.end, values)
        state.following += len(values)
        state.last.append(added)
        state.is_open = True
        self.end += len(values)
        self.batches.append(added)
        self._open.append(added)
        return ErrorCode.none, added.offset

    def mark(self, producer_id: int, epoch: int, *, committed: bool) -> list[OutputBatch]:
        """Write the marker that ends the transaction of a producer. Its ``epoch`` is that of the
        coordinator: batches of epochs before it are rejected from now on. Returns the batches."""
        state = self._producers.setdefault(producer_id, _ProducerState())
        ended = [batch for batch in self._open if batch.producer_id == producer_id]
        self._open = [batch for batch in self._open if batch.producer_id != producer_id]
        for batch in ended:
            batch.committed = committed
        if epoch > state.epoch:
            state.epoch, state.following = epoch, 0
            state.last.clear()
        state.is_open = False
        self.end += 1
        return ended

    def open_batches(self, producer_id: int) -> list[OutputBatch]:
        """The batches of the open transaction of this producer."""
        return [batch for batch in self._open if batch.producer_id == producer_id]

    @property
    def first_open(self) -> OutputBatch | None:
        """The first batch whose transaction is open, at which the last stable offset stands."""
        return self._open[0] if self._open else None

    @property
    def last_stable_offset(self) -> int:
        """The offset of the first batch whose transaction is open, or the end of the log."""
        return self._open[0].offset if self._open else self.end

    def visible(self) -> Iterator[bytes]:
        """The values that readers with ``read_committed`` receive, up to the last stable offset."""
        for batch in self.batches:
            if batch.committed is None:
                return
            if batch.committed:
                yield from batch.values
