"""Tasks that compute the hashes or the fingerprints of a topic's records.

Both are made of whole record batches, with no object for any record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

import numpy as np

from asyncrevoke.audit.rules.views import SUMMED
from asyncrevoke.journal.format.hashing import (
    key_hashes,
    offset_hashes,
    record_hashes,
    signed_key_hashes,
)
from asyncrevoke.journal.format.schema import BUCKET
from asyncrevoke.spark.arrow import pa
from asyncrevoke.spark.reading.batch_columns import fields_of
from asyncrevoke.spark.reading.batch_reader import BatchReader
from asyncrevoke.spark.reading.offsets import OffsetRange
from asyncrevoke.spark.reading.read_ahead import read_ahead
from asyncrevoke.spark.source.options import SourceOptions

if TYPE_CHECKING:
    from array import array
    from collections.abc import Generator, Iterable, Iterator

    from numpy.typing import NDArray

    from asyncrevoke.spark.arrow import Array, ArrowRecordBatch, DataType
    from asyncrevoke.spark.reading.batch_columns import Fields, Places

    Contents: TypeAlias = list[bytes] | list[bytes | None]

RECORDS = "part INT, off BIGINT, timestamp_us BIGINT, key_hash BIGINT, record_hash BIGINT"
FINGERPRINTS = "part INT, bucket BIGINT, records BIGINT, mixed BIGINT, total BIGINT"


class HashTask(NamedTuple):
    """A task that reads ranges of a topic: hashes of its records if ``hashless`` is None, else
    fingerprints, which are made of offsets alone in the partitions ``hashless``."""

    options: SourceOptions
    parts: Sequence[OffsetRange]
    hashless: frozenset[int] | None

    def run(self, batches: Iterable[ArrowRecordBatch]) -> Iterator[ArrowRecordBatch]:
        """Read the ranges that the identifiers name."""
        for batch in batches:
            for number in batch.column("id").to_pylist():
                part = self.parts[int(number)]
                yield from (self._records if self.hashless is None else self._fingerprints)(part)

    def _fingerprints(self, part: OffsetRange) -> Generator[ArrowRecordBatch]:
        hashless = self.hashless is not None and part.partition in self.hashless
        buckets: dict[int, tuple[int, int, int]] = {}
        for data, fields in self._read(part):
            offsets = fields.offset
            hashes = offset_hashes(offsets.tolist()) if hashless else _hashes(data, fields)
            marks = np.frombuffer(hashes, np.uint64)
            numbers = offsets // BUCKET
            # Offsets rise.
            first, last = int(numbers[0]), int(numbers[-1])
            ends = numbers.searchsorted(np.arange(first, last + 1), "right").tolist()
            begin = 0
            for bucket, end in enumerate(ends, first):
                if end > begin:
                    _mix(buckets, bucket, marks[begin:end])
                begin = end
        counted = list(buckets.values())
        yield _batch(
            FINGERPRINTS,
            np.full(len(buckets), part.partition, np.int32),
            np.fromiter(buckets, np.int64),
            np.array([count for count, _, _ in counted], np.int64),
            np.array([mixed for _, mixed, _ in counted], np.uint64).view(np.int64),
            np.array([total for _, _, total in counted], np.int64),
        )

    def _records(self, part: OffsetRange) -> Generator[ArrowRecordBatch]:
        for data, fields in self._read(part):
            keys = _contents(data, fields.key)
            of_keys = key_hashes(keys)
            hashes = record_hashes(keys, _contents(data, fields.value), of_keys)
            yield _batch(
                RECORDS,
                np.full(len(fields.offset), part.partition, np.int32),
                fields.offset,
                fields.timestamp * 1000,
                signed_key_hashes(keys)
                if of_keys is None
                else np.array(of_keys, np.uint64).view(np.int64),
                np.frombuffer(hashes, np.int64),
            )

    def _read(self, part: OffsetRange) -> Generator[tuple[bytes | bytearray, Fields]]:
        reader = BatchReader(
            self.options.config(), part, no_progress_timeout=self.options.no_progress_timeout
        )
        for batches in read_ahead(reader, reader.read_batches):
            yield from fields_of(part, batches)


def _hashes(data: bytes | bytearray, fields: Fields) -> array[int]:
    keys = _contents(data, fields.key)
    return record_hashes(keys, _contents(data, fields.value), key_hashes(keys))


def _contents(data: bytes | bytearray, places: Places) -> Contents:
    # What is cut out of bytes is bytes.
    first = int(places.begin[0])
    piece = bytes(memoryview(data)[first : int(places.end[-1])])
    begins, ends = (places.begin - first).tolist(), (places.end - first).tolist()
    found = [piece[a:b] for a, b in zip(begins, ends, strict=True)]
    if not places.null.any():
        return found
    nulls = places.null.tolist()
    return [None if null else each for each, null in zip(found, nulls, strict=True)]


def _mix(buckets: dict[int, tuple[int, int, int]], bucket: int, marks: NDArray[np.uint64]) -> None:
    count, mixed, total = buckets.get(bucket, (0, 0, 0))
    buckets[bucket] = (
        count + len(marks),
        mixed ^ int(np.bitwise_xor.reduce(marks)),
        total + int((marks & np.uint64(SUMMED)).sum()),
    )


def _batch(
    schema: str, *columns: NDArray[np.int32] | NDArray[np.int64] | list[int | None]
) -> ArrowRecordBatch:
    declared = [column.split() for column in schema.split(", ")]
    types = {"INT": pa.int32(), "BIGINT": pa.int64()}
    arrays = [_column(types[kind], v) for v, (_, kind) in zip(columns, declared, strict=True)]
    names = [name for name, _ in declared]
    return cast("ArrowRecordBatch", pa.RecordBatch.from_arrays(arrays, names))


def _column(
    kind: DataType, values: NDArray[np.int32] | NDArray[np.int64] | list[int | None]
) -> Array:
    if isinstance(values, list):
        return cast("Array", pa.array(values, kind))
    # pa.array() imports pandas, which takes a worker 0.3 s.
    content = pa.py_buffer(np.ascontiguousarray(values))
    return cast("Array", pa.Array.from_buffers(kind, len(values), [None, content]))
