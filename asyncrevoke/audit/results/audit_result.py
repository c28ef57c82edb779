"""The audit of some partitions, and how the audits of all partitions become one result."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from asyncrevoke.audit.anomalies import DESCRIPTIONS, Anomaly, AnomalyKind, AuditStatus, status_of
from asyncrevoke.audit.offsets import AuditedGroupOffsets, Range
from asyncrevoke.audit.results.durations import (
    DurationCount,
    intervals_of,
    quantiles,
    quantiles_by_time,
)
from asyncrevoke.journal.reading import SessionState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from asyncrevoke.audit.audited_group import AuditedGroup


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


class AuditResult(NamedTuple):
    """The result of an audit, with all that a report shows.

    ``attempts`` and ``done`` count rows of the journal and records that were done; ``read`` counts
    records of the topic. ``exact_ranges`` were compared record by record. ``group_offsets`` are the
    committed offsets; None if they were not compared. ``spans`` are rows of partition, session,
    start and end of ownership (None: still owned). ``latency`` has the durations of calls in
    seconds by quantile; ``latency_by_time`` has rows of time, median and p99.
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


def merged(group: AuditedGroup, parts: Sequence[PartialAudit]) -> AuditResult:
    """The result of audits that together compared all partitions, each partition in one of them."""
    anomalies = [
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
