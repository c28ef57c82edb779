"""Reads the records of ranges of offsets."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from asyncrevoke.client import log_events
from asyncrevoke.client.errors import AsyncRevokeError, OffsetOutOfRangeError
from asyncrevoke.client.runtime.hooks.event_log import EventLog
from asyncrevoke.replays.ranges.reader import Reader
from asyncrevoke.spark.errors import DataLossError, StalledReadError
from asyncrevoke.spark.reading.log_bounds import shown_topic_id
from asyncrevoke.spark.reading.offsets import NO_PROGRESS_TIMEOUT, OffsetRange, configured
from asyncrevoke.spark.reading.worker import ConsumerKind, ConsumerPool

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.queries.offset_queries import TopicDescription
    from asyncrevoke.client.model import PollResult, Record, TopicPartition
    from asyncrevoke.replays.ranges.range_consumer import RangeConsumer
    from asyncrevoke.spark.reading.places import Missing


MOST_RECORDS = 1000

FETCH_BYTES = 10 * 1024 * 1024
# Bytes of a partition that are buffered in advance.
AHEAD = 64 * 1024 * 1024


class RangesReader:
    """Reads ranges of one topic, at most one of each partition, with one consumer; an async context
    manager.

    ``config`` has the addresses, the security and the isolation level. Its group is not used, and
    nothing is committed. A read returns at most ``most`` records.

    If retention has removed offsets of a range, DataLossError is raised; with ``missing="clip"`` a
    warning is logged, and the range is read from the first offset that is left. A topic that was
    deleted is always a DataLossError. Raises StalledReadError after ``no_progress_timeout`` seconds
    without progress. For a record that cannot be read it raises UnreadableRecordError; with
    ``unreadable`` it returns an ``UnreadableRecord`` as the last record of its partition in this
    read.

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
        missing: Missing = "error",
        consumers: ConsumerPool | None = None,
    ) -> None:
        self._ranges = {offset_range.topic_partition: offset_range for offset_range in ranges}
        self._no_progress_timeout = no_progress_timeout
        self._missing = missing
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
            await self._check_topic(self._consumer)
            wanted = {
                tp: range(offset_range.start, offset_range.end)
                for tp, offset_range in self._ranges.items()
                if offset_range.size
            }
            self._reader = Reader(self._consumer, wanted, self._no_progress_timeout)
            self._reader.begin()
        except BaseException:
            await self._consumer.aclose()
            raise
        return self

    async def _check_topic(self, consumer: RangeConsumer) -> None:
        """Raise DataLossError if the topic or a partition does not exist, or if the topic was
        created again."""
        name = self._kind.topic
        found = (await consumer.describe_topics([name])).get(name)
        check_topic_id(name, self._kind.topic_id, found)
        check_partitions(self._ranges.values(), found)

    def _clip(self, tp: TopicPartition, position: int, first: int) -> int:
        """Let the range of a partition begin at ``first``, or be empty if it ends before. Returns
        its new start."""
        wanted = self._ranges[tp]
        start = min(first, wanted.end)
        self._ranges[tp] = wanted._replace(start=start)
        log_events.PLANNED_RECORDS_DELETED.write_to(
            EventLog(), partition=str(tp), position=position, start=first, missing=start - position
        )
        return start

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
            within = [(batch, _within(batch, records)) for batch, records in step]
            if read := [(batch, records) for batch, records in within if records]:
                return read
        return ()

    async def _next(self, most: int | None) -> Sequence[tuple[OffsetRange, Sequence[Record]]]:
        """The next records. Some may be beyond the end of their range. Empty only at the end of all
        ranges."""
        if self.ended:
            return ()
        step = await self._step(most)
        if step is None:
            raise StalledReadError(await self._stalled())
        if step.lost:
            tp = min(step.lost)
            raise DataLossError(
                f"the topic of {tp} was deleted, and perhaps created again, while offset "
                f"{self._reader.positions[tp]} was read: plan the ranges again"
            )
        return [(self._ranges[tp], records) for tp, records in step.by_partition().items()]

    async def _step(self, most: int | None) -> PollResult | None:
        while True:
            try:
                return await self._reader.next(most)
            except OffsetOutOfRangeError as error:
                await self._clip_deleted(error)

    async def _clip_deleted(self, failure: OffsetOutOfRangeError) -> None:
        """Continue at the first offsets of these partitions. Raises DataLossError unless
        ``missing="clip"``, and if a log does not begin after the position."""
        firsts = await self._consumer.beginning_offsets(*failure.partitions)
        for tp, first in sorted(firsts.items()):
            position = self._consumer.position(tp)
            if position is None or position >= first:
                raise DataLossError(
                    f"{tp} has no offset {self._reader.positions[tp]}, and begins at {first}: its "
                    "log was truncated, or the topic was created again; plan the ranges again"
                ) from failure
            if self._missing == "error":
                raise DataLossError(
                    f"{tp} begins at offset {first}, after the planned offset {position}: retention"
                    " has removed the records between; plan the ranges again, with "
                    'missing="clip" (failOnDataLoss="false") to read the records that are left'
                ) from failure
            self._consumer.seek(tp, self._clip(tp, position, first))

    async def _stalled(self) -> str:
        tp, end = min(self._reader.left.items())
        at = self._reader.positions[tp]
        why = "no broker returns its records: see the log"
        with suppress(AsyncRevokeError):  # no broker tells more
            last = (await self._consumer.end_offsets(tp))[tp]
            if at >= last:
                why = (
                    f"no record can be read from offset {last} on, where its log ends or a "
                    "transaction is open; end ranges there, as resolve_ranges() does"
                )
        return (
            f"{tp} has made no progress at offset {at} of {end} for "
            f"{self._no_progress_timeout:g} s: {why}"
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
        missing: Missing = "error",
        consumers: ConsumerPool | None = None,
    ) -> None:
        super().__init__(
            config,
            (wanted,),
            no_progress_timeout=no_progress_timeout,
            most=most,
            unreadable=unreadable,
            missing=missing,
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
        return [record for record in records if record.offset < wanted.end]
    return records


def check_topic_id(topic: str, planned: str | None, found: TopicDescription | None) -> None:
    """Raise DataLossError if a topic was deleted since its ranges were planned. The id is not
    compared if ``planned`` is None or the broker reports none."""
    now = None if found is None else shown_topic_id(found.topic_id)
    if planned is not None and (found is None or now not in (None, planned)):
        happened = "deleted" if found is None else "deleted and created again"
        raise DataLossError(
            f"topic {topic} was {happened} after its ranges were planned (its id was {planned}"
            f"{'' if found is None else f', and is {now}'}): plan the ranges again"
        )


def check_partitions(ranges: Iterable[OffsetRange], found: TopicDescription | None) -> None:
    """Raise DataLossError if one of these ranges of a topic is of a partition that does not exist.
    ``found`` is None if there is no such topic."""
    for wanted in ranges:
        if found is None:
            raise DataLossError(
                f"there is no topic {wanted.topic}, whose partition {wanted.partition} is to be "
                f"read from offset {wanted.start} on, or this user may not describe it: check the "
                "name and the address, or plan the ranges again"
            )
        if wanted.partition not in found.partitions:
            raise DataLossError(
                f"topic {wanted.topic} has {len(found.partitions)} partitions, none with the number"
                f" {wanted.partition}, which is to be read from offset {wanted.start} on: correct "
                "the ranges, or plan them again if the topic was created again"
            )


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
