"""The audit of some partitions, and how the audits of all partitions become one result."""

from __future__ import annotations

from collections import defaultdict
from itertools import accumulate
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from asyncrevoke.audit.anomalies import DESCRIPTIONS, Anomaly, AnomalyKind, AuditStatus, status_of
from asyncrevoke.audit.offsets import AuditedGroupOffsets, Range
from asyncrevoke.audit.sql.text import Sql, compose
from asyncrevoke.journal.reading import SessionState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from asyncrevoke.audit.audited_group import AuditedGroup


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


class PartialAudit(NamedTuple):
    """The audit of some partitions of a topic.

    ``gaps`` are anomalies that no rule found: committed offsets without a row in a journal, and
    content that cannot be compared. ``spans`` are rows of partition, session, start and end of
    ownership (None: still owned).
    """

    gaps: list[Anomaly]
    anomalies: list[Anomaly]
    attempts: int
    done: int
    read: int
    two_tiers: bool
    exact_ranges: list[Range]
    windows: list[dict[str, Any]]
    spans: list[tuple[int, str, int, int | None]]
    durations: list[DurationCount]


class ComparedResults(NamedTuple):
    """A topic of results: how many of its records are visible, from the first one that a journal
    names on, and how many results the journals have in it, with those of aborted transactions."""

    topic: str
    visible: int
    written: int


class AuditResult(NamedTuple):
    """The result of an audit, with all that a report shows.

    ``attempts`` and ``done`` count rows of the journal and records that were done; ``read`` counts
    records of the topic. ``exact_ranges`` were compared record by record. ``group_offsets`` are the
    committed offsets; None if they were not compared. ``spans`` are rows of partition, session,
    start and end of ownership (None: still owned). ``vouched``: a list of all sessions was
    compared with the journals. ``latency`` has the durations of calls in
    seconds by quantile; ``latency_by_time`` has rows of time, median and p99. ``results`` are the
    topics of results that were compared.
    """

    topic: str
    group: str | None
    status: AuditStatus
    anomalies: list[Anomaly]
    sessions: tuple[SessionState, ...]
    attempts: int
    done: int
    read: int
    two_tiers: bool
    exact_ranges: list[Range]
    windows: list[dict[str, Any]]
    group_offsets: AuditedGroupOffsets | None
    spans: list[tuple[int, str, int, int | None]]
    latency: dict[str, float]
    latency_by_time: list[tuple[int, float, float]]
    results: tuple[ComparedResults, ...] = ()
    vouched: bool = False


def merged(group: AuditedGroup, parts: Sequence[PartialAudit]) -> AuditResult:
    """The result of audits that together compared all partitions, each partition in one of them."""
    anomalies = [
        *_missing_journals(group),
        *_gaps_of(group.sessions),
        *sorted(_distinct(gap for part in parts for gap in part.gaps), key=_order),
        *sorted((anomaly for part in parts for anomaly in part.anomalies), key=_order),
    ]
    durations = [duration for part in parts for duration in part.durations]
    return AuditResult(
        group.topic,
        group.name,
        status_of(anomalies),
        anomalies,
        group.sessions,
        sum(part.attempts for part in parts),
        sum(part.done for part in parts),
        sum(part.read for part in parts),
        any(part.two_tiers for part in parts),
        sorted(exact_range for part in parts for exact_range in part.exact_ranges),
        sorted((window for part in parts for window in part.windows), key=itemgetter("part")),
        group.group_offsets,
        sorted((span for part in parts for span in part.spans), key=itemgetter(0, 2)),
        quantiles(durations),
        quantiles_by_time(durations, intervals_of(group.sessions)),
        vouched=group.vouched is not None,
    )


_RANKS = {kind: rank for rank, kind in enumerate(DESCRIPTIONS)}


def _order(anomaly: Anomaly) -> tuple[int, int, int, int, tuple[str, ...]]:
    at = 0 if anomaly.observed_us is None else anomaly.observed_us
    place = anomaly.partition or 0, anomaly.offset_lo or 0
    return _RANKS[anomaly.kind], *place, at, anomaly.sessions


def _distinct(gaps: Iterable[Anomaly]) -> Iterator[Anomaly]:
    """Each once: an anomaly of a whole session is found for all of its partitions."""
    found: set[tuple[AnomalyKind, tuple[str, ...], str]] = set()
    for gap in gaps:
        key = gap.kind, gap.sessions, str(gap.evidence)
        if gap.partition is not None:
            yield gap
        elif key not in found:
            found.add(key)
            yield gap


def _missing_journals(group: AuditedGroup) -> list[Anomaly]:
    absent = () if group.vouched is None else group.vouched.absent
    return [
        Anomaly(AnomalyKind.JOURNAL_MISSING, sessions=(name,), evidence={"reason": reason})
        for name, reason in absent
    ]


def _gaps_of(sessions: Sequence[SessionState]) -> list[Anomaly]:
    return [
        Anomaly(
            AnomalyKind.JOURNAL_GAP,
            sessions=(state.name,),
            observed_us=state.last_us,
            evidence={"reason": state.gap, "missing_rows": [list(rows) for rows in state.missing]},
        )
        for state in sessions
        if state.gap is not None
    ]
