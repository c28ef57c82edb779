"""Planning of ranges, without a broker."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.spark.errors import DataLossError
from asyncrevoke.spark.reading.offsets import (
    OffsetRange,
    configured,
    log_missing_offsets,
    plan_range,
)
from asyncrevoke.spark.reading.places import GroupOffsets, check_order, check_place, is_beyond

if TYPE_CHECKING:
    from asyncrevoke.spark.reading.places import Place

ORDERS = TopicPartition("orders", 0)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        pytest.param(10, 90, (10, 90, 0, 0), id="inside"),
        pytest.param(0, 90, (10, 90, 10, 0), id="the log has lost the first ten"),
        pytest.param(10, 120, (10, 100, 0, 20), id="an open transaction begins at 100"),
        pytest.param(0, 5, (10, 10, 5, 0), id="all of it is lost"),
        pytest.param(120, 130, (100, 100, 0, 10), id="beyond the end"),
        pytest.param(90, 20, (90, 90, 0, 0), id="the end lies before the start"),
        pytest.param(100, 100, (100, 100, 0, 0), id="empty"),
    ],
)
def test_a_range_lies_within_the_log_and_says_what_it_lacks(
    start: int, end: int, expected: tuple[int, int, int, int]
) -> None:
    assert plan_range(ORDERS, start, end, 10, 100)[2:6] == expected


def test_lost_records_are_an_error_that_names_both_ways_out() -> None:
    ranges = [OffsetRange("orders", 0, 1200, 1300, 700)]
    with pytest.raises(DataLossError, match=r'orders-0 begins at offset 1200, and 700 .*"clip"'):
        log_missing_offsets(ranges, "error")


def test_lost_records_can_be_passed_over_with_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    lost = [OffsetRange("orders", number, 1200, 1300, 350) for number in (0, 1)]
    log_missing_offsets(lost, "clip")
    (line,) = caplog.messages
    assert "missing=700" in line
    assert "'orders-0': 1200, 'orders-1': 1200" in line


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        (datetime(2026, 11, 1), "has no time zone"),  # noqa: DTZ001 - that is the mistake
        ("now", r'use "earliest", "latest"'),
        (-2, "offsets begin at 0"),
        ({0: -3}, "offsets begin at 0"),
        ({0: "1"}, r'use "earliest"'),
        ({"0": 1}, "the numbers of partitions are ints"),
        ({2**31: 1}, "partitions are 0 to 2147483647"),
        ({"orders": {-1: 1}}, "partitions are 0 to 2147483647"),
        (True, r'use "earliest"'),
    ],
)
def test_what_is_no_place_gets_a_sentence(place: object, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        check_place("start", place)


@pytest.mark.parametrize(
    "place",
    ["earliest", "latest", 0, {0: 5}, datetime(2026, 11, 1, tzinfo=UTC), GroupOffsets("billing")],
)
def test_places_are_taken_as_they_are(place: object) -> None:
    check_place("end", place)


SECOND = TopicPartition("orders", 1)
EARLY, LATE = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("start", "end", "starts", "ends", "sentence"),
    [
        ({0: 50, 1: 0}, {0: 10, 1: 9}, (50, 0), (10, 9), "start=50 .* orders-0, after end=10"),
        ({"orders": {0: 5, 1: 8}}, {0: 9, 1: 7}, (5, 8), (9, 7), "start=8 is offset 8 of orders-1"),
        ("earliest", {0: 40, 1: 9}, (50, 0), (40, 9), "start='earliest' is offset 50 of orders-0"),
        ({0: -2, 1: -2}, {0: 40, 1: 9}, (50, 0), (40, 9), "start=-2 is offset 50 of orders-0"),
        (LATE, {0: 40, 1: 40}, (30, 41), (40, 40), "start=2026-11-02.* offset 41 of orders-1"),
        ({0: LATE, 1: EARLY}, {0: EARLY, 1: LATE}, (9, 3), (9, 5), "of orders-0, after"),
        (50, EARLY, (50, 50), (40, 41), "start=50 is offset 50 of orders-0"),
        (GroupOffsets("g"), {0: 10, 1: 20}, (5, 21), (10, 20), "group_id='g'.* offset 21"),
    ],
)
def test_a_start_after_the_end_is_an_error_that_names_partition_and_values(
    start: Place, end: Place, starts: tuple[int, int], ends: tuple[int, int], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        check_order(start, end, by_partition(starts), by_partition(ends))


@pytest.mark.parametrize(
    ("start", "end", "starts", "ends"),
    [
        ({0: 10, 1: 9}, {0: 10, 1: 9}, (10, 9), (10, 9)),
        ({0: 9, 1: 9}, "latest", (9, 9), (8, 8)),
        ({0: 9, 1: 9}, {0: -1, 1: 9}, (9, 9), (8, 9)),
        (50, EARLY, (50, 50), (40, 50)),
        ("earliest", 40, (50, 0), (40, 40)),
        (GroupOffsets("g"), LATE, (5, 6), (4, 5)),
        (GroupOffsets("g"), 4, (5, 6), (4, 4)),
        (GroupOffsets("g"), {0: LATE, 1: LATE}, (5, 6), (4, 5)),
    ],
)
def test_a_partition_may_have_nothing_between_start_and_end(
    start: Place, end: Place, starts: tuple[int, int], ends: tuple[int, int]
) -> None:
    check_order(start, end, by_partition(starts), by_partition(ends))


def test_records_before_the_end_may_all_be_gone_if_gaps_are_passed_over() -> None:
    starts, ends = by_partition((50, 0)), by_partition((40, 9))
    check_order("earliest", {0: 40, 1: 9}, starts, ends, "clip")
    with pytest.raises(ConfigError, match="is offset 50 of orders-0"):
        check_order(50, {0: 40, 1: 60}, by_partition((50, 50)), by_partition((40, 60)), "clip")


@pytest.mark.parametrize(
    ("end", "ends", "beyond"),
    [
        (5000, (5000, 5000), True),
        (150, (150, 150), False),
        ({0: 100, 1: 201}, (100, 201), True),
        ({0: 100, 1: 200}, (100, 200), False),
        ("latest", (100, 200), False),
    ],
)
def test_an_end_beyond_the_log_is_not_cut_unless_gaps_are_passed_over(
    end: Place, ends: tuple[int, int], beyond: bool
) -> None:
    last = by_partition((100, 200))
    assert is_beyond(end, "end", by_partition(ends), last) is beyond
    assert not is_beyond(end, "end", by_partition(ends), last, "clip")


def by_partition(offsets: tuple[int, int]) -> dict[TopicPartition, int]:
    return dict(zip((ORDERS, SECOND), offsets, strict=True))


def test_a_consumers_security_is_used_for_planning_and_its_group_is_not() -> None:
    from asyncrevoke.client.config import ConsumerConfig

    given = ConsumerConfig(
        bootstrap_servers="kafka-1:9093",
        group_id="billing",
        security_protocol="SASL_SSL",
        sasl_plain_username="u",
        sasl_plain_password="p",
    )
    config = configured(given)
    assert config.group_id is None
    assert config.isolation_level == "read_committed"
    assert (config.security_protocol, config.sasl_plain_username) == ("SASL_SSL", "u")
