"""Says what an audit has covered, and writes its report: JSON, and a self-contained HTML page."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from asyncrevoke.audit.anomalies import DESCRIPTIONS, Anomaly, AnomalyKind, Severity
from asyncrevoke.audit.audited_group import is_share_group
from asyncrevoke.client.printable import counted
from asyncrevoke.web.pages.report_file import write_report_file
from asyncrevoke.web.pages.templates import Drawing, render

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from asyncrevoke.audit.results.audit_result import AuditResult


_NOT_COMPARED = (
    "The committed offsets of the group were not compared with the journals: the audit finds a "
    "member without a journal only if another member continued after it."
)
_STARTS_NOT_COMPARED = (
    "The start offsets of the share group were not compared with the journals: the audit does not "
    "know which records the group delivers no more."
)


class Coverage(NamedTuple):
    """``offsets`` counts the compared offsets in ``partitions``. ``sessions`` counts the sessions
    of the group; ``first_us`` and ``last_us`` are the times of their first and last row, None
    without sessions."""

    partitions: int
    offsets: int
    sessions: int
    first_us: int | None
    last_us: int | None


def coverage_of(audited: AuditResult) -> Coverage:
    """What this audit covered."""
    compared = [max(0, window["hi"] - window["lo"]) for window in audited.windows]
    begins = [s.began_us for s in audited.sessions if s.began_us is not None]
    ends = [s.last_us for s in audited.sessions if s.last_us is not None]
    return Coverage(
        len(compared),
        sum(compared),
        len(audited.sessions),
        min(begins, default=None),
        max(ends, default=None),
    )


def coverage_lines(audited: AuditResult) -> Iterator[str]:
    """Sentences about what the audit has covered."""
    found = coverage_of(audited)
    times = f", from {shown_time(found.first_us)} to {shown_time(found.last_us)}"
    yield (
        f"Covered: {found.offsets:,} offsets of {counted(found.partitions, 'partition')}, in the "
        f"journals of {counted(found.sessions, 'session')}{times if found.sessions else ''}."
    )
    yield group_offsets_line(audited)
    if audited.vouched:
        yield (
            "The journals were compared with a list of all sessions. If all of them are present, a "
            "committed record that no journal names was lost."
        )
    for topic, visible, written in audited.results:
        yield (
            f"Results in {topic}: {counted(visible, 'visible record')} and {written:,} in the "
            "journals, with those of aborted transactions."
        )


def group_offsets_line(audited: AuditResult) -> str:
    """A sentence about the committed offsets that were compared."""
    known = audited.group_offsets
    is_share = is_share_group(audited.sessions)
    if known is None:
        return _STARTS_NOT_COMPARED if is_share else _NOT_COMPARED
    source = "the broker" if known.source == "broker" else "a snapshot of `journal collect`"
    what = "start offsets" if is_share else "committed offsets"
    return (
        f"The {what} of {counted(len(known.offsets), 'partition')}, from {source} at "
        f"{shown_time(known.at_us)}, were compared with the journals."
    )


def as_json(audited: AuditResult) -> dict[str, Any]:
    """What the audit has covered, as a JSON object."""
    known = audited.group_offsets
    compared = None
    if known is not None:
        offsets = {str(part): offset for part, offset in sorted(known.offsets.items())}
        compared = {"source": known.source, "at_us": known.at_us, "offsets": offsets}
    facts = {"group_offsets": compared, "vouched": audited.vouched}
    return {**coverage_of(audited)._asdict(), **facts}


def shown_time(us: int | None) -> str:
    """A time in UTC, to the millisecond; empty for None."""
    if us is None:
        return ""
    return datetime.fromtimestamp(us / 1e6, UTC).isoformat(sep=" ", timespec="milliseconds")


# Anomalies on the page. The JSON has all of them.
_SHOWN = 500
_WIDTH, _LEFT, _ROW = 960, 90, 22
_HEIGHT = 160
_COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#9d755d", "#eeca3b")


def for_machines(audited: AuditResult) -> dict[str, Any]:
    """The result as a JSON object."""
    return {
        "status": audited.status,
        "topic": audited.topic,
        "group": audited.group,
        "attempts": audited.attempts,
        "done": audited.done,
        "read": audited.read,
        "two_tiers": audited.two_tiers,
        "compared_exactly": [exact_range._asdict() for exact_range in audited.exact_ranges],
        "coverage": as_json(audited),
        "windows": audited.windows,
        "latency": audited.latency,
        "results": [compared._asdict() for compared in audited.results],
        "sessions": [state._asdict() | {"gap": state.gap} for state in audited.sessions],
        "anomalies": [a._asdict() | {"severity": a.severity} for a in audited.anomalies],
    }


def write_report(audited: AuditResult, folder: Path) -> None:
    """Write ``report.html`` and ``report.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    write_report_file(folder / "report.html", as_html(audited))
    encoded = json.dumps(for_machines(audited), default=str)
    write_report_file(folder / "report.json", encoded)


def counts(anomalies: Iterable[Anomaly]) -> dict[AnomalyKind, int]:
    """The number of records (or cases) of each kind of anomaly, in the order of the kinds."""
    found: Counter[AnomalyKind] = Counter()
    for anomaly in anomalies:
        lo, hi = anomaly.offset_lo, anomaly.offset_hi
        found[anomaly.kind] += 1 if lo is None or hi is None else hi - lo + 1
    return {kind: found[kind] for kind in DESCRIPTIONS if kind in found}


def as_html(audited: AuditResult) -> str:
    """The page."""
    return render(
        "audit/results/report.html",
        result=audited,
        is_share=is_share_group(audited.sessions),
        counts=counts(audited.anomalies),
        descriptions=DESCRIPTIONS,
        shown=sorted(audited.anomalies, key=_rank)[:_SHOWN],
        coverage=list(coverage_lines(audited)),
        ownership=_ownership(audited),
        latency=_latency(audited),
        time=shown_time,
        seconds=_seconds,
        json=partial(json.dumps, default=str),
    )


def _rank(anomaly: Anomaly) -> int:
    return list(Severity).index(anomaly.severity)


class _Ownership(NamedTuple):
    """The ownership of partitions by sessions, from ``first`` to ``last``."""

    first: int
    last: int
    colours: dict[str, str]
    drawing: Drawing


def _ownership(audited: AuditResult) -> _Ownership | None:
    spans = audited.spans
    if not spans:
        return None
    ends = [state.last_us for state in audited.sessions if state.last_us is not None]
    first = min(since for _, _, since, _ in spans)
    last = max([*ends, first + 1])
    scale = (_WIDTH - _LEFT) / (last - first)
    rows = {part: _ROW * n for n, part in enumerate(sorted({part for part, *_ in spans}))}
    names = sorted({name for _, name, *_ in spans})
    colours = {name: _COLOURS[n % len(_COLOURS)] for n, name in enumerate(names)}
    drawing = Drawing(_WIDTH, _ROW * len(rows))

    def box(part: int, since: int, us: float, inset: int, title: str, **style: str | float) -> None:
        drawing.add(
            "rect",
            "",
            title,
            x=_LEFT + (since - first) * scale,
            y=rows[part] + inset,
            width=max(1.0, us * scale),
            height=_ROW - 2 * inset,
            **style,
        )

    for part, y in rows.items():
        drawing.add("text", f"partition {part}", x=0, y=y + 15)
    for part, name, since, until in spans:
        title = f"{name}: {shown_time(since)} to {shown_time(until) or 'the end'}"
        box(part, since, (until or last) - since, 3, title, fill=colours[name])
    for anomaly in audited.anomalies:
        if anomaly.kind is AnomalyKind.STALL and anomaly.partition in rows:
            seconds = anomaly.evidence["seconds"]
            assert isinstance(seconds, float)
            frame: dict[str, str | float] = {"fill": "none", "stroke": "#b00020", "stroke_width": 2}
            since, title = anomaly.observed_us or first, f"a stall of {seconds:.1f} s"
            box(anomaly.partition, since, seconds * 1e6, 0, title, **frame)
    return _Ownership(first, last, colours, drawing)


def _latency(audited: AuditResult) -> Drawing | None:
    """The median and the 99th percentile over time."""
    points = audited.latency_by_time
    if not audited.latency:
        return None
    highest = max(p99 for _, _, p99 in points) or 1e-6
    first, last = points[0][0], points[-1][0]
    drawing = Drawing(_WIDTH, _HEIGHT + 4)
    drawing.add("text", _seconds(highest), x=0, y=14)
    drawing.add("text", "0", x=0, y=_HEIGHT)
    for column, colour in ((1, _COLOURS[0]), (2, _COLOURS[1])):
        line = [
            (
                _LEFT + (point[0] - first) / max(1, last - first) * (_WIDTH - _LEFT),
                _HEIGHT - point[column] / highest * (_HEIGHT - 10),
            )
            for point in points
        ]
        if len(line) == 1:
            ((x, y),) = line
            drawing.add("circle", cx=x, cy=y, r=3, fill=colour)
        else:
            drawing.add_line(line, fill="none", stroke=colour)
    return drawing


def _seconds(value: float) -> str:
    return f"{value * 1000:.2f} ms" if value < 1 else f"{value:.2f} s"
