"""Plans which ranges a replay still has to do, and in which stages."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

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
    ranges: Sequence[OffsetRange], most: int | None, *, ordered: bool
) -> list[list[OffsetRange]]:
    """Split ranges into at most ``most`` offsets each, and group them into stages that run in
    parallel.

    ``ordered``: each stage has at most one range of a partition, in the order of offsets.
    """
    by_partition: dict[tuple[str, int], list[OffsetRange]] = {}
    for each in sorted(ranges, key=lambda each: each[:3]):
        pieces = by_partition.setdefault((each.topic, each.partition), [])
        step = most or max(1, each.size)
        pieces.extend(
            each._replace(start=at, end=min(at + step, each.end))
            for at in range(each.start, each.end, step)
        )
    if not ordered:
        everything = [piece for pieces in by_partition.values() for piece in pieces]
        return [everything] if everything else []
    return [
        [piece for piece in stage if piece is not None]
        for stage in zip_longest(*by_partition.values())
    ]
