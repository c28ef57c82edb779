"""Tasks that compute the hashes or the fingerprints of a topic's records.

They read whole record batches and create no object for a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import numpy as np

from asyncrevoke.audit.rules.views import SUMMED
from asyncrevoke.audit.topic.record_hashes import columns, content_hashes, record_columns
from asyncrevoke.journal.format.hashing import offset_hashes
from asyncrevoke.journal.format.schema import BUCKET
from asyncrevoke.ranges.record_fields import fields_of
from asyncrevoke.spark.reading.batch_reader import BatchReader
from asyncrevoke.spark.reading.offsets import OffsetRange
from asyncrevoke.spark.reading.read_ahead import read_ahead
from asyncrevoke.spark.source.options import SourceOptions

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from numpy.typing import NDArray

    from asyncrevoke.ranges.record_fields import Fields
    from asyncrevoke.spark.arrow import ArrowRecordBatch

FINGERPRINTS: Final = {
    "part": "INT",
    "bucket": "BIGINT",
    "records": "BIGINT",
    "mixed": "BIGINT",
    "total": "BIGINT",
}
"""The columns of a table of fingerprints."""


class HashTask(NamedTuple):
    """A task that reads ranges of a topic.

    It computes hashes of records if ``hashless`` is None, otherwise fingerprints. In the partitions
    ``hashless``, fingerprints are made of offsets alone.
    """

    options: SourceOptions
    parts: Sequence[OffsetRange]
    hashless: frozenset[int] | None

    def run(self, batches: Iterable[ArrowRecordBatch]) -> Iterator[ArrowRecordBatch]:
        """Read the ranges whose indices are in the column ``id``."""
        for batch in batches:
            for number in batch.column("id").to_pylist():
                part = self.parts[int(number)]
                yield from (self._records if self.hashless is None else self._fingerprints)(part)

    def _fingerprints(self, part: OffsetRange) -> Generator[ArrowRecordBatch]:
        hashless = self.hashless is not None and part.partition in self.hashless
        buckets: dict[int, tuple[int, int, int]] = {}
        for data, fields in self._read(part):
            offsets = fields.offset
            hashes = offset_hashes(offsets.tolist()) if hashless else content_hashes(data, fields)
            marks = np.frombuffer(hashes, np.uint64)
            numbers = offsets // BUCKET
            # Offsets are in ascending order.
            first, last = int(numbers[0]), int(numbers[-1])
            ends = numbers.searchsorted(np.arange(first, last + 1), "right").tolist()
            begin = 0
            for bucket, end in enumerate(ends, first):
                if end > begin:
                    _mix(buckets, bucket, marks[begin:end])
                begin = end
        counted = list(buckets.values())
        found = columns(
            FINGERPRINTS,
            np.full(len(buckets), part.partition, np.int32),
            np.fromiter(buckets, np.int64),
            np.array([count for count, _, _ in counted], np.int64),
            np.array([mixed for _, mixed, _ in counted], np.uint64).view(np.int64),
            np.array([total for _, _, total in counted], np.int64),
        )
        yield cast("ArrowRecordBatch", found)

    def _records(self, part: OffsetRange) -> Generator[ArrowRecordBatch]:
        for data, fields in self._read(part):
            yield cast("ArrowRecordBatch", record_columns(part.partition, data, fields))

    def _read(self, part: OffsetRange) -> Generator[tuple[bytes | bytearray, Fields]]:
        reader = BatchReader(
            self.options.config(), [part], no_progress_timeout=self.options.no_progress_timeout
        )
        for read in read_ahead(reader, reader.read_batches):
            for _, batches in read:
                yield from fields_of(part.topic_partition, range(part.start, part.end), batches)


def _mix(buckets: dict[int, tuple[int, int, int]], bucket: int, marks: NDArray[np.uint64]) -> None:
    count, mixed, total = buckets.get(bucket, (0, 0, 0))
    buckets[bucket] = (
        count + len(marks),
        mixed ^ int(np.bitwise_xor.reduce(marks)),
        total + int((marks & np.uint64(SUMMED)).sum()),
    )
