"""Durations of calls, counted by value, and added up for several partitions."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from asyncrevoke.audit.results.audit_result import (
    DurationCount,
    Intervals,
    counted,
    quantiles,
    quantiles_by_time,
)
from asyncrevoke.audit.sql.database import AuditDatabase

if TYPE_CHECKING:
    from collections.abc import Sequence

Call = tuple[int, int]

COLUMNS = {"s": "BIGINT", "f": "BIGINT", "attempt": "INT"}
INTERVALS = Intervals(1_000, 10_000)


def counts(calls: Sequence[Call]) -> list[DurationCount]:
    """The counts of calls, each with its start and end."""
    database = AuditDatabase()
    try:
        database.put("attempts", COLUMNS, [(s, f, 1) for s, f in calls])
        return [DurationCount(*row) for row in database.rows(counted(INTERVALS))]
    finally:
        database.close()


def exact(calls: Sequence[Call], share: float) -> float:
    """The least duration in seconds that this share of the calls does not exceed."""
    ordered = sorted(f - s for s, f in calls)
    return ordered[max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1)] / 1e6


@pytest.mark.parametrize("seed", range(5))
def test_quantiles_of_two_partitions_are_those_of_all_calls(seed: int) -> None:
    chance = random.Random(seed)
    starts = [1_000 + chance.randrange(90_000) for _ in range(3_000)]
    calls = [(s, s + int(10 ** chance.uniform(0, 6))) for s in starts]
    found = quantiles([*counts(calls[:1_000]), *counts(calls[1_000:])])
    assert found["max"] == max(f - s for s, f in calls) / 1e6
    for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        assert 0.996 * exact(calls, share) <= found[name] <= exact(calls, share)


def test_quantiles_by_time_have_an_entry_for_each_interval_with_calls() -> None:
    calls = [(1_000, 1_100), (1_000, 1_200), (41_000, 41_003)]
    found = quantiles_by_time(counts(calls), INTERVALS)
    assert found == [(1_000, 100 / 1e6, 200 / 1e6), (41_000, 3 / 1e6, 3 / 1e6)]


def test_there_are_no_quantiles_without_calls() -> None:
    assert quantiles([]) == {}
    assert quantiles_by_time([], INTERVALS) == []


def test_calls_without_an_attempt_number_are_not_counted() -> None:
    database = AuditDatabase()
    database.put("attempts", COLUMNS, [(1_000, 2_000, None)])
    assert database.rows(counted(INTERVALS)) == []
    database.close()


def test_a_clock_that_went_back_counts_as_no_time() -> None:
    assert counts([(5_000, 4_000)]) == [(0, 0, 1, 0)]
