"""Plans which offsets of a topic are read, before anything is read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from asyncrevoke.config import ConsumerConfig
from asyncrevoke.config.security import security_options
from asyncrevoke.model import TopicPartition
from asyncrevoke.ranges.consumers import consumer_of
from asyncrevoke.runtime.hooks.event_log import EventLog
from asyncrevoke.runtime.net.single_request import run_blocking
from asyncrevoke.spark.errors import DataLossError
from asyncrevoke.spark.reading.log_bounds import LogBounds
from asyncrevoke.spark.reading.places import (
    check_place,
    check_start_before_end,
    check_within_log,
    is_beyond,
)
from asyncrevoke.spark.reading.topic_selection import TopicSelection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asyncrevoke.spark.reading.places import Missing, Place


class OffsetRange(NamedTuple):
    """Offsets of one partition, from ``start`` up to, not including, ``end``.

    Some offsets have no record: aborted transactions, compaction and control markers leave gaps.
    ``missing`` counts the requested offsets before ``start`` that were deleted; ``unstable`` the
    requested ones from ``end`` on that are beyond the last stable offset. ``topic_id`` is the id
    that the topic had when the range was planned, as Kafka's tools write it: reading the range
    fails if the topic was deleted and created again. None: not compared.
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
        """How many offsets it has."""
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
    record that is not older), or ``GroupOffsets("billing")``: the committed offsets of a group, and
    the earliest offset where it has committed none. Offsets and times of single partitions are
    given as ``{0: 17, 1: -1}`` or ``{"orders": {0: 17, 1: -1}}``, for all partitions that are read:
    -2 is the earliest and -1 the latest offset. No range goes
    beyond the last stable offset, where an open transaction begins (``read_uncommitted``: the high
    watermark), because reading on would wait for it. So ``"latest"`` is the end at the time of this
    call.

    ``bootstrap`` may be the configuration of a consumer, for its security options. Blocks; may be
    called while an event loop runs in this thread.

    Raises DataLossError if a start lies before the log's, with ``missing="clip"`` a log line says
    so and the range begins where the log does, or if a group has committed offsets beyond the log's
    end; ConfigError for a place or a topic that is none, for a start offset beyond the log's end
    and for a start after the end; RequestTimeoutError if no broker answers.
    """
    config = configured(bootstrap, isolation_level)
    return run_blocking(find_ranges(config, TopicSelection((topic,)), start, end, missing))


def configured(
    bootstrap: str | Sequence[str] | ConsumerConfig,
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed",
) -> ConsumerConfig:
    """The configuration to plan with: it has no group."""
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
    for name, place in (("start", start), ("end", end)):
        check_place(name, place)
    check_start_before_end(start, end)
    async with consumer_of(config) as consumer:
        known = await LogBounds.of(consumer, topics)
        starts = await known.offsets(consumer, config, start, "start")
        ends = await known.offsets(consumer, config, end, "end")
    if is_beyond(start, "start", starts, known.last) or is_beyond(end, "end", ends, known.last):
        # The log goes on beyond the last stable offset while a transaction is open.
        last = await _high_watermarks(config, topics)
        check_within_log("start", start, starts, last)
        check_within_log("end", end, ends, last)
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
    """These ranges without the offsets before the first record that has this timestamp or a later
    one; empty where there is none."""
    wanted = {each.topic_partition: milliseconds for each in ranges if each.size}
    async with consumer_of(config) as consumer:
        found = await consumer.offsets_for_times(wanted)
    narrow: list[OffsetRange] = []
    for each in ranges:
        first = found.get(each.topic_partition)
        start = each.end if first is None else min(max(first.offset, each.start), each.end)
        narrow.append(each._replace(start=start))
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
    """Raise or log which requested offsets were deleted; log which are not stable yet."""
    log = EventLog()
    lost = [each for each in ranges if each.missing]
    if lost and missing == "error":
        raise DataLossError(
            f"{describe_lost(lost)}: retention has removed them; start at or after the log's "
            'start, or pass missing="clip" (--missing clip) to read what is left'
        )
    for each in lost:
        log.warning(
            "requested start was deleted; reading from the earliest offset",
            topic=each.topic,
            partition=each.partition,
            start=each.start,
            missing=each.missing,
        )
    for each in ranges:
        if each.unstable:
            log.warning(
                "requested end is beyond the last stable offset; reading up to that",
                topic=each.topic,
                partition=each.partition,
                end=each.end,
                unstable=each.unstable,
            )


def describe_lost(ranges: Sequence[OffsetRange]) -> str:
    """A sentence about deleted offsets."""
    return "; ".join(
        f"{each.topic}-{each.partition} begins at offset {each.start}, and "
        f"{each.missing} offsets before it were asked for"
        for each in ranges
    )


async def _high_watermarks(
    config: ConsumerConfig, topics: TopicSelection
) -> Mapping[TopicPartition, int]:
    async with consumer_of(replace(config, isolation_level="read_uncommitted")) as consumer:
        return (await LogBounds.of(consumer, topics)).last
