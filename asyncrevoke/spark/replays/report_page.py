"""Renders the report of a replay as one self-contained page of HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.web.pages.templates import Drawing, render

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.spark.replays.report import ReplayReport

_WIDTH, _HEIGHT, _MARGIN = 720, 220, 34


def report_page(report: ReplayReport) -> str:
    """The report of a replay as one self-contained HTML page."""
    return render(
        "spark/replays/report_page.html",
        report=report,
        latency={
            f"{percent:.0%} within": f"{seconds * 1000:.1f} ms"
            for percent, seconds in report.latency.items()
        },
        calls=_calls(report.histogram) if report.histogram else None,
    )


def _calls(histogram: Mapping[float, int]) -> Drawing:
    """A histogram of call durations, with four bars for each doubling."""
    most = max(histogram.values())
    bounds = sorted(histogram)
    width = (_WIDTH - 2 * _MARGIN) / len(bounds)
    drawing = Drawing(_WIDTH, _HEIGHT, role="img", aria_label="Calls by duration")
    for index, bound in enumerate(bounds):
        height = (_HEIGHT - 2 * _MARGIN) * histogram[bound] / most
        x = _MARGIN + index * width
        drawing.add(
            "rect",
            "",
            f"up to {bound * 1000:.2f} ms: {histogram[bound]}",
            x=x,
            y=_HEIGHT - _MARGIN - height,
            width=max(1.0, width - 1),
            height=height,
            fill="#3465a4",
        )
        if index % max(1, len(bounds) // 8) == 0:
            drawing.add("text", _duration(bound), x=x, y=_HEIGHT - _MARGIN / 2)
    drawing.add("text", f"{most} calls", x=0, y=_MARGIN / 2)
    return drawing


def _duration(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"
