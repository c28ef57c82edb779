"""Planning of ranges, without a broker."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from asyncrevoke.errors import ConfigError
from asyncrevoke.model import TopicPartition
from asyncrevoke.spark.errors import DataLossError
from asyncrevoke.spark.reading.offsets import (
    OffsetRange,
    configured,
    log_missing_offsets,
    plan_range,
)
from asyncrevoke.spark.reading.places import GroupOffsets, check_place

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


def test_a_consumers_security_is_used_for_planning_and_its_group_is_not() -> None:
    from asyncrevoke.config import ConsumerConfig

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
