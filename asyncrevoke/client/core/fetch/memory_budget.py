"""How much is fetched ahead: water marks per partition, and bytes over all of them (KIP-81)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.model import TopicPartition, Value

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.fetch.cursor import PartitionCursor
    from asyncrevoke.client.core.io.outbox import Outbox
    from asyncrevoke.client.core.partition.record_buffer import RecordBuffer
    from asyncrevoke.client.protocol.messages import FetchResponse
    from asyncrevoke.client.protocol.receive_buffers import ReceiveBuffer

# Polls whose records are buffered ahead (KIP-41, heuristic 2).
_PREFETCH = 2
# A smaller fetch is not sent, unless the buffer is smaller still.
_SMALLEST_FETCH = 64 * 1024
# Seconds after which a response counts as kept for long.
_LONG = 60.0


class _Viewed(Value, frozen=True):
    """A response: its buffer, which use of the buffer it is, and since when."""

    buffer: ReceiveBuffer
    use: int
    since: float

    @property
    def is_in_use(self) -> bool:
        return self.buffer.uses == self.use and self.buffer.is_viewed


class ViewedResponses:
    """Fetch responses whose buffers are in use: batches or delivered values are views of them."""

    def __init__(self) -> None:
        # The oldest first.
        self._viewed: list[_Viewed] = []
        self._reported: _Viewed | None = None

    def add(self, now: float, buffer: ReceiveBuffer) -> None:
        """A response was received into this buffer."""
        self._viewed.append(_Viewed(buffer, buffer.uses, now))

    @property
    def size(self) -> int:
        """Bytes of the buffers that are in use."""
        self._drop_unused()
        return sum(len(response.buffer) for response in self._viewed)

    def is_kept_for_long(self, now: float) -> bool:
        """Whether a response is in use for a minute or longer."""
        if not self._has_old(now):
            return False
        self._drop_unused()
        return self._has_old(now)

    def _has_old(self, now: float) -> bool:
        return bool(self._viewed) and self._viewed[0].since + _LONG <= now

    def _drop_unused(self) -> None:
        if self._viewed:
            self._viewed = [response for response in self._viewed if response.is_in_use]

    def report(self) -> bool:
        """Whether to report the oldest one: True only the first time."""
        oldest = self._viewed[0] if self._viewed else None
        is_new = oldest is not self._reported
        self._reported = oldest
        return is_new and oldest is not None


class MemoryBudget:
    """Counts ``used`` bytes in buffers, and reserves bytes for responses under way.

    A response counts as a whole while a batch, or a value that was delivered, is a view of it.
    """

    def __init__(self, outbox: Outbox, config: ConsumerConfig) -> None:
        self._outbox = outbox
        self._config = config
        self._smallest = max(1, min(_SMALLEST_FETCH, config.buffer_memory // 16))
        self._reserved = 0
        # Bytes in the buffers of partitions, those of them that are in responses, and responses.
        self._buffered = self._viewed = 0
        # Records in the buffers of partitions, an estimate.
        self._records = 0
        self._responses = ViewedResponses()
        # Partitions with a batch that exceeded the limit.
        self._oversized: set[TopicPartition] = set()
        # Partitions with buffered bytes.
        self._holders = 0
        # How many records a poll takes if these are rows of columns.
        self.at_once: int | None = None
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
        self._low = max(1, -(-_PREFETCH * (self.at_once or config.max_poll_records) // sharers))
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
        self._count(cursor, cursor.instance.buffer)

    def forget(self, cursor: PartitionCursor) -> None:
        """Count the buffer of this cursor no longer."""
        self._count(cursor, None)

    def _count(self, cursor: PartitionCursor, buffer: RecordBuffer | None) -> None:
        size = viewed = records = 0
        if buffer is not None:
            size, viewed, records = buffer.size, buffer.viewed, buffer.buffered
        before, viewed_before, records_before = cursor.set_counted(size, viewed, records)
        self._buffered += size - before
        self._viewed += viewed - viewed_before
        self._records += records - records_before
        if (before == 0) is not (size == 0):
            self._holders += 1 if size else -1
            self._set_marks()

    def records_in(self, size: int) -> int:
        """About how many buffered records have ``size`` bytes together, by the average record."""
        return size * self._records // self._buffered if self._buffered else 0

    @property
    def records(self) -> int:
        """Records in the buffers of partitions, an estimate."""
        return self._records

    def poll_at_once(self, records: int) -> None:
        """Polls take so many records from now on: buffer enough for the next ones."""
        self.at_once = records
        self._set_marks()

    @property
    def used(self) -> int:
        """Bytes of records that were not delivered, and of responses with views."""
        return self._buffered - self._viewed + self._responses.size

    def received(
        self, now: float, response: FetchResponse, asked: Container[TopicPartition]
    ) -> None:
        """A response was received, to a fetch for the partitions ``asked``. Logs the first batch
        of a partition that exceeds the limit: a broker returns it all the same (KIP-74)."""
        if response.buffer is None:
            return
        self._responses.add(now, response.buffer)
        limit = self._config.max_partition_fetch_bytes
        for fetched in response.partitions:
            size, partition = len(fetched.records), fetched.partition
            if size > limit and partition in asked and partition not in self._oversized:
                self._oversized.add(partition)
                self._outbox.emit(
                    log_events.LARGE_BATCH_FETCHED,
                    partition=str(partition),
                    bytes=size,
                    limit=limit,
                )

    def release_responses(self, now: float, cursors: Iterable[PartitionCursor]) -> None:
        """Copy batches that keep responses in memory for long, or keep much more than their own
        size when the memory is used up. What is kept then are views that were delivered."""
        is_old = self._responses.is_kept_for_long(now)
        if self._viewed and (is_old or (self.is_exhausted and self._is_mostly_delivered)):
            for cursor in cursors:
                if (buffer := cursor.instance.buffer) is not None:
                    buffer.copy_views()
                self.recount(cursor)
        if is_old and self._responses.is_kept_for_long(now) and self._responses.report():
            self._outbox.emit(log_events.VIEWS_KEEP_MEMORY, bytes=self._responses.size)

    @property
    def _is_mostly_delivered(self) -> bool:
        """Whether most bytes of the responses do not wait to be delivered. Never with views of
        values: the application may have these bytes, and copies of the others free nothing."""
        return self._config.value_as == "bytes" and 2 * self._viewed < self._responses.size

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
        room = self._room
        if room < self._smallest:
            allowed = min(wanted, config.max_partition_fetch_bytes)
        else:
            allowed = min(wanted, room, self._node_share)
        self._reserved += allowed
        return allowed

    def release(self, reserved: int) -> None:
        """The fetch with this reservation is over."""
        self._reserved -= reserved
