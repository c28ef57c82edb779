"""Splits ranges of offsets, so that several tasks read one partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.spark.reading.places import LARGEST

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.spark.reading.offsets import OffsetRange

MOST_TASKS: Final = 100_000
"""Ranges are not split into more than this many: Spark's driver keeps all tasks in memory."""


class RangeSplits(NamedTuple):
    """How ranges are split, as by Spark's Kafka connector. Without a value nothing is split.

    First, ranges with more than ``max_records_per_partition`` offsets are split into as few equal
    ranges as possible. If there are then fewer than ``min_partitions``, each is split in proportion
    to its bytes, or to its offsets if the bytes are not known, into about ``min_partitions``
    altogether.

    Parts of a range have equal numbers of offsets: those of compacted records, aborted records and
    control markers count, too.
    """

    min_partitions: int | None = None
    max_records_per_partition: int | None = None

    @property
    def given(self) -> tuple[str, ...]:
        """The names of the options that have a value."""
        return tuple(name for name, value in self._asdict().items() if value is not None)

    def check(self) -> None:
        """Raise ConfigError for a number that is too small or too large."""
        for name, value, most in (
            ("min_partitions", self.min_partitions, MOST_TASKS),
            ("max_records_per_partition", self.max_records_per_partition, LARGEST),
        ):
            if value is not None and not 1 <= value <= most:
                raise ConfigError(f"{name}={value}: use at least 1 and at most {most}")

    def weighs(self, ranges: Iterable[OffsetRange]) -> bool:
        """Whether it matters for these ranges how many bytes the offsets of partitions have."""
        partitions = {each.topic_partition for each in ranges if each.size}
        return 1 < len(partitions) < (self.min_partitions or 0)

    def split(
        self,
        ranges: Iterable[OffsetRange],
        bytes_per_offset: Mapping[TopicPartition, float] | None = None,
    ) -> Sequence[OffsetRange]:
        """The ranges that have offsets, split. ``bytes_per_offset`` has all of their partitions;
        None, or empty: the bytes are not known.

        Raises ConfigError if ``max_records_per_partition`` splits them into more than
        ``MOST_TASKS``.
        """
        left = [offset_range for offset_range in ranges if offset_range.size]
        most, least = self.max_records_per_partition, self.min_partitions
        if most is not None:
            counts = [-(-offset_range.size // most) for offset_range in left]
            self._check(sum(counts), sum(offset_range.size for offset_range in left))
            left = _split_all(left, counts)
        if least is not None and len(left) < least:
            left = _split_all(left, _counts(left, least, bytes_per_offset or {}))
        return left

    def _check(self, count: int, offsets: int) -> None:
        if count > MOST_TASKS:
            raise ConfigError(
                f"max_records_per_partition={self.max_records_per_partition} splits {offsets} "
                f"offsets into {count} tasks, more than {MOST_TASKS}: use at least "
                f"{-(-offsets // MOST_TASKS) * 2}, or read fewer offsets at a time"
            )


NO_SPLITS: Final = RangeSplits()
"""Nothing is split."""


def _counts(
    ranges: Sequence[OffsetRange], least: int, bytes_per_offset: Mapping[TopicPartition, float]
) -> list[int]:
    """Into how many each is split: small ones, which are not split, do not count for the others."""
    weights = [
        max(1, int(each.size * bytes_per_offset.get(each.topic_partition, 1))) for each in ranges
    ]
    total = sum(weights)
    whole = [weight for weight in weights if _rounded(weight * least, total) <= 1]
    rest, left = total - sum(whole), max(1, least - len(whole))
    return [
        1
        if _rounded(weight * least, total) <= 1
        else min(each.size, max(1, _rounded(weight * left, rest)))
        for each, weight in zip(ranges, weights, strict=True)
    ]


def _rounded(number: int, divisor: int) -> int:
    """Divide, and round halves up, as Spark does."""
    return (2 * number + divisor) // (2 * divisor)


def _split_all(ranges: Sequence[OffsetRange], counts: Sequence[int]) -> list[OffsetRange]:
    return [
        offset_range._replace(
            start=offset_range.start + offset_range.size * part // count,
            end=offset_range.start + offset_range.size * (part + 1) // count,
        )
        for offset_range, count in zip(ranges, counts, strict=True)
        for part in range(count)
    ]
