"""Reads ranges as whole record batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.spark.reading.offsets import NO_PROGRESS_TIMEOUT
from asyncrevoke.spark.reading.range_reader import FETCH_BYTES, RangesReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.spark.reading.consumer_pool import ConsumerPool
    from asyncrevoke.spark.reading.offsets import OffsetRange
    from asyncrevoke.spark.reading.places import Missing

# About how many bytes of batches one read returns: those of a response. Each read takes some
# processor time, whatever its size.
_BYTES = FETCH_BYTES
_FIRST = 8
_MOST = 2000


class BatchReader(RangesReader):
    """A :class:`RangesReader` whose records are whole batches."""

    def __init__(
        self,
        config: ConsumerConfig,
        ranges: Sequence[OffsetRange],
        *,
        no_progress_timeout: float = NO_PROGRESS_TIMEOUT,
        missing: Missing = "error",
        consumers: ConsumerPool | None = None,
    ) -> None:
        super().__init__(
            config,
            ranges,
            no_progress_timeout=no_progress_timeout,
            most=_MOST,
            whole_batches=True,
            missing=missing,
            consumers=consumers,
        )
        self._at_once = _FIRST

    async def read_batches(self) -> Sequence[tuple[OffsetRange, Sequence[bytes | memoryview]]]:
        """The next batches of some ranges, decompressed. Empty only at the end of all ranges.

        The first batch may begin before the range, and the last may end after it. A range begins
        later than planned if ``missing="clip"`` has left out deleted offsets. If cancelled, no
        batch is lost.
        """
        read = [
            (wanted, [record.value for record in records if record.value is not None])
            for wanted, records in await self._next(self._at_once)
        ]
        sizes = [len(batch) for _, batches in read for batch in batches]
        if sizes:
            size = sum(sizes) // len(sizes)
            self._at_once = max(1, min(_BYTES // size, _MOST))
        return read
