"""Plans which ranges a replay still has to do, and in which order."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Literal, TypeAlias

RangeOrder: TypeAlias = Literal["in stages", "in a task"] | None

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from asyncrevoke.spark.reading.offsets import OffsetRange


def unfinished_ranges(
    planned: Iterable[OffsetRange], done: Iterable[tuple[str, int, int, int]]
) -> list[OffsetRange]:
    """The planned ranges without the offsets of finished ranges, which are given as (topic,
    partition, start, end)."""
    by_partition: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for topic, partition, start, end in done:
        by_partition.setdefault((topic, partition), []).append((start, end))
    left: list[OffsetRange] = []
    for offset_range in planned:
        start = offset_range.start
        for begun, ended in sorted(
            by_partition.get((offset_range.topic, offset_range.partition), ())
        ):
            if begun > start:
                left.append(offset_range._replace(start=start, end=min(begun, offset_range.end)))
            start = max(start, ended)
        left.append(offset_range._replace(start=start))
    return [remaining for remaining in left if remaining.start < remaining.end]


def stages(
    ranges: Sequence[OffsetRange], most: int | None, *, order: RangeOrder
) -> list[list[OffsetRange]]:
    """Split ranges into at most ``most`` offsets each (None: not split), and group them into
    stages.

    The ranges of a stage are replayed in parallel. With ``order="in stages"`` a stage has at most
    one range of a partition, in the order of offsets. With ``"in a task"`` it has ranges of a
    partition with at most ``most`` offsets together, which one task replays in order.
    """
    by_partition: dict[tuple[str, int], list[OffsetRange]] = {}
    for offset_range in sorted(ranges, key=lambda offset_range: offset_range[:3]):
        parts = by_partition.setdefault((offset_range.topic, offset_range.partition), [])
        step = most or max(1, offset_range.size)
        parts.extend(
            offset_range._replace(start=at, end=min(at + step, offset_range.end))
            for at in range(offset_range.start, offset_range.end, step)
        )
    if order is None:
        everything = [part for parts in by_partition.values() for part in parts]
        return [everything] if everything else []
    groups = [
        _grouped(parts, most) if order == "in a task" else [[part] for part in parts]
        for parts in by_partition.values()
    ]
    return [
        [part for group in stage if group is not None for part in group]
        for stage in zip_longest(*groups)
    ]


def _grouped(parts: Sequence[OffsetRange], most: int | None) -> list[list[OffsetRange]]:
    groups: list[list[OffsetRange]] = []
    size = 0
    for part in parts:
        if groups and (most is None or size + part.size <= most):
            groups[-1].append(part)
            size += part.size
        else:
            groups.append([part])
            size = part.size
    return groups


def tasks(ranges: Iterable[OffsetRange], *, ordered: bool) -> list[list[OffsetRange]]:
    """The ranges of each task, which replays them one after another.

    If ``ordered``, a task has all ranges of a partition, in the order of offsets. Otherwise a task
    has one range.
    """
    if not ordered:
        return [[offset_range] for offset_range in ranges]
    by_partition: dict[tuple[str, int], list[OffsetRange]] = {}
    for offset_range in sorted(ranges, key=lambda offset_range: offset_range[:3]):
        by_partition.setdefault((offset_range.topic, offset_range.partition), []).append(
            offset_range
        )
    return list(by_partition.values())
