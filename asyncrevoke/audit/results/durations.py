"""The durations of handler calls, counted so that the counts of several partitions can be added."""

from __future__ import annotations

from collections import defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

from asyncrevoke.audit.sql.text import compose

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from asyncrevoke.audit.sql.text import Sql
    from asyncrevoke.journal.reading import SessionState

_INTERVALS: Final = 120
# Durations keep this many significant bits, so quantiles are at most 0.4 % too low.
_BITS: Final = 8


class DurationCount(NamedTuple):
    """``calls`` ended in the interval of this number and took about ``us`` microseconds, none of
    them more than ``longest``."""

    interval: int
    us: int
    calls: int
    longest: int


class Intervals(NamedTuple):
    """Equal intervals of time from ``first`` on, numbered from 0, each of ``step`` microseconds."""

    first: int
    step: int


def intervals_of(sessions: Sequence[SessionState]) -> Intervals:
    """Intervals that divide the time in which these sessions ran."""
    first = min((s.began_us for s in sessions if s.began_us is not None), default=0)
    last = max((s.last_us for s in sessions if s.last_us is not None), default=first)
    return Intervals(first, max(1, (last - first) // _INTERVALS))


def counted(intervals: Intervals) -> Sql:
    """The query for the columns of :class:`DurationCount`, from the table ``attempts``."""
    return compose(
        """
        SELECT interval, (us >> bits) << bits AS us, count(*) AS calls, max(us) AS longest
        FROM (SELECT *, CAST(greatest(floor(log2(greatest(us, 1))) - {bits}, 0) AS INT) AS bits
              FROM (SELECT greatest(f - {first}, 0) // {step} AS interval,
                           greatest(f - s, 0) AS us
                    FROM attempts WHERE attempt IS NOT NULL))
        GROUP BY ALL
        """,
        bits=_BITS - 1,
        first=intervals.first,
        step=intervals.step,
    )


def quantiles(counts: Iterable[DurationCount]) -> dict[str, float]:
    """The median, two higher percentiles and the maximum, in seconds. Empty without calls."""
    calls: dict[int, int] = defaultdict(int)
    longest = 0
    for count in counts:
        calls[count.us] += count.calls
        longest = max(longest, count.longest)
    if not calls:
        return {}
    found = {name: quantile(calls, share) / 1e6 for name, share in _SHARES.items()}
    return {**found, "max": longest / 1e6}


_SHARES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def quantiles_by_time(
    counts: Iterable[DurationCount], intervals: Intervals
) -> list[tuple[int, float, float]]:
    """The time, the median and the 99th percentile, in seconds, of each interval with calls."""
    by_interval: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for count in counts:
        by_interval[count.interval][count.us] += count.calls
    return [
        (
            intervals.first + number * intervals.step,
            quantile(calls, 0.5) / 1e6,
            quantile(calls, 0.99) / 1e6,
        )
        for number, calls in sorted(by_interval.items())
    ]


def quantile(calls: Mapping[int, int], share: float) -> int:
    """The least value that at least ``share`` of the calls do not exceed."""
    values = sorted(calls)
    needed = share * sum(calls.values())
    return next(
        value
        for value, reached in zip(
            values, accumulate(calls[duration] for duration in values), strict=True
        )
        if reached >= needed
    )
