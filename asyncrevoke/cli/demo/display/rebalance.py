"""Draws one rebalance: handler calls before and after a member joined."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from asyncrevoke.cli.demo.group_result import ObservedCall, handler_calls
from asyncrevoke.cli.demo.workload import Action
from asyncrevoke.web.pages.templates import Drawing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asyncrevoke.cli.demo.display.timeline import Panel

_BEFORE, _AFTER = 2.0, 8.0  # at most, in seconds
_WIDTH, _LEFT, _RIGHT = 900, 96, 16
_ROW, _GAP, _HEAD, _FOOT = 14, 3, 62, 34
# Of so many partitions, one has its number on a narrow screen.
_LABELLED = 4
_STYLE: Final = """
svg { font-family: system-ui, sans-serif; font-size: 13px }
.page { fill: #ffffff } .row { fill: #f1f5f9 } text { fill: #0f172a } .soft { fill: #475569 }
.old { stroke: #0e7490 } .new { stroke: #b45309 } .join { stroke: #64748b }
.title { font-size: 16px; font-weight: 600 }
.end { text-anchor: end } .middle { text-anchor: middle } .narrow { display: none }
@media (max-width: 560px) {
svg { font-size: 28px } .title { font-size: 30px } .narrow { display: inline }
.wide { display: none }
}
@media (prefers-color-scheme: dark) {
.page { fill: #0d1117 } .row { fill: #1e293b } text { fill: #f1f5f9 } .soft { fill: #cbd5e1 }
.old { stroke: #22d3ee } .new { stroke: #fbbf24 } .join { stroke: #94a3b8 }
}
"""


class _Rebalance(NamedTuple):
    """The calls of one group around the join of the second member at ``at``, until ``after``
    seconds later. ``stall`` is that of the whole run."""

    title: str
    at: float
    after: float
    calls: Mapping[int, Sequence[ObservedCall]]
    stall: float

    def x(self, at: float) -> float:
        """The coordinate of a time on the shared clock."""
        share = (at - self.at + _BEFORE) / (_BEFORE + self.after)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)


def draw_rebalance(panels: Sequence[Panel], begin: float) -> str:
    """Draw the rebalance when the second member joins: SVG with colours for light and dark pages.

    Groups are below each other, in the order of the panels. ``begin`` is the start of the run on
    the shared clock.
    """
    groups = [_rebalance(panel, begin) for panel in panels]
    heights = [_HEAD + len(group.calls) * (_ROW + _GAP) + _FOOT for group in groups]
    drawing = Drawing(
        _WIDTH, sum(heights), xmlns="http://www.w3.org/2000/svg", width=_WIDTH, height=sum(heights)
    )
    drawing.add("style", _STYLE.replace("\n", " "))
    drawing.add("rect", class_="page", width=_WIDTH, height=sum(heights))
    top = 0
    for group, height in zip(groups, heights, strict=True):
        _draw(drawing, group, top)
        top += height
    return drawing.__html__() + "\n"


def _rebalance(panel: Panel, begin: float) -> _Rebalance:
    second, third = [step for step in panel.steps if step.action is Action.JOIN][1:3]
    at = begin + second.at
    after = min(_AFTER, third.at - second.at)
    calls: dict[int, list[ObservedCall]] = defaultdict(list)
    for call in handler_calls(panel.handled, panel.died):
        if at - _BEFORE <= call.begin <= at + after:
            calls[call.record.partition.partition].append(call)
    stall = panel.result.longest_stall
    return _Rebalance(panel.title, at, after, dict(sorted(calls.items())), stall)


def _draw(drawing: Drawing, group: _Rebalance, top: int) -> None:
    drawing.add("text", group.title, x=16, y=top + 24, class_="title")
    stall = f"longest stall of a kept partition in the run: {group.stall:.2f} s"
    drawing.add("text", stall, x=_WIDTH - _RIGHT, y=top + 24, class_="end wide")
    # On a phone, the picture is less than half as wide, and its text twice as large.
    short = f"longest stall {group.stall:.2f} s"
    drawing.add("text", short, x=_WIDTH - _RIGHT, y=top + 24, class_="end narrow")
    drawing.add("text", "partition", x=_LEFT - 10, y=top + _HEAD - 8, class_="soft end wide")
    rows = top + _HEAD
    bottom = rows + len(group.calls) * (_ROW + _GAP)
    for index, (number, calls) in enumerate(group.calls.items()):
        y = rows + index * (_ROW + _GAP)
        width = _WIDTH - _LEFT - _RIGHT
        drawing.add("rect", class_="row", x=_LEFT, y=y, width=width, height=_ROW)
        number_class = "soft end" if index % _LABELLED == 0 else "soft end wide"
        drawing.add("text", str(number), x=_LEFT - 10, y=y + _ROW - 3, class_=number_class)
        for member, same in itertools.groupby(calls, key=lambda call: call.member):
            moves = "".join(f"M{group.x(call.begin):.1f} {y}v{_ROW}" for call in same)
            kind = "old" if member == calls[0].member else "new"
            drawing.add("path", d=moves, class_=kind, fill="none", stroke_width="1.2")
    x = group.x(group.at)
    drawing.add("line", class_="join", x1=x, x2=x, y1=rows - 6, y2=bottom, stroke_dasharray="4 3")
    drawing.add("text", "a second member joins", x=x + 4, y=rows - 8, class_="soft")
    for second in range(-int(_BEFORE), int(group.after) + 1):
        label = "0" if not second else f"{second:+d} s"
        place = group.x(group.at + second)
        anchor = "end" if second == int(group.after) else "middle"
        label_class = f"soft {anchor}" if second % 2 == 0 else f"soft {anchor} wide"
        drawing.add("text", label, x=place, y=bottom + 16, class_=label_class)
