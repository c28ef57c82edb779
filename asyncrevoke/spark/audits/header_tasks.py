"""The headers of a topic's record batches, read by tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.audit.topic.batch_headers import headers
from asyncrevoke.spark.reading.batch_reader import BatchReader
from asyncrevoke.spark.reading.offsets import OffsetRange
from asyncrevoke.spark.reading.read_ahead import read_ahead
from asyncrevoke.spark.source.options import SourceOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from asyncrevoke.spark.arrow import ArrowRecordBatch


class HeaderTask(NamedTuple):
    """A task that reads the headers of all batches that have an offset in its ranges. It may return
    some batches after them."""

    options: SourceOptions
    parts: Sequence[OffsetRange]

    def run(self, batches: Iterable[ArrowRecordBatch]) -> Iterator[ArrowRecordBatch]:
        """Read the ranges whose indices are in the column ``id``."""
        for batch in batches:
            for number in batch.column("id").to_pylist():
                part = self.parts[int(number)]
                reader = BatchReader(
                    self.options.config(),
                    [part],
                    no_progress_timeout=self.options.no_progress_timeout,
                )
                for read in read_ahead(reader, reader.read_batches):
                    for _, found in read:
                        yield headers(part.partition, found)
