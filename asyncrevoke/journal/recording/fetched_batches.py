"""Collects the checksums of record batches as they are decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.journal.recording.entries import Fetched, ReceivedBatches

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.client.protocol.messages import FetchedPartition
    from asyncrevoke.client.protocol.records import RecordBatch, RecordDecoder

# Batches that are queued together, at least.
_ENOUGH = 2048


class FetchedBatches:
    """Received batches, queued before any of their records is committed. ``added`` is called when
    there are some, ``enough`` when there are many: then :meth:`taken` is due."""

    def __init__(
        self, clock: Callable[[], int], added: Callable[[], object], enough: Callable[[], object]
    ) -> None:
        self._clock = clock
        self._added = added
        self._enough = enough
        self._fetched: list[Fetched] = []

    def decoder(self, decode: RecordDecoder) -> RecordDecoder:
        """A decoder that also collects the batches."""

        def recording(fetched: FetchedPartition, read_committed: bool, /) -> Sequence[RecordBatch]:
            batches = decode(fetched, read_committed)
            self._received(fetched.partition, batches)
            return batches

        return recording

    def _received(self, partition: TopicPartition, batches: Sequence[RecordBatch]) -> None:
        now = self._clock()
        topic, number = partition
        self._fetched += [
            Fetched(topic, number, b.base_offset, b.next_offset - 1, b.count, b.checksum, now)
            for b in batches
            if b.count  # empty batches have nothing to handle
        ]
        if len(self._fetched) >= _ENOUGH:
            self._enough()
        elif self._fetched:
            self._added()

    def taken(self) -> ReceivedBatches | None:
        """The batches since the last call; None if there are none."""
        if not self._fetched:
            return None
        received = ReceivedBatches(self._fetched, self._clock())
        self._fetched = []
        return received
