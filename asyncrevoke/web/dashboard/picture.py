"""Draws lanes of partitions over time, with one path for each owner and state."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from asyncrevoke.client.printable import LONGEST_MESSAGE, counted, printable
from asyncrevoke.web.pages.templates import Drawing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.web.dashboard.history import History, Sample, Span

WINDOW: Final = 120.0
COLOURS: Final = 8
_WIDTH: Final = 1000
_LABEL_HEIGHT: Final = 20
_ORDER: Final = (
    *(f"o{number}" for number in range(COLOURS)),
    *("requested", "draining", "committing", "lost"),
)


def row_height(partitions: int) -> int:
    """The height of a lane in pixels. Lanes are thin if there are many partitions."""
    if partitions <= 32:
        return 20
    return 10 if partitions <= 200 else 5


class TopicLanes(NamedTuple):
    """The lanes of one topic's partitions. ``labels`` are the partition numbers that have room for
    a label, each with its distance from the top in pixels."""

    topic: str
    labels: list[tuple[int, int]]
    drawing: Drawing


class Lanes(NamedTuple):
    """The lanes of all topics. ``owners`` have had a partition in the shown time."""

    topics: list[TopicLanes]
    owners: set[str]


def lanes(history: History, until: float) -> Lanes:
    """The lanes of the two minutes before ``until``."""
    partitions = history.partitions()
    height = row_height(len(partitions))
    owners: set[str] = set()
    topics: list[TopicLanes] = []
    for topic, group in groupby(partitions, key=lambda partition: partition.topic):
        rows = list(group)
        drawing = _drawn(history, topic, rows, height, until, owners)
        topics.append(TopicLanes(topic, _labels(rows, height), drawing))
    return Lanes(topics, owners)


def _drawn(
    history: History,
    topic: str,
    partitions: Sequence[TopicPartition],
    height: int,
    until: float,
    owners: set[str],
) -> Drawing:
    since = until - WINDOW
    paths: defaultdict[str, list[str]] = defaultdict(list)
    owned: Counter[str] = Counter()
    for row, partition in enumerate(partitions):
        y = row * height + height / 2
        owner = ""
        for span, begin, end in _clipped(history.lane(partition), since, until):
            owner = span.owner
            if not owner:
                continue
            owners.add(owner)
            x, width = _x(begin, since), _x(end, since) - _x(begin, since)
            stroke = f"M{x:.1f} {y:g}h{max(width, 1.5):.1f}"
            if span.state == "lost":
                paths["lost"].append(f"M{x:.1f} {y:g}h6")
                continue
            paths[f"o{history.owners[owner] % COLOURS}"].append(stroke)
            if span.state != "held":
                paths[span.state].append(stroke)
        owned[owner] += 1
    shares = ", ".join(
        f"{owner} has {count}" if owner else f"{count} without an owner here"
        for owner, count in sorted(owned.items())
    )
    label = f"{topic}, {counted(len(partitions), 'partition')} over two minutes: {shares}"
    total = len(partitions) * height
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
    """A curve of figures over the same time, scaled to the highest one."""
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


def _labels(partitions: Sequence[TopicPartition], height: int) -> list[tuple[int, int]]:
    """The labels of all partitions, or of thin lanes those for which there is room."""
    step = -(-_LABEL_HEIGHT // height)
    return [
        (row * height + (height - _LABEL_HEIGHT) // 2, partitions[row].partition)
        for row in range(0, len(partitions), step)
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
