from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from asyncrevoke.spark.reading.offsets import OffsetRange
from asyncrevoke.spark.source.options import SourceOptions
from asyncrevoke.spark.source.pushed_filters import push
from asyncrevoke.spark.source.table_reader import FilteringTableReader

TOPIC, PARTITION, OFFSET, TIME = ("topic",), ("partition",), ("offset",), ("timestamp",)
RANGES = [
    OffsetRange("clicks", 0, 0, 10),
    OffsetRange("orders", 0, 5, 50),
    OffsetRange("orders", 1, 0, 50),
    OffsetRange("orders", 2, 0, 50),
]
MOMENT = datetime(2026, 11, 1, tzinfo=UTC)
MILLISECONDS = 1_793_491_200_000


def spans(*filters: Filter) -> list[tuple[str, int, int, int]]:
    pushed, _ = push(filters)
    copied = pickle.loads(pickle.dumps(pushed))  # noqa: S301 - as Spark does
    return [narrow_range[:4] for narrow_range in copied.narrow(RANGES) if narrow_range.size]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([EqualTo(PARTITION, 1)], [("orders", 1, 0, 50)]),
        ([EqualNullSafe(PARTITION, 1)], [("orders", 1, 0, 50)]),
        ([GreaterThan(PARTITION, 1)], [("orders", 2, 0, 50)]),
        ([GreaterThanOrEqual(PARTITION, 1), LessThan(PARTITION, 2)], [("orders", 1, 0, 50)]),
        ([LessThanOrEqual(PARTITION, -1)], []),
        ([In(PARTITION, (1, 7)), In(PARTITION, (1, 2))], [("orders", 1, 0, 50)]),
        ([EqualTo(TOPIC, "clicks")], [("clicks", 0, 0, 10)]),
        ([In(TOPIC, ("clicks", "views"))], [("clicks", 0, 0, 10)]),
        ([EqualTo(TOPIC, "clicks"), EqualTo(TOPIC, "orders")], []),
        ([EqualTo(PARTITION, 0), EqualTo(OFFSET, 7)], [("clicks", 0, 7, 8), ("orders", 0, 7, 8)]),
        ([GreaterThan(OFFSET, 47), LessThan(PARTITION, 1)], [("orders", 0, 48, 50)]),
        ([GreaterThanOrEqual(OFFSET, 48), EqualTo(PARTITION, 1)], [("orders", 1, 48, 50)]),
        ([LessThan(OFFSET, 6), EqualTo(TOPIC, "orders"), EqualTo(PARTITION, 0)],
         [("orders", 0, 5, 6)]),
        ([LessThanOrEqual(OFFSET, 4), EqualTo(TOPIC, "orders"), EqualTo(PARTITION, 0)], []),
        ([EqualTo(OFFSET, -1)], []),
    ],
)  # fmt: skip
def test_a_filter_narrows_what_is_read_and_is_not_applied_again(
    filters: list[Filter], expected: list[tuple[str, int, int, int]]
) -> None:
    assert spans(*filters) == expected
    assert push(filters)[1] == []


def test_a_list_of_offsets_is_read_from_its_least_to_its_most_and_applied_by_spark() -> None:
    offsets = In(OFFSET, (3, 9, 7))
    assert spans(offsets, EqualTo(PARTITION, 1)) == [("orders", 1, 3, 10)]
    assert push([offsets])[1] == [offsets]
    assert spans(In(OFFSET, ())) == []


@pytest.mark.parametrize(
    ("each", "since"),
    [
        (GreaterThanOrEqual(TIME, MOMENT), MILLISECONDS),
        (EqualTo(TIME, MOMENT), MILLISECONDS),
        (GreaterThan(TIME, MOMENT), MILLISECONDS + 1),
        (GreaterThan(TIME, MOMENT + timedelta(microseconds=1)), MILLISECONDS + 1),
        (GreaterThanOrEqual(TIME, MOMENT + timedelta(microseconds=1)), MILLISECONDS + 1),
        (LessThan(TIME, MOMENT), None),
        (GreaterThan(TIME, MOMENT.replace(tzinfo=None)), None),
        (GreaterThan(TIME, datetime(1969, 1, 1, tzinfo=UTC)), None),
    ],
)
def test_a_time_says_where_reading_begins_and_is_applied_by_spark(
    each: Filter, since: int | None
) -> None:
    pushed, left = push([each])
    assert pushed.since == since
    assert left == [each]


def test_the_latest_of_several_times_counts() -> None:
    later = MOMENT + timedelta(seconds=1)
    pushed, _ = push([GreaterThanOrEqual(TIME, later), GreaterThanOrEqual(TIME, MOMENT)])
    assert pushed.since == MILLISECONDS + 1000


@pytest.mark.parametrize(
    "each",
    [
        Not(EqualTo(PARTITION, 1)),
        EqualTo(("value",), b"x"),
        EqualTo(PARTITION, None),
        In(PARTITION, (1, None)),
        IsNull(OFFSET),
        IsNotNull(("key",)),
        GreaterThan(TOPIC, "a"),
    ],
)
def test_other_filters_are_left_to_spark(each: Filter) -> None:
    pushed, left = push([each])
    assert pushed.narrow(RANGES) == RANGES
    assert left == [each]


def test_spark_applies_all_filters_because_it_may_read_the_ranges_of_another_query() -> None:
    filters: list[Filter] = [
        IsNotNull(OFFSET),
        EqualTo(PARTITION, 1),
        GreaterThanOrEqual(OFFSET, 48),
    ]
    options = SourceOptions.of({"topic": "orders", "push_filters": "true"})
    reader = FilteringTableReader(options, ["offset"])
    assert list(reader.pushFilters(filters)) == filters
    assert [each[:4] for each in reader._narrowed(RANGES) if each.size] == [("orders", 1, 48, 50)]


def test_columns_that_are_never_null_need_no_filter() -> None:
    assert push([IsNotNull(OFFSET), IsNotNull(PARTITION)])[1] == []
