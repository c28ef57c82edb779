"""The report of an audit: JSON, and an HTML page with SVG pictures that loads nothing."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from asyncrevoke.audit.anomalies import DESCRIPTIONS, Anomaly, AnomalyKind, Severity
from asyncrevoke.printable import LONGEST_MESSAGE, printable_html

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from asyncrevoke.audit.comparison import AuditResult

# Anomalies on the page; all of them are in the JSON.
_SHOWN = 500
_WIDTH, _LEFT, _ROW = 960, 90, 22
_COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#9d755d", "#eeca3b")

# The page has no script and loads nothing.
_POLICY = (
    "<meta HTTP-EQUIV=Content-Security-Policy "
    """content="default-src 'none'; style-src 'unsafe-inline'">"""
)
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse;font-size:13px}td,th{padding:3px 10px;border-bottom:1px solid #ddd;
text-align:left;vertical-align:top}.PASS{color:#2a7d2a}.FAIL{color:#b00020}.INCONCLUSIVE{color:#a66a00}
.WARN{color:#a66a00}.INFO{color:#666}h1 span{font-size:1.2em}code{font-size:12px}
svg text{font-size:11px}
"""


def for_machines(audited: AuditResult) -> dict[str, Any]:
    """The result as a JSON object."""
    return {
        "verdict": audited.verdict,
        "topic": audited.topic,
        "group": audited.group,
        "attempts": audited.attempts,
        "done": audited.done,
        "read": audited.read,
        "two_tiers": audited.two_tiers,
        "compared_exactly": [each._asdict() for each in audited.exact_ranges],
        "windows": audited.windows,
        "latency": audited.latency,
        "sessions": [state._asdict() | {"gap": state.gap} for state in audited.sessions],
        "anomalies": [a._asdict() | {"severity": a.severity} for a in audited.anomalies],
    }


def write_report(audited: AuditResult, folder: Path) -> None:
    """Write ``report.html`` and ``report.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.html").write_text(as_html(audited), encoding="utf-8")
    encoded = json.dumps(for_machines(audited), default=str)
    (folder / "report.json").write_text(encoded, encoding="utf-8")


def counts(anomalies: Iterable[Anomaly]) -> dict[AnomalyKind, int]:
    """The number of records (or cases) of each kind, in the order of the kinds."""
    found: Counter[AnomalyKind] = Counter()
    for anomaly in anomalies:
        lo, hi = anomaly.offset_lo, anomaly.offset_hi
        found[anomaly.kind] += 1 if lo is None or hi is None else hi - lo + 1
    return {kind: found[kind] for kind in DESCRIPTIONS if kind in found}


def as_html(audited: AuditResult) -> str:
    """The page."""
    name, group = printable_html(audited.topic), printable_html(str(audited.group))
    verdict = audited.verdict
    return "".join(
        (
            f"<!doctype html><html lang=en><meta charset=utf-8>{_POLICY}",
            f"<title>{verdict}: {name}</title>",
            f"<style>{_STYLE}</style><h1><span class={verdict}>{verdict}</span> {name}</h1>",
            f"<p>Group <b>{group}</b>: {audited.attempts:,} attempts, ",
            f"{audited.done:,} records done, {audited.read:,} records read back from the topic. ",
            _how(audited),
            "</p><h2>Findings</h2>",
            _findings(audited),
            "<h2>Who owned what</h2>",
            _ownership(audited),
            "<h2>How long calls took</h2>",
            _latency(audited),
            "<h2>Sessions</h2>",
            _sessions(audited),
            "</html>",
        )
    )


def _how(audited: AuditResult) -> str:
    if not audited.two_tiers:
        return "Every record was compared."
    ranges = len(audited.exact_ranges)
    return (
        "Fingerprints of 32,768 offsets were compared, and record by record the "
        f"{ranges} ranges in which they differ."
    )


def _findings(audited: AuditResult) -> str:
    if not audited.anomalies:
        return "<p>Nothing.</p>"
    rows = [
        (
            f"<b class={DESCRIPTIONS[kind].severity}>{DESCRIPTIONS[kind].severity}</b>",
            f"<code>{kind}</code>",
            f"{count:,}",
            printable_html(DESCRIPTIONS[kind].text),
        )
        for kind, count in counts(audited.anomalies).items()
    ]
    shown = sorted(audited.anomalies, key=lambda a: list(Severity).index(a.severity))[:_SHOWN]
    single = [
        (
            f"<code class={a.severity}>{a.kind}</code>",
            _where(a),
            _time(a.observed_us),
            printable_html(", ".join(a.sessions)),
            f"<code>{printable_html(json.dumps(a.evidence, default=str), LONGEST_MESSAGE)}</code>",
        )
        for a in shown
    ]
    more = len(audited.anomalies) - len(shown)
    rest = f"<p>{more:,} more are in the JSON.</p>" if more else ""
    return (
        _table(("", "what", "records", "meaning"), rows)
        + "<h3>One by one</h3>"
        + _table(("what", "offsets", "when", "sessions", "evidence"), single)
        + rest
    )


def _where(anomaly: Anomaly) -> str:
    if anomaly.partition is None:
        return ""
    lo, hi = anomaly.offset_lo, anomaly.offset_hi
    offsets = "" if lo is None else f" {lo}" if lo == hi else f" {lo} to {hi}"
    return f"partition {anomaly.partition}{offsets}"


def _ownership(audited: AuditResult) -> str:
    spans = audited.spans
    if not spans:
        return "<p>No partition was assigned.</p>"
    ends = [state.last_us for state in audited.sessions if state.last_us is not None]
    first = min(since for _, _, since, _ in spans)
    last = max([*ends, first + 1])
    scale = (_WIDTH - _LEFT) / (last - first)
    partitions = sorted({partition for partition, *_ in spans})
    colours = {
        name: _COLOURS[n % len(_COLOURS)]
        for n, name in enumerate(sorted({name for _, name, *_ in spans}))
    }
    shapes = [
        f'<text x="0" y="{_ROW * n + 15}">partition {partition}</text>'
        for n, partition in enumerate(partitions)
    ]
    for partition, name, since, until in spans:
        x, y = _LEFT + (since - first) * scale, _ROW * partitions.index(partition)
        width = max(1.0, ((until or last) - since) * scale)
        title = f"{name}: {_time(since)} to {_time(until) or 'the end'}"
        shapes.append(
            f'<rect x="{x:.1f}" y="{y + 3}" width="{width:.1f}" height="{_ROW - 6}" '
            f'fill="{colours[name]}"><title>{printable_html(title)}</title></rect>'
        )
    for anomaly in audited.anomalies:
        if anomaly.kind is AnomalyKind.STALL and anomaly.partition in partitions:
            start = anomaly.observed_us or first
            seconds = anomaly.evidence["seconds"]
            assert isinstance(seconds, float)
            x = _LEFT + (start - first) * scale
            y = _ROW * partitions.index(anomaly.partition)
            shapes.append(
                f'<rect x="{x:.1f}" y="{y}" width="{max(1.0, seconds * 1e6 * scale):.1f}" '
                f'height="{_ROW}" fill="none" stroke="#b00020" stroke-width="2">'
                f"<title>a stall of {seconds:.1f} s</title></rect>"
            )
    legend = " ".join(
        f'<span style="color:{colour}">&#9632;</span> {printable_html(name)}'
        for name, colour in colours.items()
    )
    height = _ROW * len(partitions)
    return (
        f"<p>{_time(first)} to {_time(last)}; stalls are framed in red. {legend}</p>"
        f'<svg viewBox="0 0 {_WIDTH} {height}" width="100%">{"".join(shapes)}</svg>'
    )


def _latency(audited: AuditResult) -> str:
    if not audited.latency:
        return "<p>A loop took the records: when work on each began and ended is not known.</p>"
    told = ", ".join(f"{name} {_seconds(value)}" for name, value in audited.latency.items())
    points = audited.latency_by_time
    highest = max(p99 for _, _, p99 in points) or 1e-6
    first, last = points[0][0], points[-1][0]
    height = 160

    def line(values: Sequence[float], colour: str) -> str:
        at = [
            f"{_LEFT + (at - first) / max(1, last - first) * (_WIDTH - _LEFT):.1f},"
            f"{height - value / highest * (height - 10):.1f}"
            for (at, _, _), value in zip(points, values, strict=True)
        ]
        if len(at) == 1:
            x, _, y = at[0].partition(",")
            return f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>'
        return f'<polyline fill="none" stroke="{colour}" points="{" ".join(at)}"/>'

    return (
        f"<p>{told}. The lines are the median (blue) and the 99th percentile (orange).</p>"
        f'<svg viewBox="0 0 {_WIDTH} {height + 4}" width="100%">'
        f'<text x="0" y="14">{_seconds(highest)}</text><text x="0" y="{height}">0</text>'
        f"{line([p50 for _, p50, _ in points], _COLOURS[0])}"
        f"{line([p99 for _, _, p99 in points], _COLOURS[1])}</svg>"
    )


def _sessions(audited: AuditResult) -> str:
    rows = [
        (
            printable_html(state.name),
            printable_html(f"{state.facts.get('host')} {state.facts.get('pid')}"),
            f"{state.rows:,}",
            _time(state.began_us),
            _time(state.last_us),
            printable_html(state.gap or ("being written" if state.live else "whole")),
        )
        for state in audited.sessions
    ]
    return _table(("session", "process", "rows", "from", "to", "state"), rows)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{name}</th>" for name in header)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _time(us: int | None) -> str:
    if us is None:
        return ""
    return datetime.fromtimestamp(us / 1e6, UTC).isoformat(sep=" ", timespec="milliseconds")


def _seconds(value: float) -> str:
    return f"{value * 1000:.2f} ms" if value < 1 else f"{value:.2f} s"
