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

    from asyncrevoke.spark.arrow import RecordBatch


class HeaderReading(NamedTuple):
    """What a task does: rows of ``BATCHES``, of all batches that have an offset in its parts,
    and of some behind them, perhaps."""

    options: SourceOptions
    parts: Sequence[OffsetRange]

    def run(self, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        """Read what the identifiers name."""
        for batch in batches:
            for number in batch.column("id").to_pylist():
                part = self.parts[int(number)]
                reader = BatchReader(
                    self.options.config(),
                    part,
                    no_progress_timeout=self.options.no_progress_timeout,
                )
                for found in read_ahead(reader, reader.read_batches):
                    yield headers(part.partition, found)
