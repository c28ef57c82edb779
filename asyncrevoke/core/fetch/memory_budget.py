"""How much is fetched ahead: water marks per partition, and bytes over all of them (KIP-81)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.core.fetch.cursor import PartitionCursor
    from asyncrevoke.core.partition.record_buffer import RecordBuffer

# Polls whose records are buffered ahead (KIP-41, heuristic 2).
_PREFETCH = 2
# A smaller fetch is not sent, unless the buffer is smaller still.
_SMALLEST_FETCH = 64 * 1024


class MemoryBudget:
    """Counts ``used`` bytes in buffers, and reserves bytes for responses under way."""

    def __init__(self, config: ConsumerConfig) -> None:
        self._config = config
        self._smallest = max(1, min(_SMALLEST_FETCH, config.buffer_memory // 16))
        self._reserved = 0
        self.used = 0
        # Partitions with buffered bytes.
        self._holders = 0
        self.share(1, 1)

    def share(self, partitions: int, nodes: int) -> None:
        """Set the water marks by the number of partitions and brokers."""
        self._partitions = partitions
        # Two fetches may be in flight to each broker.
        self._node_share = max(self._config.buffer_memory // (2 * max(nodes, 1)), self._smallest)
        self._set_marks()

    def _set_marks(self) -> None:
        # Quiet partitions need no share; one share is left for the next that gets records.
        sharers = max(min(self._partitions, self._holders + 1), 1)
        config = self._config
        memory = config.buffer_memory // sharers
        self._low = max(1, -(-_PREFETCH * config.max_poll_records // sharers))
        # The next fetch is sent when half of a response is used, or small records would leave the
        # application waiting for the broker each time.
        self._low_bytes = min(config.max_partition_fetch_bytes // 2, memory // 4)
        self._most_bytes = max(memory, 1)

    def needs_fetch(self, cursor: PartitionCursor, buffer: RecordBuffer) -> bool:
        """Whether to fetch it: from below the low mark until above the high one, twice that."""
        size, records = buffer.size, buffer.buffered
        if not records:
            cursor.set_filling(True)
        elif (
            cursor.out_of_range is buffer
            or size >= self._most_bytes
            or (records >= 2 * self._low and size >= 2 * self._low_bytes)
        ):
            cursor.set_filling(False)
        elif size * 2 < self._most_bytes and (records < self._low or size < self._low_bytes):
            cursor.set_filling(True)
        return cursor.filling

    def recount(self, cursor: PartitionCursor) -> None:
        """Count the buffer of this cursor again."""
        buffer = cursor.instance.buffer
        self._count(cursor, 0 if buffer is None else buffer.size)

    def forget(self, cursor: PartitionCursor) -> None:
        """Count the buffer of this cursor no longer."""
        self._count(cursor, 0)

    def _count(self, cursor: PartitionCursor, size: int) -> None:
        before = cursor.set_counted(size)
        self.used += size - before
        if (before == 0) is not (size == 0):
            self._holders += 1 if size else -1
            self._set_marks()

    @property
    def is_exhausted(self) -> bool:
        """Whether no fetch is sent until something is delivered."""
        return self._room < self._smallest

    @property
    def _room(self) -> int:
        return self._config.buffer_memory - self.used - self._reserved

    def reserve(self, partitions: int, widest: int | None = None) -> int:
        """Reserve the bytes that one fetch for so many partitions may bring, at most ``widest``.
        With the memory used up it is what one partition may bring, because partitions without
        records must go on."""
        config = self._config
        wanted = min(config.fetch_max_bytes, partitions * config.max_partition_fetch_bytes)
        if widest is not None:
            wanted = min(wanted, widest)
        if self.is_exhausted:
            allowed = min(wanted, config.max_partition_fetch_bytes)
        else:
            allowed = min(wanted, self._room, self._node_share)
        self._reserved += allowed
        return allowed

    def release(self, reserved: int) -> None:
        """The fetch with this reservation is over."""
        self._reserved -= reserved
