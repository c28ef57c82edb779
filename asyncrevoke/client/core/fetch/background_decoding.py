"""Large batches are decoded in a thread, a few at a time.

Unpacking and decoding tens of megabytes would block the event loop, and with it the heartbeats. So
a partition whose next batch is large waits for it, while the others are delivered. Its next large
batch is decoded while the records of this one are handled, as far as the memory allows.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.core.fetch.cursor import PartitionCursor
    from asyncrevoke.client.core.fetch.memory_budget import MemoryBudget
    from asyncrevoke.client.core.io.outbox import Outbox
    from asyncrevoke.client.core.partition.record_buffer import RecordBuffer
    from asyncrevoke.client.model import Record
    from asyncrevoke.client.protocol.records import CorruptBatch, RecordBatch

# More would wait for the same interpreter lock.
_AT_ONCE = 2


class BackgroundDecoding:
    """Has large batches decoded, in the order in which their partitions reach them. Decoded batches
    take up to ``memory`` bytes together, or a single one takes more."""

    def __init__(self, outbox: Outbox, budget: MemoryBudget, memory: int) -> None:
        self._outbox = outbox
        self._budget = budget
        self._memory = memory
        self._queue: dict[PartitionCursor, None] = {}
        self._running: dict[PartitionCursor, RecordBatch] = {}
        # Bytes of each batch that is being decoded, or is decoded and not taken completely.
        self._held: dict[PartitionCursor, int] = {}

    def buffer_changed(self, cursor: PartitionCursor) -> None:
        """Queue it if its buffer awaits decoding now."""
        buffer = cursor.instance.buffer
        if buffer is not None and buffer.awaits_decoding and cursor not in self._running:
            self._queue[cursor] = None

    def run(self) -> None:
        """Have queued batches decoded as far as there is room."""
        while self._queue and len(self._running) < _AT_ONCE:
            cursor = next(iter(self._queue))
            buffer = cursor.instance.buffer
            if cursor.removed or buffer is None or not buffer.awaits_decoding:
                del self._queue[cursor]
            elif self._has_room(buffer):
                self._ask(cursor, buffer)
            else:
                return

    def _has_room(self, buffer: RecordBuffer) -> bool:
        held, moves = 0, False
        for cursor, size in list(self._held.items()):
            if cursor in self._running or _holds_large(cursor):
                held += size
                # A paused partition may keep its share for long: nothing waits for that.
                moves = moves or cursor.is_active
            else:
                del self._held[cursor]
        return not moves or held + buffer.next_size <= self._memory

    def _ask(self, cursor: PartitionCursor, buffer: RecordBuffer) -> None:
        del self._queue[cursor]
        self._held[cursor] = buffer.next_size
        batch = self._running[cursor] = buffer.start_background_decode()
        self._budget.recount(cursor)
        self._outbox.decode(
            batch,
            buffer.partition,
            buffer.tracker_id,
            buffer.position,
            partial(self._decoded, cursor, buffer, batch),
        )

    def _decoded(
        self,
        cursor: PartitionCursor,
        buffer: RecordBuffer,
        batch: RecordBatch,
        _now: float,
        records: Sequence[Record] | CorruptBatch,
    ) -> None:
        del self._running[cursor]
        if cursor.removed:
            return
        if cursor.instance.buffer is buffer and buffer.set_decoded(batch, records):
            self._outbox.wake()
        else:
            # It was sought, or fetched again: its present buffer is queued anew.
            self.buffer_changed(cursor)


def _holds_large(cursor: PartitionCursor) -> bool:
    buffer = cursor.instance.buffer
    return not cursor.removed and buffer is not None and buffer.holds_large
