"""Reads one range as whole record batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.spark.reading.range_reader import NO_PROGRESS_TIMEOUT, RangeReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.spark.reading.consumer_pool import ConsumerPool
    from asyncrevoke.spark.reading.offsets import OffsetRange

# About how many bytes of batches one read returns.
_BYTES = 4 * 1024 * 1024
_FIRST = 8
_MOST = 2000


class BatchReader(RangeReader):
    """A :class:`RangeReader` whose records are whole batches."""

    def __init__(
        self,
        config: ConsumerConfig,
        wanted: OffsetRange,
        *,
        no_progress_timeout: float = NO_PROGRESS_TIMEOUT,
        consumers: ConsumerPool | None = None,
    ) -> None:
        super().__init__(
            config,
            wanted,
            no_progress_timeout=no_progress_timeout,
            most=_MOST,
            whole_batches=True,
            consumers=consumers,
        )
        self._at_once = _FIRST

    async def read_batches(self) -> Sequence[bytes | memoryview]:
        """The next batches, decompressed. Empty only at the end of the range.

        The first batch may begin before the range, and the last may end after it. If cancelled, no
        batch is lost.
        """
        records = await self._next(self._at_once)
        batches = [each.value for each in records if each.value is not None]
        if batches:
            size = sum(map(len, batches)) // len(batches)
            self._at_once = max(1, min(_BYTES // size, _MOST))
        return batches
