"""Offsets of topics without gaps, without reading the topics."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, cast

from asyncrevoke.client.errors import BrokerError, ConfigError
from asyncrevoke.client.runtime.net.single_request import run_blocking
from asyncrevoke.replays.ranges.range_consumer import consumer_of
from asyncrevoke.replays.ranges.topic_settings import CLEANUP_POLICY
from asyncrevoke.spark.reading.offsets import OffsetRange, configured
from asyncrevoke.spark.reading.range_reader import RangeReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from asyncrevoke.client.config import ConsumerConfig

_SAMPLE = 1000
_FIX = "read the topic instead: its offsets are not dense"


def dense_offsets(
    spark: SparkSession,
    bootstrap: str | Sequence[str] | ConsumerConfig,
    ranges: Sequence[OffsetRange],
    *,
    check: bool = True,
) -> DataFrame:
    """Rows (topic, partition, offset) for *each* offset of the ranges, without reading the topic.

    Correct only if the topic has no gaps. Raises ConfigError for a compacted topic, and for a gap
    in the first or last thousand offsets of a range. Each transaction leaves a gap. The offsets
    between are not checked: gaps there become rows. Lazy, except for these checks, which
    ``check=False`` skips.
    """
    if check:
        check_dense(bootstrap, ranges)
    from pyspark.sql import functions as F  # noqa: N812

    frames = [
        spark.range(offset_range.start, offset_range.end).select(
            F.lit(offset_range.topic).alias("topic"),
            F.lit(offset_range.partition).cast("int").alias("partition"),
            F.col("id").alias("offset"),
        )
        for offset_range in ranges
    ]
    if not frames:
        empty = cast("Any", spark).createDataFrame([], "topic string, partition int, offset bigint")
        return cast("DataFrame", empty)
    return reduce(lambda one, other: one.unionAll(other), frames)


def check_dense(
    bootstrap: str | Sequence[str] | ConsumerConfig, ranges: Sequence[OffsetRange]
) -> None:
    """Raise ConfigError if the topic is compacted, or a range begins or ends with a gap."""
    run_blocking(_check(configured(bootstrap, "read_committed"), ranges))


def check_all(
    bootstrap: str | Sequence[str] | ConsumerConfig, ranges: Sequence[OffsetRange]
) -> None:
    """Read these ranges. Raise ConfigError if they have gaps."""

    async def check() -> None:
        config = configured(bootstrap, "read_committed")
        for offset_range in ranges:
            await _check_sample(config, offset_range)

    if ranges:
        run_blocking(check())


async def _check(config: ConsumerConfig, ranges: Sequence[OffsetRange]) -> None:
    for topic in sorted({offset_range.topic for offset_range in ranges}):
        policy = await _cleanup_policy(config, topic)
        if "compact" in policy:
            raise ConfigError(f"{topic} is compacted (cleanup.policy={policy}), so that offsets "
                              f"are missing in it: {_FIX}")  # fmt: skip
    for offset_range in ranges:
        if offset_range.size:
            await _check_sample(
                config,
                offset_range._replace(end=min(offset_range.end, offset_range.start + _SAMPLE)),
            )
            await _check_sample(
                config,
                offset_range._replace(start=max(offset_range.start, offset_range.end - _SAMPLE)),
            )


async def _check_sample(config: ConsumerConfig, sample: OffsetRange) -> None:
    expected = sample.start
    async with RangeReader(config, sample) as reader:
        while records := await reader.read():
            for record in records:
                if record.offset != expected:
                    raise ConfigError(_gap(sample, expected))
                expected += 1
    if expected != sample.end:
        raise ConfigError(_gap(sample, expected))


def _gap(sample: OffsetRange, offset: int) -> str:
    return (
        f"{sample.topic}-{sample.partition} has no record at offset {offset}, so it was written by "
        f"transactions or records were removed: {_FIX}"
    )


async def _cleanup_policy(config: ConsumerConfig, topic: str) -> str:
    async with consumer_of(config) as consumer:
        try:
            return (await consumer.topic_settings(topic, (CLEANUP_POLICY,)))[CLEANUP_POLICY]
        except (BrokerError, KeyError) as error:
            raise ConfigError(
                f"the brokers do not report the cleanup.policy of {topic} (the user needs "
                f"DESCRIBE_CONFIGS on it): grant that, or {_FIX}"
            ) from error
