"""Reads the records of ranges of offsets."""

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

FETCH_BYTES = 10 * 1024 * 1024
# Bytes of a partition that are buffered in advance.
AHEAD = 64 * 1024 * 1024


class RangesReader:
    """Reads ranges of one topic, at most one of each partition, with one consumer; an async context
    manager.

    ``config`` has the addresses, the security and the isolation level. Its group is not used, and
    nothing is committed. A read returns at most ``most`` records. Raises DataLossError if an offset
    of a range was deleted, and StalledReadError after ``no_progress_timeout`` seconds without
    progress. For a record that cannot be read it raises UnreadableRecordError; with ``unreadable``
    it returns an ``UnreadableRecord`` as the last record of its partition in this read.

    ``consumers`` provides the connected consumer, and gets it back when all ranges were read to
    their ends. By default the consumer is closed.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        ranges: Sequence[OffsetRange],
        *,
        no_progress_timeout: float = NO_PROGRESS_TIMEOUT,
        most: int = MOST_RECORDS,
        whole_batches: bool = False,
        unreadable: bool = False,
        consumers: ConsumerPool | None = None,
    ) -> None:
        self._ranges = {each.topic_partition: each for each in ranges}
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
        first = ranges[0]
        self._kind = ConsumerKind(options, whole_batches, unreadable, first.topic, first.topic_id)
        self._consumers = consumers or ConsumerPool(0)

    async def __aenter__(self) -> Self:
        self._consumer = await self._consumers.take(self._kind)
        try:
            await self._check_log(self._consumer)
            wanted = {tp: range(each.start, each.end) for tp, each in self._ranges.items()}
            self._reader = Reader(self._consumer, wanted, self._no_progress_timeout)
            self._reader.begin()
        except BaseException:
            await self._consumer.aclose()
            raise
        return self

    async def _check_log(self, consumer: RangeConsumer) -> None:
        """Raise DataLossError if the topic was created again, or a first offset was deleted."""
        topic, planned = self._kind.topic, self._kind.topic_id
        if planned is not None:
            topics = await consumer.describe_topics([topic])
            check_topic_id(topic, planned, topics.get(topic))
        firsts = await consumer.beginning_offsets(*self._ranges)
        for tp, wanted in self._ranges.items():
            if wanted.start < firsts[tp] and wanted.size:
                raise DataLossError(
                    f"{tp} begins at offset {firsts[tp]}, after the planned start {wanted.start}: "
                    "retention has removed the records between; plan the ranges again"
                )

    async def __aexit__(self, *_error: object) -> None:
        if self.ended:
            await self._consumers.give_back(self._kind, self._consumer)
        else:
            await self._consumer.aclose()

    @property
    def ended(self) -> bool:
        """Whether all ranges were read to their ends."""
        return not self._reader.left

    async def read_ranges(self) -> Sequence[tuple[OffsetRange, Sequence[Record]]]:
        """The next records of some ranges, in the order of offsets. Empty only at the end of all
        ranges.

        If cancelled, no record is lost.
        """
        while step := await self._next(None):
            within = [(each, _within(each, records)) for each, records in step]
            if read := [(each, records) for each, records in within if records]:
                return read
        return ()

    async def _next(self, most: int | None) -> Sequence[tuple[OffsetRange, Sequence[Record]]]:
        """The next records. Some may be beyond the end of their range. Empty only at the end of all
        ranges."""
        if self.ended:
            return ()
        positions = self._reader.positions
        try:
            step = await self._reader.next(most)
        except OffsetOutOfRangeError as error:
            tp = min(error.partitions)
            raise DataLossError(
                f"{tp} has no offset {positions[tp]}: retention has removed it, or the topic was "
                "created again; plan the ranges again"
            ) from error
        if step is None:
            raise StalledReadError(self._stalled())
        if step.lost:
            tp = min(step.lost)
            raise DataLossError(
                f"the topic of {tp} was deleted, and perhaps created again, while offset "
                f"{positions[tp]} was read: plan the ranges again"
            )
        return [(self._ranges[tp], records) for tp, records in step.by_partition().items()]

    def _stalled(self) -> str:
        tp, end = min(self._reader.left.items())
        return (
            f"{tp} has made no progress at offset {self._reader.positions[tp]} of {end} for "
            f"{self._no_progress_timeout:g} s: no broker returns its records (see the log), or a "
            "transaction is open; resolve_ranges() plans ends before open transactions"
        )


class RangeReader(RangesReader):
    """Reads one range. See :class:`RangesReader`."""

    def __init__(
        self,
        config: ConsumerConfig,
        wanted: OffsetRange,
        *,
        no_progress_timeout: float = NO_PROGRESS_TIMEOUT,
        most: int = MOST_RECORDS,
        unreadable: bool = False,
        consumers: ConsumerPool | None = None,
    ) -> None:
        super().__init__(
            config,
            (wanted,),
            no_progress_timeout=no_progress_timeout,
            most=most,
            unreadable=unreadable,
            consumers=consumers,
        )

    async def read(self) -> Sequence[Record]:
        """The next records. Empty only at the end of the range.

        If cancelled, no record is lost.
        """
        for _, records in await self.read_ranges():
            return records
        return ()


def _within(wanted: OffsetRange, records: Sequence[Record]) -> Sequence[Record]:
    if records and records[-1].offset >= wanted.end:
        return [each for each in records if each.offset < wanted.end]
    return records


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
