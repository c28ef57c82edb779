"""Plans which offsets of a topic are read."""

# A client is imported when it is used: the options of the source have ranges, too.

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal, NamedTuple

from asyncrevoke.client import log_events
from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.config.security import security_options
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.spark.errors import DataLossError
from asyncrevoke.spark.reading.places import (
    Missing,
    Place,
    check_order,
    check_place,
    check_start_before_end,
    check_within_log,
    is_beyond,
)
from asyncrevoke.spark.reading.topic_selection import TopicSelection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


# Seconds in which a task that reads a range must get a record.
NO_PROGRESS_TIMEOUT = 120.0


class OffsetRange(NamedTuple):
    """Offsets of one partition, from ``start`` up to, not including, ``end``.

    Some offsets have no record: aborted transactions, compaction and control markers leave gaps.
    ``missing`` counts the requested offsets before ``start``, which were deleted; ``unstable``
    counts those from ``end`` on, which are beyond the last stable offset. ``topic_id`` is the id
    of the topic when the range was planned, in the notation of Kafka's tools: reading the range
    fails if the topic was deleted and created again since. None: the id is not compared.
    """

    topic: str
    partition: int
    start: int
    end: int
    missing: int = 0
    unstable: int = 0
    topic_id: str | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        """Its partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """The number of its offsets."""
        return self.end - self.start


def resolve_ranges(
    bootstrap: str | Sequence[str] | ConsumerConfig,
    topic: str,
    *,
    start: Place = "earliest",
    end: Place = "latest",
    missing: Missing = "error",
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed",
) -> list[OffsetRange]:
    """Find the offsets of a topic between two places; one range per partition.

    A place is ``"earliest"``, ``"latest"``, an offset, a time (an aware ``datetime``: the first
    record with this timestamp or a later one), or ``GroupOffsets("billing")``: the committed
    offsets of a group, and the earliest offset of partitions without one. A place for each
    partition is ``{0: 17, 1: -1}`` or ``{"orders": {0: 17, 1: -1}}``; it must have all partitions
    that are read. -2 is the earliest and -1 the latest offset.

    A range ends at the last stable offset at most, where the first open transaction begins
    (``read_uncommitted``: at the high watermark), because reading further would wait. ``"latest"``
    is the end at the time of this call.

    ``bootstrap`` may be the configuration of a consumer, for its security options. Blocks; may be
    called while an event loop runs in this thread.

    Raises DataLossError if a start was deleted (with ``missing="clip"`` it logs a warning, and the
    range begins at the earliest offset), or if committed offsets of a group are beyond the log's
    end. Raises ConfigError for an invalid place, a topic that does not exist, an offset beyond the
    log's end (with ``missing="clip"`` an end may be), and a start after the end. An offset for all
    partitions is rejected only if it is so in each of them. Raises RequestTimeoutError if no broker
    responds.
    """
    from asyncrevoke.client.runtime.net.single_request import run_blocking

    config = configured(bootstrap, isolation_level)
    return run_blocking(find_ranges(config, TopicSelection((topic,)), start, end, missing))


def configured(
    bootstrap: str | Sequence[str] | ConsumerConfig,
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed",
) -> ConsumerConfig:
    """A configuration for planning and reading, without a group."""
    given = (
        bootstrap
        if isinstance(bootstrap, ConsumerConfig)
        else ConsumerConfig(bootstrap_servers=bootstrap)
    )
    return replace(
        ConsumerConfig(),
        bootstrap_servers=given.bootstrap_servers,
        client_id=given.client_id,
        isolation_level=isolation_level,
        request_timeout=given.request_timeout,
        **security_options(given),
    )


async def find_ranges(
    config: ConsumerConfig,
    topics: TopicSelection,
    start: Place,
    end: Place,
    missing: Missing = "error",
) -> list[OffsetRange]:
    """Like :func:`resolve_ranges` for all selected topics, on the running event loop."""
    from asyncrevoke.replays.ranges.range_consumer import consumer_of
    from asyncrevoke.spark.reading.log_bounds import LogBounds

    for name, place in (("start", start), ("end", end)):
        check_place(name, place)
    if end == "earliest":
        raise ConfigError('end="earliest": no record is before the earliest offset')
    check_start_before_end(start, end)
    async with consumer_of(config) as consumer:
        known = await LogBounds.of(consumer, topics)
        starts = await known.offsets(consumer, config, start, "start")
        ends = await known.offsets(consumer, config, end, "end")
    if is_beyond(start, "start", starts, known.last) or is_beyond(
        end, "end", ends, known.last, missing
    ):
        # While a transaction is open, the log has offsets beyond the last stable one.
        last = await _high_watermarks(config, topics)
        check_within_log("start", start, starts, last)
        check_within_log("end", end, ends, last, missing)
    check_order(start, end, starts, ends, missing)
    ranges = [
        plan_range(tp, starts[tp], ends[tp], known.first[tp], known.last[tp])._replace(
            topic_id=known.topic_ids[tp.topic]
        )
        for tp in sorted(known.first)
    ]
    log_missing_offsets(ranges, missing)
    return ranges


async def begin_at_time(
    config: ConsumerConfig, ranges: Sequence[OffsetRange], milliseconds: int
) -> list[OffsetRange]:
    """These ranges without the offsets before the first record with this timestamp or a later one.
    A range without such a record becomes empty."""
    from asyncrevoke.replays.ranges.range_consumer import consumer_of

    # A filter may name any time: offsets_for_times refuses numbers that look like seconds.
    since = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=milliseconds)
    wanted = {offset_range.topic_partition: since for offset_range in ranges if offset_range.size}
    async with consumer_of(config) as consumer:
        found = await consumer.offsets_for_times(wanted)
    narrow: list[OffsetRange] = []
    for offset_range in ranges:
        first = found.get(offset_range.topic_partition)
        start = (
            offset_range.end
            if first is None
            else min(max(first.offset, offset_range.start), offset_range.end)
        )
        narrow.append(offset_range._replace(start=start))
    return narrow


def plan_range(
    partition: TopicPartition, start: int, end: int, first: int, last: int
) -> OffsetRange:
    """The requested range, limited to the log's offsets from ``first`` up to, not including,
    ``last``."""
    missing = max(0, min(first, end) - start)
    unstable = max(0, end - max(last, start))
    begin = min(max(start, first), last) if start <= last else last
    stop = max(begin, min(end, last))
    return OffsetRange(*partition, begin, stop, missing, unstable)


def log_missing_offsets(ranges: Sequence[OffsetRange], missing: Missing) -> None:
    """Raise DataLossError or log a warning for requested offsets that were deleted; log a warning
    for those that are beyond the last stable offset."""
    from asyncrevoke.client.runtime.hooks.event_log import EventLog

    log = EventLog()
    lost = [offset_range for offset_range in ranges if offset_range.missing]
    if lost and missing == "error":
        raise DataLossError(
            f"{describe_lost(lost)}: retention has removed them; start at or after the log's "
            'start, or pass missing="clip" to read the remaining records'
        )
    if lost:
        log_events.REQUESTED_START_DELETED.write_to(
            log,
            starts={str(lost_range.topic_partition): lost_range.start for lost_range in lost},
            missing=sum(lost_range.missing for lost_range in lost),
        )
    if unstable := [offset_range for offset_range in ranges if offset_range.unstable]:
        log_events.REQUESTED_END_UNSTABLE.write_to(
            log,
            ends={
                str(unstable_range.topic_partition): unstable_range.end
                for unstable_range in unstable
            },
            unstable=sum(unstable_range.unstable for unstable_range in unstable),
        )


def describe_lost(ranges: Sequence[OffsetRange]) -> str:
    """A sentence that names the deleted offsets."""
    return "; ".join(
        f"{offset_range.topic}-{offset_range.partition} begins at offset {offset_range.start}, and "
        f"{offset_range.missing} offsets before it were requested"
        for offset_range in ranges
    )


async def _high_watermarks(
    config: ConsumerConfig, topics: TopicSelection
) -> Mapping[TopicPartition, int]:
    from asyncrevoke.replays.ranges.range_consumer import consumer_of
    from asyncrevoke.spark.reading.log_bounds import LogBounds

    async with consumer_of(replace(config, isolation_level="read_uncommitted")) as consumer:
        return (await LogBounds.of(consumer, topics)).last
