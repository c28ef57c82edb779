"""Lanes of partitions over time: one path for each owner and state."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from asyncrevoke.pages.drawing import Drawing
from asyncrevoke.printable import LONGEST_MESSAGE, printable

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence

    from asyncrevoke.dashboard.history import History, Sample, Span

WINDOW: Final = 120.0
COLOURS: Final = 8
_WIDTH: Final = 1000
_ORDER: Final = (
    *(f"o{number}" for number in range(COLOURS)),
    *("requested", "draining", "committing", "lost"),
)


def row_height(partitions: int) -> int:
    """The height of a lane in pixels; lanes of many partitions are thin."""
    if partitions <= 32:
        return 20
    return 10 if partitions <= 200 else 5


def lanes(history: History, until: float, owned: Counter[str]) -> Drawing:
    """The last two minutes before ``until``. ``owned``: partitions by owner, for the label."""
    partitions = history.partitions()
    height = row_height(len(partitions))
    since = until - WINDOW
    paths: defaultdict[str, list[str]] = defaultdict(list)
    for row, partition in enumerate(partitions):
        y = row * height + height / 2
        for span, begin, end in _clipped(history.lane(partition), since, until):
            if not span.owner:
                continue
            x, width = _x(begin, since), _x(end, since) - _x(begin, since)
            stroke = f"M{x:.1f} {y:g}h{max(width, 1.5):.1f}"
            if span.state == "lost":
                paths["lost"].append(f"M{x:.1f} {y:g}h6")
                continue
            paths[f"o{history.owners[span.owner] % COLOURS}"].append(stroke)
            if span.state != "held":
                paths[span.state].append(stroke)
    shares = ", ".join(f"{owner or 'nobody'} has {count}" for owner, count in sorted(owned.items()))
    label = f"{len(partitions)} partitions over two minutes: {shares}"
    total = max(1, len(partitions)) * height
    drawing = Drawing(
        _WIDTH,
        total,
        class_=f"lanes rows-{height}",
        height=total,
        role="img",
        aria_label=printable(label, LONGEST_MESSAGE),
        preserveAspectRatio="none",
    )
    for name in _ORDER:
        if name in paths:
            drawing.add("path", class_=name, d="".join(paths[name]))
    return drawing


def curve(samples: Sequence[tuple[float, float]], until: float) -> Drawing:
    """Figures over the same time, scaled to the highest."""
    since = until - WINDOW
    highest = max((value for _, value in samples), default=0.0) or 1.0
    drawing = Drawing(_WIDTH, 42, class_="curve", preserveAspectRatio="none", aria_hidden="true")
    drawing.add_line((_x(at, since), 40 - 38 * value / highest) for at, value in samples)
    return drawing


def rates(samples: Sequence[Sample]) -> list[tuple[float, float]]:
    """Records per second between consecutive samples."""
    return [
        (b.at, max(0.0, (b.records - a.records) / max(b.at - a.at, 0.001)))
        for a, b in pairwise(samples)
    ]


def labels(history: History) -> list[tuple[int, str]]:
    """Lanes with a label: all of them or, if they are thin, the first of a topic and each tenth."""
    partitions = history.partitions()
    height = row_height(len(partitions))
    found: list[tuple[int, str]] = []
    before, free = "", 0
    for row, partition in enumerate(partitions):
        topic, number = partition
        top = row * height
        # Labels must not overlap.
        if top >= free and (height >= 20 or topic != before or number % 10 == 0):
            found.append((top, str(partition)))
            free = top + (20 if height >= 20 else 50)
        before = topic
    return found


def _clipped(spans: Sequence[Span], since: float, until: float) -> list[tuple[Span, float, float]]:
    found: list[tuple[Span, float, float]] = []
    ends = [span.began for span in list(spans)[1:]] + [until]
    for span, ended in zip(spans, ends, strict=True):
        begin, end = max(span.began, since), min(ended, until)
        if begin <= end:
            found.append((span, begin, end))
    return found


def _x(at: float, since: float) -> float:
    return (at - since) / WINDOW * _WIDTH
