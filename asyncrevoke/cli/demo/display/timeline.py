"""Draws the timeline of a run: handler calls of each partition, by member."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from asyncrevoke.cli.demo.group_result import GroupResult, ObservedCall, Stall, handler_calls
from asyncrevoke.web.pages.templates import Drawing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asyncrevoke.cli.demo.member.handler_log import Abandoned, Ended, Started
    from asyncrevoke.cli.demo.workload import ScheduleStep

COLOURS = {"A": "#0e7490", "B": "#b45309", "C": "#15803d", "D": "#a21caf"}
LONG = 1.0
"""Calls that take longer, in seconds, are drawn as lines."""
MARKED = 0.25
"""Stalls that take longer, in seconds, are marked."""

_WIDTH, _LEFT, _RIGHT = 1200, 70, 20
_ROW, _GAP, _HEAD, _FOOT = 16, 4, 64, 40
_SOFT, _RED, _OTHER = "#475569", "#dc2626", "#334155"


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """The part of one group; times are on the shared clock."""

    title: str
    steps: Sequence[ScheduleStep]
    handled: Sequence[Started | Ended | Abandoned]
    died: Mapping[str, float]
    result: GroupResult


def draw(panels: Sequence[Panel], begin: float) -> str:
    """The timeline as SVG: the panels below each other, with one time scale."""
    calls = {panel.title: handler_calls(panel.handled, panel.died) for panel in panels}
    ends = [
        call.end for of_member in calls.values() for call in of_member if call.end != float("inf")
    ]
    scale = _Scale(begin, max([end - begin for end in ends], default=1.0))
    rows = {
        title: sorted({call.record.partition.partition for call in of_member})
        for title, of_member in calls.items()
    }
    heights = [_HEAD + len(rows[panel.title]) * (_ROW + _GAP) + _FOOT for panel in panels]
    drawing = Drawing(
        _WIDTH,
        sum(heights),
        xmlns="http://www.w3.org/2000/svg",
        width=_WIDTH,
        height=sum(heights),
        font_family="system-ui, sans-serif",
        font_size=12,
    )
    drawing.add("rect", width=_WIDTH, height=sum(heights), fill="#ffffff")
    top = 0
    for panel, height in zip(panels, heights, strict=True):
        _draw_panel(drawing, panel, calls[panel.title], rows[panel.title], scale, top)
        top += height
    return drawing.__html__() + "\n"


@dataclass(frozen=True, slots=True)
class _Scale:
    begin: float
    seconds: float

    def x(self, at: float) -> float:
        """The coordinate of a time on the shared clock."""
        share = (at - self.begin) / self.seconds
        return _LEFT + min(1.0, max(0.0, share)) * (_WIDTH - _LEFT - _RIGHT)


def _draw_panel(
    drawing: Drawing,
    panel: Panel,
    calls: Sequence[ObservedCall],
    rows: Sequence[int],
    scale: _Scale,
    top: int,
) -> None:
    drawing.add("text", panel.title, x=12, y=top + 22, font_size=16, font_weight=600)
    drawing.add("text", _summary(panel.result), x=12, y=top + 40, fill=_SOFT)
    rows_top = top + _HEAD
    y = {number: rows_top + index * (_ROW + _GAP) for index, number in enumerate(rows)}
    bottom = rows_top + len(rows) * (_ROW + _GAP)
    width = _WIDTH - _LEFT - _RIGHT
    for number in rows:
        left, low = _LEFT - 8, y[number] + _ROW - 4
        drawing.add("text", str(number), x=left, y=low, text_anchor="end", fill=_SOFT)
        drawing.add("rect", x=_LEFT, y=y[number], width=width, height=_ROW, fill="#f1f5f9")
    _draw_calls(drawing, calls, y, scale)
    _draw_steps(drawing, panel.steps, scale, rows_top, bottom)
    stride = next(
        seconds for seconds in (1, 2, 5, 10, 30, 60, 600) if scale.seconds / seconds <= 20
    )
    for second in range(0, int(scale.seconds) + 1, stride):
        x = scale.x(scale.begin + second)
        drawing.add("text", f"{second} s", x=x, y=bottom + 14, text_anchor="middle", fill=_SOFT)
    if panel.result.stall is not None and panel.result.stall.seconds >= MARKED:
        _draw_stall(drawing, panel.result.stall, y, scale)


def _draw_calls(
    drawing: Drawing, calls: Sequence[ObservedCall], y: Mapping[int, int], scale: _Scale
) -> None:
    ticks: dict[tuple[int, str], list[str]] = defaultdict(list)
    long: dict[str, list[str]] = defaultdict(list)
    for call in calls:
        number = call.record.partition.partition
        x = scale.x(call.begin)
        ticks[number, call.member].append(f"M{x:.1f} {y[number]}v{_ROW}")
        if call.end - call.begin >= LONG:
            length = scale.x(call.end) - x
            long[call.member].append(f"M{x:.1f} {y[number] + _ROW // 2}h{length:.1f}")

    def path(member: str, moves: Sequence[str], width: str, opacity: str) -> None:
        drawing.add(
            "path",
            d="".join(moves),
            stroke=COLOURS.get(member, _OTHER),
            fill="none",
            stroke_width=width,
            stroke_opacity=opacity,
        )

    for (_, member), moves in ticks.items():
        path(member, moves, "0.8", "0.55")
    for member, moves in long.items():
        path(member, moves, "1.4", "0.35")


def _draw_steps(
    drawing: Drawing, steps: Sequence[ScheduleStep], scale: _Scale, top: int, bottom: int
) -> None:
    for step in steps:
        x = scale.x(scale.begin + step.at)
        colour = COLOURS.get(step.member, _OTHER)
        dashed = {"stroke": colour, "stroke_dasharray": "4 3", "stroke_width": "1.2"}
        drawing.add("line", x1=x, x2=x, y1=top - 6, y2=bottom, **dashed)
        text = f"{step.member} {step.action}"
        drawing.add("text", text, x=x + 3, y=top - 8, fill=colour, font_weight=600)


def _draw_stall(drawing: Drawing, stall: Stall, y: Mapping[int, int], scale: _Scale) -> None:
    row = y.get(stall.partition.partition)
    if row is None:
        return
    x = scale.x(stall.begin)
    width, high = scale.x(stall.begin + stall.seconds) - x, _ROW + 2
    frame = {"fill": "none", "stroke": _RED, "stroke_width": "1.5"}
    drawing.add("rect", x=x, y=row - 1, width=width, height=high, **frame)
    label = f"{stall.seconds:.1f} s"
    drawing.add("rect", x=x + 2, y=row + 1, width=6.5 * len(label), height=_ROW - 2, fill="#ffffff")
    drawing.add("text", label, x=x + 4, y=row + _ROW - 4, fill=_RED, font_weight=700)


def _summary(result: GroupResult) -> str:
    summary = (
        f"{result.handled:,} of {result.produced:,} orders handled · {len(result.lost)} lost · "
        f"{len(result.repeated)} handled twice · {len(result.disorder)} out of order · "
        f"longest stall of a kept partition {result.longest_stall:.2f} s"
    )
    if (results := result.results) is not None:
        summary += (
            f" · {results.visible:,} visible results, {len(results.missing)} missing, "
            f"{len(results.doubled)} doubled"
        )
    return summary
