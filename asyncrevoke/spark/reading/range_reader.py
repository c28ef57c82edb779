"""Reads the records of one range of offsets."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Self

from asyncrevoke.errors import OffsetOutOfRangeError
from asyncrevoke.ranges.reader import Reader
from asyncrevoke.spark.errors import DataLossError, StalledReadError
from asyncrevoke.spark.reading.consumer_pool import ConsumerKind, ConsumerPool
from asyncrevoke.spark.reading.log_bounds import shown_topic_id
from asyncrevoke.spark.reading.offsets import configured

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.core.queries.topic_description import TopicDescription
    from asyncrevoke.model import Record
    from asyncrevoke.ranges.range_consumer import RangeConsumer
    from asyncrevoke.spark.reading.offsets import OffsetRange

MOST_RECORDS = 1000
NO_PROGRESS_TIMEOUT = 120.0

FETCH_BYTES = 8 * 1024 * 1024
# Bytes of a partition that are buffered in advance.
AHEAD = 32 * 1024 * 1024


class RangeReader:
    """Reads one range; an async context manager.

    ``config`` has the addresses, the security and the isolation level. Its group is not used, and
    nothing is committed. A read returns at most ``most`` records. Raises DataLossError if an offset
    of the range was deleted, and StalledReadError after ``no_progress_timeout`` seconds without
    progress. For a record that cannot be read it raises UnreadableRecordError; with ``unreadable``
    it returns an ``UnreadableRecord`` as the last record of a read.

    ``consumers`` provides the connected consumer, and gets it back when the range was read to its
    end. By default the consumer is closed.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        wanted: OffsetRange,
        *,
        no_progress_timeout: float = NO_PROGRESS_TIMEOUT,
        most: int = MOST_RECORDS,
        whole_batches: bool = False,
        unreadable: bool = False,
        consumers: ConsumerPool | None = None,
    ) -> None:
        self._range = wanted
        self._partition = wanted.topic_partition
        self._no_progress_timeout = no_progress_timeout
        options = replace(
            configured(config, config.isolation_level),
            auto_offset_reset="error",
            max_poll_records=most,
            max_in_flight=2 * most,
            fetch_max_bytes=FETCH_BYTES,
            max_partition_fetch_bytes=FETCH_BYTES,
            buffer_memory=AHEAD,
        )
        self._kind = ConsumerKind(options, whole_batches, unreadable, wanted.topic, wanted.topic_id)
        self._consumers = consumers or ConsumerPool(0)

    async def __aenter__(self) -> Self:
        self._consumer = await self._consumers.take(self._kind)
        try:
            await self._check_log(self._consumer)
            offsets = range(self._range.start, self._range.end)
            wanted = {self._partition: offsets}
            self._reader = Reader(self._consumer, wanted, self._no_progress_timeout)
            self._reader.begin()
        except BaseException:
            await self._consumer.aclose()
            raise
        return self

    async def _check_log(self, consumer: RangeConsumer) -> None:
        """Raise DataLossError if the topic was created again, or the first offset was deleted."""
        wanted = self._range
        if wanted.topic_id is not None:
            topics = await consumer.describe_topics([wanted.topic])
            check_topic_id(wanted.topic, wanted.topic_id, topics.get(wanted.topic))
        first = (await consumer.beginning_offsets(self._partition))[self._partition]
        if wanted.start < first and wanted.size:
            raise DataLossError(
                f"{self._name} begins at offset {first}, after the planned start {wanted.start}: "
                "retention has removed the records between; plan the ranges again"
            )

    async def __aexit__(self, *_error: object) -> None:
        if self.ended:
            await self._consumers.give_back(self._kind, self._consumer)
        else:
            await self._consumer.aclose()

    @property
    def ended(self) -> bool:
        """Whether the range was read to its end."""
        return not self._reader.left

    @property
    def position(self) -> int:
        """The next offset to read."""
        return self._reader.positions[self._partition]

    async def read(self) -> Sequence[Record]:
        """The next records. Empty only at the end of the range.

        If cancelled, no record is lost.
        """
        records = await self._next(None)
        if records and records[-1].offset >= self._range.end:
            return [each for each in records if each.offset < self._range.end]
        return records

    async def _next(self, most: int | None) -> Sequence[Record]:
        """The next records. Some may be beyond the end of the range. Empty only at its end."""
        if self.ended:
            return ()
        try:
            step = await self._reader.next(most)
        except OffsetOutOfRangeError as error:
            raise DataLossError(
                f"{self._name} has no offset {self.position}: retention has removed it, or the "
                "topic was created again; plan the ranges again"
            ) from error
        if step is None:
            raise StalledReadError(self._stalled())
        if step.lost:
            raise DataLossError(
                f"the topic of {self._name} was deleted, and perhaps created again, while offset "
                f"{self.position} was read: plan the ranges again"
            )
        return step.records

    def _stalled(self) -> str:
        return (
            f"{self._name} has made no progress at offset {self.position} of {self._range.end} for "
            f"{self._no_progress_timeout:g} s: no broker returns its records (see the log), or a "
            "transaction is open; resolve_ranges() plans ends before open transactions"
        )

    @property
    def _name(self) -> str:
        return f"{self._range.topic}-{self._range.partition}"


def check_topic_id(topic: str, planned: str, found: TopicDescription | None) -> None:
    """Raise DataLossError if a topic was deleted since its ranges were planned. Not checked if the
    broker reports no topic id."""
    now = None if found is None else shown_topic_id(found.topic_id)
    if found is None or now not in (None, planned):
        happened = "deleted" if found is None else "deleted and created again"
        raise DataLossError(
            f"topic {topic} was {happened} after its ranges were planned (its id was {planned}"
            f"{'' if found is None else f', and is {now}'}): plan the ranges again"
        )
