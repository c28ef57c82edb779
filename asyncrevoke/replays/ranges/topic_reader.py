"""Reads topics from a time of the past to another one, or to their present end."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self, TypeAlias, Unpack

from asyncrevoke.client.config import ConsumerConfig, ConsumerOptions
from asyncrevoke.client.config.checks import time_ago
from asyncrevoke.client.config.topics import check_topics
from asyncrevoke.client.errors import (
    ConfigError,
    IllegalStateError,
    PartitionLostError,
    RequestTimeoutError,
)
from asyncrevoke.client.model import PollResult, Record, TopicPartition
from asyncrevoke.client.printable import shown_option, some_names
from asyncrevoke.client.runtime.arrow.arrow_options import ArrowOptions
from asyncrevoke.client.runtime.session.partition_calls import to_timestamp
from asyncrevoke.replays.ranges.range_consumer import RangeConsumer, consumer_of
from asyncrevoke.replays.ranges.reader import Reader

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from asyncrevoke.client.core.poll.large_polls import LargePoll


Moment: TypeAlias = datetime | timedelta
"""A time with a time zone, or how long ago."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OFFSET = attrgetter("offset")
_OUTSIDE = "a TopicReader is used inside `async with`"


class TopicReader:
    """Reads the records of topics in a range of time, without a group.

    ::

        async with TopicReader("orders", since=timedelta(days=1)) as reader:
            async for batch in reader:
                for record in batch.records:
                    print(record.offset, record.value)

    In each partition, reading begins at the first record at or after ``since`` (None: at the start
    of the log), and ends before the first record at or after ``until`` (None: at the end that the
    log has on entering; with ``read_committed`` the last stable offset). Both are datetimes with a
    time zone, or timedeltas: how long ago. A range of offsets is read whole, so with timestamps of
    producers it may have some records of other times. If brokers look ``since`` up only
    approximately, older records are left out until the first one at or after it; ``until`` may
    then lie before records of the range.

    ``options`` are those of ``Consumer``; nothing is committed, and ``group_id`` is refused. If
    retention removes records of the range meanwhile, reading goes on at the start of the log, or
    with ``auto_offset_reset="error"`` raises OffsetOutOfRangeError.

    Entering raises ConfigError if a topic does not exist, and what ``Consumer`` raises. A step
    raises PartitionLostError if a topic is deleted, and RequestTimeoutError after
    ``no_progress_timeout`` seconds in which no position has moved. Cancelling a step loses no
    record. One task at a time may iterate, once.
    """

    def __init__(
        self,
        *topics: str,
        since: Moment | None = None,
        until: Moment | None = None,
        no_progress_timeout: float = 120.0,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        config = ConsumerConfig.from_options(**options)
        self.topics = check_topics(topics, "TopicReader")
        if not self.topics:
            raise ConfigError("TopicReader needs a topic")
        if config.group_id is not None:
            raise ConfigError(
                f"group_id={shown_option(config.group_id)}: a TopicReader has no group and commits "
                "nothing; leave group_id out, or use a Consumer"
            )
        if config.auto_offset_reset not in ("earliest", "error"):
            raise ConfigError(
                f"auto_offset_reset={shown_option(config.auto_offset_reset)} would skip records: "
                'use "earliest" or "error", and since= for where to begin'
            )
        if no_progress_timeout <= 0:
            raise ConfigError(f"no_progress_timeout={no_progress_timeout}: more than 0 seconds")
        self._config = replace(config, group_instance_id=None)
        self._since = _checked("since", since)
        self._until = _checked("until", until)
        self._no_progress_timeout = no_progress_timeout
        self._ranges: Mapping[TopicPartition, range] = {}
        # The time (ms) by which the start of a range was looked up.
        self._times: dict[TopicPartition, int] = {}
        self._consumer: RangeConsumer | None = None
        self._reader: Reader | None = None

    def __repr__(self) -> str:
        """The topics, the addresses and the state."""
        left = "not entered" if not self._ranges else "closed"
        servers = some_names(self._config.bootstrap_servers)
        state = left if self._reader is None else "entered"
        return f"<TopicReader of {some_names(self.topics)} at {servers}: {state}>"

    @property
    def ranges(self) -> Mapping[TopicPartition, range]:
        """The offsets that are read of each partition, known once it is entered; some may have no
        record."""
        return self._ranges

    async def __aenter__(self) -> Self:
        consumer = consumer_of(self._config)
        await consumer.start()
        try:
            self._ranges = await self._find_ranges(consumer)
        except BaseException:
            await consumer.aclose()
            raise
        self._consumer = consumer
        self._reader = Reader(consumer, self._ranges, self._no_progress_timeout)
        self._reader.begin()
        consumer.leave_out_older(self._times)
        return self

    async def __aexit__(self, *_error: object) -> None:
        consumer, self._consumer, self._reader = self._consumer, None, None
        if consumer is not None:
            await consumer.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> PollResult:
        """The next records."""
        step = await self._next()
        if step is None:
            raise StopAsyncIteration
        return step

    async def arrow_batches(
        self,
        columns: Sequence[str] | None = None,
        max_records: int | None = None,
        max_wait: float = 0.0,
    ) -> AsyncGenerator[Any]:
        """The records in columns: each step gives a ``pyarrow.RecordBatch``. See
        :meth:`Consumer.arrow_batches` for the options, and what a step returns."""
        if self._consumer is None:
            raise IllegalStateError(_OUTSIDE)
        steps = self._consumer.arrow_steps(ArrowOptions(columns, max_records, max_wait))
        large = await steps.prepare()
        while (step := await self._next(large)) is not None:
            for batch in steps.batches(step):
                yield batch.records

    async def _next(self, large: LargePoll | None = None) -> PollResult | None:
        """The next records; None at the end."""
        reader = self._reader
        if reader is None:
            raise IllegalStateError(_OUTSIDE)
        while reader.left:
            step = await reader.next(large=large)
            if step is None:
                raise RequestTimeoutError(reader.no_progress())
            if step.lost:
                raise PartitionLostError(step.lost)
            slices = {
                partition: found
                for partition, records in step.by_partition().items()
                if (found := _before(records, self._ranges[partition].stop))
            }
            if slices:
                return PollResult(slices)
        return None

    async def _find_ranges(self, consumer: RangeConsumer) -> dict[TopicPartition, range]:
        described = await consumer.describe_topics(self.topics)
        missing = [topic for topic in self.topics if topic not in described]
        if missing:
            raise ConfigError(
                f"there is no topic {shown_option(missing[0])} at "
                f"{', '.join(self._config.bootstrap_servers)}, or this user may not describe it"
            )
        partitions = [
            TopicPartition(topic, number)
            for topic in self.topics
            for number in sorted(described[topic].partitions)
        ]
        now = datetime.now(UTC)
        since, until = _time(self._since, now), _time(self._until, now)
        if since is not None and until is not None and until <= since:
            raise ConfigError("until= is not after since=: nothing can be between them")
        whole = await consumer.offset_ranges(partitions)
        starts = {tp: whole_range.start for tp, whole_range in whole.items()}
        stops = {tp: whole_range.stop for tp, whole_range in whole.items()}
        if since is not None:
            starts |= await _offsets_at(consumer, since, stops)
            clock = consumer.wall_clock
            self._times = {tp: to_timestamp(tp, since, clock) for tp in partitions}
        if until is not None:
            stops |= await _offsets_at(consumer, until, stops)
        return {tp: range(starts[tp], max(starts[tp], stops[tp])) for tp in partitions}


async def _offsets_at(
    consumer: RangeConsumer, time: datetime, ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The offset of the first record at or after a time, at most the end."""
    found = await consumer.offsets_for_times(dict.fromkeys(ends, time))
    return {
        tp: end if (at := found.get(tp)) is None else min(at.offset, end)
        for tp, end in ends.items()
    }


def _before(records: Sequence[Record], end: int) -> Sequence[Record]:
    if records and records[-1].offset < end:
        return records
    return records[: bisect_left(records, end, key=_OFFSET)]


def _time(moment: Moment | None, now: datetime) -> datetime | None:
    """Not before the epoch."""
    if isinstance(moment, timedelta):
        return now - min(moment, now - _EPOCH)
    return None if moment is None else max(moment, _EPOCH)


def _checked(name: str, moment: object) -> Moment | None:
    if moment is None:
        return None
    if isinstance(moment, timedelta):
        return time_ago(name, moment)
    if not isinstance(moment, datetime):
        raise ConfigError(
            f"{name}={shown_option(moment)}: use a datetime with a time zone, or a timedelta: how "
            "long ago"
        )
    if moment.tzinfo is None:
        raise ConfigError(
            f"{name}={shown_option(moment)} has no time zone: add tzinfo=UTC, for example"
        )
    return moment
