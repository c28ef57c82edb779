"""Plans which ranges a replay still has to do, and in which stages."""

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
    """The planned ranges without the offsets of those that are done: (topic, partition, start,
    end)."""
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
    """Split ranges into at most ``most`` offsets each, and group them into stages, whose ranges are
    replayed in parallel unless ``order`` says more.

    With ``"in stages"`` each stage has at most one range of a partition, in the order of offsets;
    with ``"in a task"`` as many as have ``most`` offsets together.
    """
    by_partition: dict[tuple[str, int], list[OffsetRange]] = {}
    for each in sorted(ranges, key=lambda each: each[:3]):
        pieces = by_partition.setdefault((each.topic, each.partition), [])
        step = most or max(1, each.size)
        pieces.extend(
            each._replace(start=at, end=min(at + step, each.end))
            for at in range(each.start, each.end, step)
        )
    if order is None:
        everything = [piece for pieces in by_partition.values() for piece in pieces]
        return [everything] if everything else []
    groups = [
        _together(pieces, most) if order == "in a task" else [[piece] for piece in pieces]
        for pieces in by_partition.values()
    ]
    return [
        [piece for group in stage if group is not None for piece in group]
        for stage in zip_longest(*groups)
    ]


def _together(pieces: Sequence[OffsetRange], most: int | None) -> list[list[OffsetRange]]:
    groups: list[list[OffsetRange]] = []
    size = 0
    for piece in pieces:
        if groups and (most is None or size + piece.size <= most):
            groups[-1].append(piece)
            size += piece.size
        else:
            groups.append([piece])
            size = piece.size
    return groups


def tasks(ranges: Iterable[OffsetRange], *, ordered: bool) -> list[list[OffsetRange]]:
    """The ranges of each task, which it replays one after another.

    ``ordered``: all of a partition, in the order of offsets. Otherwise each range has a task.
    """
    if not ordered:
        return [[each] for each in ranges]
    by_partition: dict[tuple[str, int], list[OffsetRange]] = {}
    for each in sorted(ranges, key=lambda each: each[:3]):
        by_partition.setdefault((each.topic, each.partition), []).append(each)
    return list(by_partition.values())
