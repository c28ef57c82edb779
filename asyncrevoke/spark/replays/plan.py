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
    for each in planned:
        start = each.start
        for begun, ended in sorted(by_partition.get((each.topic, each.partition), ())):
            if begun > start:
                left.append(each._replace(start=start, end=min(begun, each.end)))
            start = max(start, ended)
        left.append(each._replace(start=start))
    return [each for each in left if each.start < each.end]


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
    for each in sorted(ranges, key=lambda each: each[:3]):
        parts = by_partition.setdefault((each.topic, each.partition), [])
        step = most or max(1, each.size)
        parts.extend(
            each._replace(start=at, end=min(at + step, each.end))
            for at in range(each.start, each.end, step)
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
        return [[each] for each in ranges]
    by_partition: dict[tuple[str, int], list[OffsetRange]] = {}
    for each in sorted(ranges, key=lambda each: each[:3]):
        by_partition.setdefault((each.topic, each.partition), []).append(each)
    return list(by_partition.values())
