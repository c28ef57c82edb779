"""Which ranges of offsets share a task."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from asyncrevoke.spark.reading.offsets import OffsetRange
from asyncrevoke.spark.source.range_rows import parts_of


def sizes(*given: int, min_offsets: int = 1) -> list[list[int]]:
    """The sizes of the ranges of each task."""
    ranges = [OffsetRange("orders", number, 10, 10 + size) for number, size in enumerate(given)]
    tasks = parts_of(ranges, min_offsets)
    shared = [offset_range.topic_partition for task in tasks for offset_range in task.ranges]
    assert sorted(shared) == [
        offset_range.topic_partition for offset_range in ranges if offset_range.size
    ]
    for task in tasks:
        assert list(task.ranges) == sorted(task.ranges)
    return [[offset_range.size for offset_range in task.ranges] for task in tasks]


def test_each_range_with_offsets_has_a_task_by_default() -> None:
    assert sizes(3, 0, 5, 1) == [[3], [5], [1]]
    assert sizes(0, 0) == [[]]
    assert sizes() == [[]]


def test_small_ranges_share_tasks() -> None:
    assert sizes(*[750] * 8, min_offsets=5000) == [[750] * 8]
    assert sizes(*[750] * 8, min_offsets=3000) == [[750] * 4] * 2
    # After a task of 1,300 offsets, too few are left for another one.
    assert sizes(500, 500, 600, 300, min_offsets=1000) == [[500, 500, 600, 300]]


def test_large_ranges_are_not_divided() -> None:
    assert sizes(10_000, 20_000, min_offsets=5000) == [[10_000], [20_000]]
    assert sizes(20_000, 10, 4990, min_offsets=5000) == [[20_000], [10, 4990]]
    assert sizes(20_000, 10, 10, min_offsets=5000) == [[20_000, 10, 10]]
