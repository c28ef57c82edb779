"""A section of the report as a picture: bars with their spread, or a curve over time."""

# Many arguments of matplotlib have no types.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.report.results import Section

_OURS = "#1f77b4"
_OTHERS = "#b0b7bf"
# matplotlib writes colours into each element, so a style sheet has to overrule them.
_DARK = (
    "@media (prefers-color-scheme: dark) { svg { fill: #f1f5f9 } "
    + " ".join(
        f'[style*="{kind}: {light}"] {{ {kind}: {dark} !important }}'
        for kind, light, dark in (
            ("fill", "#ffffff", "#0d1117"),
            ("fill", "#222222", "#f1f5f9"),
            ("fill", _OURS, "#4aa3df"),
            ("fill", _OTHERS, "#64748b"),
            ("stroke", "#000000", "#94a3b8"),
            ("stroke", "#444444", "#cbd5e1"),
            ("stroke", _OURS, "#4aa3df"),
        )
    )
    + " }"
)
_WIDTH = 8.0  # inches
_ROW = 0.36


def draw(section: Section, file: Path) -> None:
    """Write an SVG, for light and dark pages."""
    # With a salt the same results give the same file.
    with mpl.rc_context({"svg.hashsalt": "asyncrevoke", "svg.fonttype": "path", "font.size": 9}):
        if section.lines:
            figure = _lines(section)
        else:
            figure = _curve(section) if section.curve else _bars(section)
        figure.savefig(file, metadata={"Date": None}, facecolor="white")
    file.write_text(file.read_text("utf-8").replace("</style>", f"{_DARK}</style>", 1), "utf-8")


def _bars(section: Section) -> Figure:
    measure = section.measures[0]
    rounds = {client: values for client, values in measure.rounds.items() if values}
    figure = Figure((_WIDTH, 0.9 + _ROW * len(rounds)), layout="constrained")
    axes = figure.add_subplot()
    names = list(rounds)
    middles = [statistics.median(values) for values in rounds.values()]
    below = [middle - min(values) for middle, values in zip(middles, rounds.values(), strict=True)]
    above = [max(values) - middle for middle, values in zip(middles, rounds.values(), strict=True)]
    colours = [_OURS if name.startswith("asyncrevoke") else _OTHERS for name in names]
    axes.barh(
        names,
        middles,
        color=colours,
        xerr=[below, above],
        error_kw={"ecolor": "#444", "elinewidth": 1, "capsize": 2},
    )
    most = max((max(values) for values in rounds.values()), default=1.0) or 1.0
    for row, (middle, extra) in enumerate(zip(middles, above, strict=True)):
        label = f"{middle:,.{measure.digits}f}"
        axes.text(middle + extra + most * 0.015, row, label, va="center", color="#222")
    axes.invert_yaxis()
    axes.set_xlim(0, most * 1.14)
    axes.locator_params(axis="x", nbins=6)
    axes.set_title(f"{section.title}: {measure.title}", loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_formatter(_number)
    return figure


def _number(value: float, _position: object) -> str:
    return f"{value:,.10g}"


def _curve(section: Section) -> Figure:
    figure = Figure((_WIDTH, 2.6), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(*zip(*section.curve, strict=True), color=_OURS)
    axes.set_ylim(0, max(size for _, size in section.curve) * 1.2)
    axes.set_xlabel("seconds")
    axes.set_title(f"{section.title}: {section.measures[0].title}", loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _lines(section: Section) -> Figure:
    figure = Figure((_WIDTH, 2.4 * len(section.lines)), layout="constrained")
    panels = figure.subplots(len(section.lines), squeeze=False)[:, 0]
    for axes, measure, lines in zip(panels, section.measures, section.lines, strict=True):
        for client, points in lines.items():
            colour = _OURS if client.startswith("asyncrevoke") else _OTHERS
            axes.plot(*zip(*points, strict=True), color=colour, marker="o", markersize=3)
            axes.annotate(
                client,
                points[-1],
                xytext=(0, 5),
                textcoords="offset points",
                ha="right",
                color="#222",
            )
        axes.set_xscale("log")
        axes.set_ylim(0, 1.2 * max(y for points in lines.values() for _, y in points))
        axes.set_title(f"{section.title}: {measure.title}", loc="left", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.xaxis.set_major_formatter(_number)
        axes.yaxis.set_major_formatter(_number)
    panels[-1].set_xlabel(section.over)
    return figure
