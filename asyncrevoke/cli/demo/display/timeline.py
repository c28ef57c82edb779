"""The picture of a run: when each partition's handlers were called, and by whom."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from asyncrevoke.cli.demo.judge import handler_calls

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asyncrevoke.cli.demo.judge import GroupResult, ObservedCall, Stall
    from asyncrevoke.cli.demo.member.handler_log import Abandoned, Ended, Started
    from asyncrevoke.cli.demo.schedule import ScheduleStep

COLOURS = {"A": "#0e7490", "B": "#b45309", "C": "#15803d", "D": "#a21caf"}
LONG = 1.0
"""Handlers that take longer, in seconds, are drawn as lines."""
MARKED = 0.25
"""Stalls that take longer, in seconds, are marked."""

_WIDTH, _LEFT, _RIGHT = 1200, 70, 20
_ROW, _GAP, _HEAD, _FOOT = 16, 4, 64, 40
_FONT = "system-ui, sans-serif"


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One group's part of the picture; moments are on the shared clock."""

    title: str
    steps: Sequence[ScheduleStep]
    handled: Sequence[Started | Ended | Abandoned]
    died: Mapping[str, float]
    verdict: GroupResult


def draw(panels: Sequence[Panel], begin: float) -> str:
    """The picture as SVG, one panel below the other on one scale of seconds."""
    calls = {panel.title: handler_calls(panel.handled, panel.died) for panel in panels}
    ends = [call.end for each in calls.values() for call in each if call.end != float("inf")]
    seconds = max([end - begin for end in ends], default=1.0)
    rows = {
        title: sorted({call.record.partition.partition for call in each})
        for title, each in calls.items()
    }
    heights = [_HEAD + len(rows[panel.title]) * (_ROW + _GAP) + _FOOT for panel in panels]
    svg = ET.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {_WIDTH} {sum(heights)}",
            "width": str(_WIDTH),
            "height": str(sum(heights)),
            "font-family": _FONT,
            "font-size": "12",
        },
    )
    _rect(svg, 0, 0, _WIDTH, sum(heights), fill="#ffffff")
    top = 0.0
    for panel, height in zip(panels, heights, strict=True):
        scale = _Scale(begin, seconds)
        _draw_panel(svg, panel, calls[panel.title], rows[panel.title], scale, top)
        top += height
    ET.indent(svg)
    return ET.tostring(svg, encoding="unicode") + "\n"


@dataclass(frozen=True, slots=True)
class _Scale:
    begin: float
    seconds: float

    def x(self, at: float) -> float:
        """Where a moment on the shared clock lies."""
        share = (at - self.begin) / self.seconds
        return _LEFT + min(1.0, max(0.0, share)) * (_WIDTH - _LEFT - _RIGHT)


def _draw_panel(
    svg: ET.Element,
    panel: Panel,
    calls: Sequence[ObservedCall],
    rows: Sequence[int],
    scale: _Scale,
    top: float,
) -> None:
    _text(svg, 12, top + 22, panel.title, size=16, weight="600")
    _text(svg, 12, top + 40, _summary(panel.verdict), fill="#475569")
    rows_top = top + _HEAD
    y = {number: rows_top + index * (_ROW + _GAP) for index, number in enumerate(rows)}
    bottom = rows_top + len(rows) * (_ROW + _GAP)
    for number in rows:
        _text(svg, _LEFT - 8, y[number] + _ROW - 4, str(number), anchor="end", fill="#475569")
        _rect(svg, _LEFT, y[number], _WIDTH - _LEFT - _RIGHT, _ROW, fill="#f1f5f9")
    _draw_calls(svg, calls, y, scale)
    _draw_steps(svg, panel.steps, scale, rows_top, bottom)
    _draw_seconds(svg, scale, bottom)
    if panel.verdict.stall is not None and panel.verdict.stall.seconds >= MARKED:
        _draw_stall(svg, panel.verdict.stall, y, scale)


def _draw_calls(
    svg: ET.Element, calls: Sequence[ObservedCall], y: Mapping[int, float], scale: _Scale
) -> None:
    ticks: dict[tuple[int, str], list[str]] = defaultdict(list)
    long: dict[str, list[str]] = defaultdict(list)
    for call in calls:
        number = call.record.partition.partition
        x = scale.x(call.begin)
        ticks[number, call.member].append(f"M{x:.1f} {y[number]:.0f}v{_ROW}")
        if call.end - call.begin >= LONG:
            length = scale.x(call.end) - x
            long[call.member].append(f"M{x:.1f} {y[number] + _ROW / 2:.0f}h{length:.1f}")
    for (_, member), path in ticks.items():
        _path(svg, "".join(path), COLOURS.get(member, "#334155"), width=0.8, opacity=0.55)
    for member, path in long.items():
        _path(svg, "".join(path), COLOURS.get(member, "#334155"), width=1.4, opacity=0.35)


def _draw_steps(
    svg: ET.Element, steps: Sequence[ScheduleStep], scale: _Scale, top: float, bottom: float
) -> None:
    for step in steps:
        x = scale.x(scale.begin + step.at)
        stroke = COLOURS.get(step.member, "#334155")
        ET.SubElement(
            svg,
            "line",
            {
                "x1": f"{x:.1f}",
                "x2": f"{x:.1f}",
                "y1": f"{top - 6:.0f}",
                "y2": f"{bottom:.0f}",
                "stroke": stroke,
                "stroke-dasharray": "4 3",
                "stroke-width": "1.2",
            },
        )
        _text(svg, x + 3, top - 8, f"{step.member} {step.action}", fill=stroke, weight="600")


def _draw_seconds(svg: ET.Element, scale: _Scale, bottom: float) -> None:
    stride = next(each for each in (1, 2, 5, 10, 30, 60, 600) if scale.seconds / each <= 20)
    for second in range(0, int(scale.seconds) + 1, stride):
        _text(
            svg, scale.x(scale.begin + second), bottom + 14, f"{second} s",
            anchor="middle", fill="#475569",
        )  # fmt: skip


def _draw_stall(svg: ET.Element, stall: Stall, y: Mapping[int, float], scale: _Scale) -> None:
    row = y.get(stall.partition.partition)
    if row is None:
        return
    x = scale.x(stall.begin)
    width = scale.x(stall.begin + stall.seconds) - x
    _rect(svg, x, row - 1, width, _ROW + 2, fill="none", stroke="#dc2626")
    label = f"{stall.seconds:.1f} s"
    _rect(svg, x + 2, row + 1, 6.5 * len(label), _ROW - 2, fill="#ffffff")
    _text(svg, x + 4, row + _ROW - 4, label, fill="#dc2626", weight="700")


def _summary(verdict: GroupResult) -> str:
    return (
        f"{verdict.handled:,} of {verdict.produced:,} orders handled · {len(verdict.lost)} lost · "
        f"{len(verdict.repeated)} handled twice · {len(verdict.disorder)} out of order · "
        f"longest stall of a kept partition {verdict.longest_stall:.2f} s"
    )


def _text(
    parent: ET.Element,
    x: float,
    y: float,
    text: str,
    *,
    fill: str = "#0f172a",
    anchor: str = "start",
    size: int = 12,
    weight: str = "400",
) -> None:
    element = ET.SubElement(
        parent,
        "text",
        {
            "x": f"{x:.1f}",
            "y": f"{y:.1f}",
            "fill": fill,
            "text-anchor": anchor,
            "font-size": str(size),
            "font-weight": weight,
        },
    )
    element.text = text


def _rect(
    parent: ET.Element,
    x: float,
    y: float,
    width: float,
    height: float,
    *,
    fill: str,
    stroke: str = "none",
) -> None:
    ET.SubElement(
        parent,
        "rect",
        {
            "x": f"{x:.1f}",
            "y": f"{y:.1f}",
            "width": f"{width:.1f}",
            "height": f"{height:.1f}",
            "fill": fill,
            "stroke": stroke,
            "stroke-width": "1.5",
        },
    )


def _path(parent: ET.Element, d: str, stroke: str, *, width: float, opacity: float) -> None:
    ET.SubElement(
        parent,
        "path",
        {
            "d": d,
            "stroke": stroke,
            "fill": "none",
            "stroke-width": str(width),
            "stroke-opacity": str(opacity),
        },
    )
