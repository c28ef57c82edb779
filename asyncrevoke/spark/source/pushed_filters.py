"""Applies a query's filters on topic, partition, offset and timestamp to ranges of offsets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, cast

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from asyncrevoke.spark.reading.offsets import OffsetRange

_LARGEST = 2**63 - 1
_NEVER_NULL = ("topic", "partition", "offset", "timestamp", "timestamp_type")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Interval:
    """Whole numbers from ``least`` to ``most``, inclusive."""

    least: int = 0
    most: int = _LARGEST

    def cut(self, condition: Filter) -> Interval | None:
        """The numbers for which a comparison holds; None if the filter is no such comparison."""
        value: object = getattr(condition, "value", None)
        if type(value) is not int:
            return None
        match condition:
            case EqualTo() | EqualNullSafe():
                return Interval(max(self.least, value), min(self.most, value))
            case GreaterThan():
                return replace(self, least=max(self.least, value + 1))
            case GreaterThanOrEqual():
                return replace(self, least=max(self.least, value))
            case LessThan():
                return replace(self, most=min(self.most, value - 1))
            case LessThanOrEqual():
                return replace(self, most=min(self.most, value))
            case _:
                return None

    def hull(self, values: Iterable[int]) -> Interval:
        """The smallest interval with those of these numbers that are in this one."""
        found = [value for value in values if self.least <= value <= self.most]
        return Interval(min(found), max(found)) if found else Interval(0, -1)


@dataclass(frozen=True, slots=True)
class PushedFilters:
    """The filters that the source applies itself. ``since``, in milliseconds: reading begins at the
    first record with this timestamp or a later one. Picklable."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    partition: Interval = Interval()
    offset: Interval = Interval()
    since: int | None = None

    def narrow(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """The parts of these ranges that pass all filters but ``since``."""
        return [
            self._cut(offset_range)
            for offset_range in ranges
            if (self.topics is None or offset_range.topic in self.topics)
            and (self.partitions is None or offset_range.partition in self.partitions)
            and self.partition.least <= offset_range.partition <= self.partition.most
        ]

    def _cut(self, part: OffsetRange) -> OffsetRange:
        start = min(max(part.start, self.offset.least), part.end)
        return part._replace(start=start, end=max(start, min(part.end, self.offset.most + 1)))


def push(filters: Sequence[Filter]) -> tuple[PushedFilters, list[Filter]]:
    """The filters that the source applies, and those that Spark still has to apply."""
    pushed, left = PushedFilters(), list[Filter]()
    for condition in filters:
        pushed, applied = _add(pushed, condition)
        if not applied:
            left.append(condition)
    return pushed, left


def _add(pushed: PushedFilters, condition: Filter) -> tuple[PushedFilters, bool]:
    """Add one filter. True if the source then returns only rows for which it holds."""
    column = ".".join(getattr(condition, "attribute", ()))
    value: object = getattr(condition, "value", None)
    if isinstance(condition, IsNotNull):
        return pushed, column in _NEVER_NULL
    if (
        column == "topic"
        and isinstance(condition, (EqualTo, EqualNullSafe))
        and isinstance(value, str)
    ):
        return _with_topics(pushed, {value}), True
    if isinstance(condition, In) and isinstance(value, (list, tuple)):
        return _add_list(pushed, column, cast("Sequence[object]", value))
    if column == "partition" and (numbers := pushed.partition.cut(condition)) is not None:
        return replace(pushed, partition=numbers), True
    if column == "offset" and (numbers := pushed.offset.cut(condition)) is not None:
        return replace(pushed, offset=numbers), True
    if column == "timestamp" and (since := _since(condition)) is not None:
        latest = since if pushed.since is None else max(since, pushed.since)
        # Later records may have earlier timestamps.
        return replace(pushed, since=latest), False
    return pushed, False


def _add_list(
    pushed: PushedFilters, column: str, values: Sequence[object]
) -> tuple[PushedFilters, bool]:
    numbers = [value for value in values if type(value) is int]
    if column == "topic":
        return _with_topics(pushed, {value for value in values if isinstance(value, str)}), True
    if len(numbers) < len(values):
        return pushed, False
    if column == "partition":
        known = frozenset(numbers)
        both = known if pushed.partitions is None else known & pushed.partitions
        return replace(pushed, partitions=both), True
    if column == "offset":
        return replace(pushed, offset=pushed.offset.hull(numbers)), False
    return pushed, False


def _with_topics(pushed: PushedFilters, names: set[str]) -> PushedFilters:
    both = frozenset(names) if pushed.topics is None else pushed.topics & names
    return replace(pushed, topics=both)


def _since(condition: Filter) -> int | None:
    """The least timestamp, in milliseconds, for which a filter holds; None for other filters."""
    value: object = getattr(condition, "value", None)
    if not isinstance(value, datetime) or value.tzinfo is None or value < _EPOCH:
        return None
    if isinstance(condition, GreaterThan):
        return (value - _EPOCH) // _MILLISECOND + 1
    if isinstance(condition, (GreaterThanOrEqual, EqualTo, EqualNullSafe)):
        return -((_EPOCH - value) // _MILLISECOND)
    return None
