"""The report of a replay as one page of HTML, which needs no network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.printable import printable_html

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.spark.replays.report import ReplayReport

_WIDTH, _HEIGHT, _MARGIN = 720, 220, 34

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Replay {run_id}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto }}
table {{ border-collapse: collapse; margin: 1rem 0 }}
td, th {{ padding: .2rem 1rem .2rem 0; text-align: left; border-bottom: 1px solid #ddd }}
td.number {{ text-align: right }}
svg {{ max-width: 100%; height: auto }}
</style>
<h1>Replay {run_id}</h1>
<p>{records} records in {seconds:.1f} s{resumed}. Their rows are in <code>{results}</code>.</p>
<h2>Outcomes</h2>{outcomes}
{errors}
<h2>How long calls took</h2>{latency}
{plot}
<h2>Ranges</h2>{ranges}
</html>
"""


def report_page(report: ReplayReport) -> str:
    """The whole page."""
    errors = f"<h2>Errors</h2>{_table(report.errors)}" if report.errors else ""
    ranges = "".join(
        f"<tr><td>{printable_html(each.topic)}-{each.partition}<td class=number>{each.start}"
        f"<td class=number>{each.end}<td class=number>{each.missing or ''}"
        for each in report.ranges
    )
    return _PAGE.format(
        run_id=printable_html(report.run_id),
        records=report.records,
        seconds=report.seconds,
        resumed=", resumed: earlier rows of the run are counted, and their time is not"
        if report.resumed
        else "",
        results=printable_html(report.results),
        outcomes=_table(report.outcomes),
        errors=errors,
        latency=_table(
            {
                f"{percent:.0%} within": f"{seconds * 1000:.1f} ms"
                for percent, seconds in report.latency.items()
            }
        ),
        plot=latency_plot(report.histogram),
        ranges=f"<table><tr><th>partition<th>from<th>to<th>lost by the log{ranges}</table>",
    )


def latency_plot(histogram: Mapping[float, int]) -> str:
    """Calls by how long they took, as SVG: bars on a logarithmic axis, four to a doubling."""
    if not histogram:
        return "<p>No handler was called.</p>"
    most = max(histogram.values())
    bounds = sorted(histogram)
    width = (_WIDTH - 2 * _MARGIN) / len(bounds)
    label = 'role="img" aria-label="Calls by how long they took"'
    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" {label}>']
    for index, bound in enumerate(bounds):
        height = (_HEIGHT - 2 * _MARGIN) * histogram[bound] / most
        x, y = _MARGIN + index * width, _HEIGHT - _MARGIN - height
        parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(1, width - 1):.1f}" height="{height:.1f}" '
            f'fill="#3465a4"><title>up to {bound * 1000:.2f} ms: {histogram[bound]}</title></rect>'
        )
        if index % max(1, len(bounds) // 8) == 0:
            parts.append(
                f'<text x="{x:.1f}" y="{_HEIGHT - _MARGIN / 2:.1f}" font-size="12">'
                f"{_milliseconds(bound)}</text>"
            )
    parts.append(f'<text x="0" y="{_MARGIN / 2}" font-size="12">{most} calls</text></svg>')
    return "".join(parts)


def _milliseconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


def _table(rows: Mapping[str, object]) -> str:
    body = "".join(
        f"<tr><td>{printable_html(str(name))}<td class=number>{printable_html(str(value))}"
        for name, value in rows.items()
    )
    return f"<table>{body}</table>"
