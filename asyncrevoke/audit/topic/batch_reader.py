"""Reads the headers of a topic's record batches without decoding records."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from asyncrevoke.audit.errors import TopicError, nothing_beyond
from asyncrevoke.audit.topic.batch_headers import headers
from asyncrevoke.model import TopicPartition
from asyncrevoke.ranges.consumers import consumer_of
from asyncrevoke.ranges.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncrevoke.audit.comparison import Range
    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.journal.format.arrow import RecordBatch

_FETCH = 8 * 2**20
_AT_ONCE = 500


async def read_headers(
    config: ConsumerConfig,
    topic: str,
    ranges: Sequence[Range],
    take: Callable[[RecordBatch], None],
    *,
    no_progress_timeout: float,
) -> None:
    """Pass the headers of all batches that have an offset in these ranges to ``take``: columns of
    ``BATCHES``. The ranges are of different partitions. Raises TopicError."""
    options = replace(
        config,
        group_id=None,
        auto_offset_reset="error",
        max_poll_records=_AT_ONCE,
        max_in_flight=2 * _AT_ONCE,
        fetch_max_bytes=4 * _FETCH,
        max_partition_fetch_bytes=_FETCH,
    )
    wanted = {TopicPartition(topic, each.partition): range(each.lo, each.hi) for each in ranges}
    async with consumer_of(options, whole_batches=True) as consumer:
        reader = Reader(consumer, wanted, no_progress_timeout)
        reader.begin()
        while reader.left:
            step = await reader.next()
            if step is None:
                (partition, end), *_ = reader.left.items()
                raise nothing_beyond(partition, reader.positions[partition], end)
            if step.lost:
                raise TopicError(
                    f"{topic} was deleted, or made anew, while it was read: what the consumers "
                    "have read is gone"
                )
            for partition, records in step.by_partition().items():
                take(headers(partition.partition, [cast("bytes", r.value) for r in records]))
