"""Lanes of partitions over time, as SVG: one path for each owner and state."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from asyncrevoke.printable import LONGEST_MESSAGE, printable_html

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.dashboard.history import History, Sample, Span

WINDOW: Final = 120.0
COLOURS: Final = 8
_WIDTH: Final = 1000.0


def row_height(partitions: int) -> int:
    """Few partitions are drawn tall, many thin."""
    if partitions <= 32:
        return 20
    return 10 if partitions <= 200 else 5


def lanes(history: History, until: float) -> str:
    """The last two minutes before ``until``."""
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
    order = [f"o{number}" for number in range(COLOURS)]
    order += ["requested", "draining", "committing", "lost"]
    drawn = "".join(
        f'<path class="{name}" d="{"".join(paths[name])}"/>' for name in order if name in paths
    )
    total = max(1, len(partitions)) * height
    return (
        f'<div class="names" aria-hidden="true">{_labels(history, height)}</div>'
        f'<svg class="lanes rows-{height}" height="{total}" '
        f'role="img" aria-label="{printable_html(_summary(history, until), LONGEST_MESSAGE)}" '
        f'viewBox="0 0 {_WIDTH:g} {total}" preserveAspectRatio="none">{drawn}</svg>'
    )


def curve(samples: Sequence[tuple[float, float]], until: float) -> str:
    """A line of figures over the same time, scaled to its highest."""
    since = until - WINDOW
    highest = max((value for _, value in samples), default=0.0) or 1.0
    points = " ".join(f"{_x(at, since):.1f},{40 - 38 * v / highest:.1f}" for at, v in samples)
    return (
        f'<svg class="curve" viewBox="0 0 {_WIDTH:g} 42" preserveAspectRatio="none" '
        f'aria-hidden="true"><polyline points="{points}"/></svg>'
    )


def rates(samples: Sequence[Sample]) -> list[tuple[float, float]]:
    """Records a second between one sample and the next."""
    return [
        (b.at, max(0.0, (b.records - a.records) / max(b.at - a.at, 0.001)))
        for a, b in pairwise(samples)
    ]


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


def _labels(history: History, height: int) -> str:
    """A label for each lane or, if they are thin, for where a topic begins and some between."""
    labels: list[str] = []
    before, free = "", 0
    for row, partition in enumerate(history.partitions()):
        topic, number = partition
        top = row * height
        # Far enough from the last one to be read, and thin lanes have them further apart.
        if top >= free and (height >= 20 or topic != before or number % 10 == 0):
            name = printable_html(str(partition))
            labels.append(f'<span data-top="{top}">{name}</span>')
            free = top + (20 if height >= 20 else 50)
        before = topic
    return "".join(labels)


def _summary(history: History, until: float) -> str:
    owned: defaultdict[str, int] = defaultdict(int)
    for partition in history.partitions():
        span = history.at(partition, until)
        owned[span.owner if span is not None else ""] += 1
    parts = [f"{owner or 'nobody'} has {count}" for owner, count in sorted(owned.items())]
    return f"{len(history.partitions())} partitions over two minutes: " + ", ".join(parts)
