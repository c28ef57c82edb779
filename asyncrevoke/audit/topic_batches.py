"""The headers of a topic's record batches, read as they are: no record is taken out of them."""

from __future__ import annotations

import asyncio
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, cast

from asyncrevoke.audit.batch_headers import headers
from asyncrevoke.audit.errors import TopicError
from asyncrevoke.consumer import Consumer
from asyncrevoke.model import TopicPartition
from asyncrevoke.runtime.opening import open_session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncrevoke.audit.comparison import Range
    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.journal.arrow import RecordBatch
    from asyncrevoke.runtime.session import Session

_FETCH = 8 * 2**20
_AT_ONCE = 500
_STEP = 0.25


class _Whole(Consumer):
    """Each of its records is a batch: the offset of its last record, its bytes as the value."""

    def _open(self) -> Session:
        return open_session(self._config, None, whole_batches=True)


async def read_headers(
    config: ConsumerConfig,
    topic: str,
    ranges: Sequence[Range],
    take: Callable[[RecordBatch], None],
    *,
    patience: float,
) -> None:
    """Give those of all batches that have an offset in these ranges to ``take``: columns of
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
    given: Any = {field.name: getattr(options, field.name) for field in fields(options)}
    ends = {TopicPartition(topic, each.partition): each.hi for each in ranges}
    async with _Whole(**given) as consumer:
        consumer.assign(list(ends))
        for each in ranges:
            consumer.seek(TopicPartition(topic, each.partition), each.lo)
        await _read(consumer, ends, take, patience)


async def _read(
    consumer: Consumer,
    ends: dict[TopicPartition, int],
    take: Callable[[RecordBatch], None],
    patience: float,
) -> None:
    loop = asyncio.get_running_loop()
    progress = loop.time()
    positions = dict.fromkeys(ends, -1)
    while ends:
        step = await consumer.poll(min(_STEP, patience))
        for partition, records in step.by_partition().items():
            if partition in ends:
                take(headers(partition.partition, [cast("bytes", r.value) for r in records]))
        for partition, end in list(ends.items()):
            position = consumer.position(partition)
            if position is not None and position > positions[partition]:
                positions[partition], progress = position, loop.time()
            if position is not None and position >= end:
                consumer.pause(partition)
                del ends[partition]
        if ends and loop.time() - progress > patience:
            partition, end = next(iter(ends.items()))
            raise TopicError(
                f"{partition.topic}-{partition.partition} gives nothing beyond offset "
                f"{positions[partition]}, and the journal goes to {end}: a transaction may be open "
                "there, or the consumers read with another isolation level"
            )
