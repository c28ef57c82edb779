"""Which parts of a partition are read by tasks of their own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.spark.reading.offsets import OffsetRange
from asyncrevoke.spark.reading.range_splits import MOST_TASKS, RangeSplits

# The offsets of the parts of each partition, as Spark's connector 4.2.0 splits partitions of 1,000,
# 100 and 7 offsets.
WHOLE = [[1000], [100], [7]]
BY_SPARK = [
    (None, None, WHOLE),
    (None, 300, [[250] * 4, [100], [7]]),
    (2, None, WHOLE),
    (3, 300, [[250] * 4, [100], [7]]),
    (4, None, [[500] * 2, [100], [7]]),
    (8, None, [[166, 167, 167, 166, 167, 167], [100], [7]]),
    (8, 300, [[125] * 8, [100], [7]]),
    (8, 50, [[50] * 20, [50] * 2, [7]]),
]


def ranges(*sizes: int) -> list[OffsetRange]:
    return [OffsetRange("t", number, 10, 10 + size) for number, size in enumerate(sizes)]


@pytest.mark.parametrize(("least", "most", "expected"), BY_SPARK)
def test_ranges_are_split_into_as_many_parts_as_by_sparks_connector(
    least: int | None, most: int | None, expected: list[list[int]]
) -> None:
    found: list[list[int]] = [[], [], []]
    for part in RangeSplits(least, most).split(ranges(1000, 100, 7)):
        found[part.partition].append(part.size)
    assert found == expected


@given(
    st.lists(st.integers(0, 5000), max_size=6),
    st.none() | st.integers(1, 60),
    st.none() | st.integers(1, 5000).map(lambda number: number + 100),
)
def test_parts_cover_each_range_without_gaps_and_have_equal_sizes(
    sizes: list[int], least: int | None, most: int | None
) -> None:
    given_ranges = ranges(*sizes)
    parts = RangeSplits(least, most).split(given_ranges)
    for whole in given_ranges:
        own = [part for part in parts if part.partition == whole.partition]
        offsets = [offset for part in own for offset in range(part.start, part.end)]
        assert offsets == list(range(whole.start, whole.end))
        assert all(part.size for part in own)
        assert max((part.size for part in own), default=0) <= (most or 5000)
        if most is None or least is None:
            assert len({part.size for part in own} - {min((p.size for p in own), default=0)}) <= 1


def test_ranges_are_split_in_proportion_to_their_bytes_if_these_are_known() -> None:
    sizes = {TopicPartition("t", 0): 10.0, TopicPartition("t", 1): 1000.0}
    splits, given_ranges = RangeSplits(6), ranges(100, 100)
    assert splits.weighs(given_ranges)
    assert not splits.weighs(given_ranges[:1])
    assert not RangeSplits(2, 5).weighs(given_ranges)
    parts = splits.split(given_ranges, sizes)
    assert [part.partition for part in parts] == [0, 1, 1, 1, 1, 1]
    assert [part.size for part in parts] == [100, 20, 20, 20, 20, 20]
    assert [part.partition for part in splits.split(given_ranges)] == [0, 0, 0, 1, 1, 1]


def test_a_range_keeps_the_id_of_its_topic() -> None:
    (whole,) = ranges(4)
    parts = RangeSplits(2).split([whole._replace(topic_id="id")])
    assert [(part.start, part.end, part.topic_id) for part in parts] == [
        (10, 12, "id"),
        (12, 14, "id"),
    ]


def test_more_tasks_than_spark_can_plan_are_rejected_with_a_limit_that_works() -> None:
    many = ranges(10 * MOST_TASKS, 7)
    with pytest.raises(ConfigError, match=r"splits 1000007 offsets into 1000007 tasks.* least 22,"):
        RangeSplits(None, 1).split(many)
    assert len(RangeSplits(None, 22).split(many)) < MOST_TASKS
