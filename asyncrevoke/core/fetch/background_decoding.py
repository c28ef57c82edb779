"""Large batches are decoded elsewhere, a few at a time, while the consumer goes on.

To unpack tens of megabytes and make records of them takes long enough to hold up everything that
shares the event loop, heartbeats among it. So a partition whose next batch is large waits for it,
and the others are served meanwhile. Its next large batch is decoded while this one's records are
handled, as far as the memory allows.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncrevoke.core.fetch.cursor import FetchSource
    from asyncrevoke.core.fetch.memory_budget import FetchBudget
    from asyncrevoke.core.io.outbox import Outbox
    from asyncrevoke.core.partition.record_buffer import RecordBuffer
    from asyncrevoke.model import Record
    from asyncrevoke.protocol.records import CorruptBatch, RecordBatch

# One more than that would wait for the same interpreter lock.
_AT_ONCE = 2


class DecodeAhead:
    """Asks for large batches to be decoded, in the order in which their partitions came to them.

    Decoded, they take up to ``memory`` bytes together, or one does with more.
    """

    def __init__(self, outbox: Outbox, budget: FetchBudget, memory: int) -> None:
        self._outbox = outbox
        self._budget = budget
        self._memory = memory
        self._queue: dict[FetchSource, None] = {}
        self._running: dict[FetchSource, RecordBatch] = {}
        # Bytes of what is being decoded, and of what was and is not all taken.
        self._held: dict[FetchSource, int] = {}

    def want(self, source: FetchSource) -> None:
        """Its buffer has changed, and may wait now."""
        buffer = source.instance.buffer
        if buffer is not None and buffer.waits and source not in self._running:
            self._queue[source] = None

    def run(self) -> None:
        """Ask for what is wanted and has room; costs nothing when there is nothing."""
        while self._queue and len(self._running) < _AT_ONCE:
            source = next(iter(self._queue))
            buffer = source.instance.buffer
            if source.removed or buffer is None or not buffer.waits:
                del self._queue[source]
            elif self._has_room(buffer):
                self._ask(source, buffer)
            else:
                return

    def _has_room(self, buffer: RecordBuffer) -> bool:
        held, moves = 0, False
        for source, size in list(self._held.items()):
            if source in self._running or _holds_large(source):
                held += size
                # What is paused may hold its share for long: nobody waits for that.
                moves = moves or source.may_flow
            else:
                del self._held[source]
        return not moves or held + buffer.next_size <= self._memory

    def _ask(self, source: FetchSource, buffer: RecordBuffer) -> None:
        del self._queue[source]
        self._held[source] = buffer.next_size
        batch = self._running[source] = buffer.lend()
        self._budget.recount(source)
        self._outbox.decode(
            batch,
            buffer.partition,
            buffer.ledger_id,
            buffer.position,
            partial(self._decoded, source, buffer, batch),
        )

    def _decoded(
        self,
        source: FetchSource,
        buffer: RecordBuffer,
        batch: RecordBatch,
        _now: float,
        records: list[Record] | CorruptBatch,
    ) -> None:
        del self._running[source]
        if source.removed:
            return
        if source.instance.buffer is buffer and buffer.supply(batch, records):
            self._outbox.wake()
        else:
            # Sought elsewhere, or fetched again: what is there now has its turn.
            self.want(source)


def _holds_large(source: FetchSource) -> bool:
    buffer = source.instance.buffer
    return not source.removed and buffer is not None and buffer.holds_large
