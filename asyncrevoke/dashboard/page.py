"""What the page shows at one moment, in parts that the browser puts in place."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from asyncrevoke.dashboard import picture
from asyncrevoke.printable import printable_html

if TYPE_CHECKING:
    from asyncrevoke.dashboard.history import History, Sample

_NOTES = 40
_SHOWN = 50


def parts(history: History, ago: float) -> dict[str, str]:
    """HTML by the id of the element that it is for; ``ago`` seconds back, 0 is now."""
    until = history.clock() - ago
    return {
        "title": printable_html(history.title),
        "figures": _figures(history, until),
        "lanes": picture.lanes(history, until),
        "owners": _owners(history, until),
        "revocations": _revocations(history, until, live=not ago),
        "places": _places(history, live=not ago),
        "notes": _notes(history, until),
        "moment": ("live, " if not ago else "") + time.strftime("%H:%M:%S", time.localtime(until)),
    }


def _figures(history: History, until: float) -> str:
    since = until - picture.WINDOW
    every = {owner: _seconds(history.samples(owner, since, until)) for owner in history.sampled()}
    rate: Counter[int] = Counter()
    in_flight: Counter[int] = Counter()
    lag: Counter[int] = Counter()
    for samples in every.values():
        for at, value in picture.rates(samples):
            rate[int(at)] += round(value)
        for sample in samples:
            in_flight[int(sample.at)] += sample.in_flight or 0
            lag[int(sample.at)] += sample.lag
    last = [samples[-1] for samples in every.values() if samples and samples[-1].at > until - 3]
    newest = max(rate, default=0)
    shown = rate.get(newest, 0) if newest > until - 4 else 0
    inside = all(sample.in_flight is not None for sample in last)
    figures = [
        _figure("records per second" if inside else "committed per second", shown, until, rate),
        _figure("lag", sum(sample.lag for sample in last), until, lag),
    ]
    if inside:
        oldest = max((sample.oldest or 0.0 for sample in last), default=0.0)
        letters = sum(samples[-1].dead_letters or 0 for samples in every.values() if samples)
        figures += [
            _figure("in flight", sum(sample.in_flight or 0 for sample in last), until, in_flight),
            _figure("oldest in flight", f"{oldest:.1f} s", until),
            _figure("dead letters", letters, until),
        ]
    members = [sample.members for sample in last if sample.members is not None]
    if members:
        figures.append(_figure("members", sum(members), until))
    if said := sorted({sample.state for sample in last if sample.state}):
        figures.append(_figure("state", ", ".join(said), until))
    return "".join(figures)


def _seconds(samples: list[Sample]) -> list[Sample]:
    """The last one of each second: there may be several."""
    return list({int(sample.at): sample for sample in samples}.values())


def _figure(
    name: str, value: int | str, until: float, over_time: Counter[int] | None = None
) -> str:
    drawn = ""
    if over_time is not None:
        points = [(float(at), float(v)) for at, v in sorted(over_time.items())]
        drawn = picture.curve(points, until)
    shown = f"{value:,}" if isinstance(value, int) else printable_html(value)
    return f"<div><dt>{name}</dt><dd>{shown}</dd>{drawn}</div>"


def _owners(history: History, until: float) -> str:
    owned: Counter[str] = Counter()
    for partition in history.partitions():
        span = history.at(partition, until)
        if span is not None:
            owned[span.owner] += 1
    return "".join(
        f'<li><span class="key o{number % picture.COLOURS}"></span>{printable_html(owner)} '
        f"<b>{owned[owner]}</b></li>"
        for owner, number in history.owners.items()
        if owned[owner] or any(history.samples(owner, until - 10, until))
    ) + (f"<li>nobody <b>{owned['']}</b></li>" if owned[""] else "")


def _revocations(history: History, until: float, *, live: bool) -> str:
    if live:
        found = sorted((p for each in history.pending.values() for p in each), key=lambda p: p[3])
        rows = [(p.partition, p.owner, p.state, until - p.since, p.waits_for) for p in found]
    else:
        rows = [
            (partition, span.owner, span.state, until - span.began, "")
            for partition in history.partitions()
            if (span := history.at(partition, until)) is not None
            and span.state not in ("held", "lost")
        ]
    if not rows:
        return '<p class="none">No partition is being revoked.</p>'
    lines = "".join(
        f'<tr data-partition="{printable_html(topic)}-{number}" data-state="{state}">'
        f"<th scope=row>{printable_html(topic)}-{number}</th><td>{printable_html(owner)}</td>"
        f'<td><span class="key {state}"></span>{state}</td><td>{max(0.0, seconds):.1f} s</td>'
        f"<td>{printable_html(waits_for)}</td></tr>"
        for (topic, number), owner, state, seconds, waits_for in rows[:_SHOWN]
    )
    more = f"<p>and {len(rows) - _SHOWN} more</p>" if len(rows) > _SHOWN else ""
    return (
        "<table><thead><tr><th scope=col>partition<th scope=col>of<th scope=col>state"
        f"<th scope=col>for<th scope=col>waits for</tr></thead><tbody>{lines}</tbody></table>{more}"
    )


def _places(history: History, *, live: bool) -> str:
    """The partitions that are furthest behind; of now only."""
    if not live:
        return '<p class="none">Known of now only.</p>'
    every = [place for places in history.places.values() for place in places]
    if not every:
        return '<p class="none">No partition is known yet.</p>'
    every.sort(key=lambda place: (-(place.lag or 0), place.partition))
    inside = any(place.in_flight is not None for place in every)
    heads = ["partition", "of", "lag", "committed", *(["in flight", "oldest"] if inside else [])]
    lines: list[str] = []
    for place in every[:_SHOWN]:
        topic, number = place.partition
        values: list[int | None] = [place.lag, place.committed]
        values += [place.in_flight, place.oldest] if inside else []
        lines.append(
            f"<tr><th scope=row>{printable_html(topic)}-{number}</th>"
            f"<td>{printable_html(place.owner) or 'nobody'}</td>"
            + "".join(f"<td>{'' if value is None else f'{value:,}'}</td>" for value in values)
            + "</tr>"
        )
    head = "".join(f"<th scope=col>{name}" for name in heads)
    more = f"<p>and {len(every) - _SHOWN} more</p>" if len(every) > _SHOWN else ""
    body = "".join(lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _notes(history: History, until: float) -> str:
    return "".join(
        f"<li><time>{time.strftime('%H:%M:%S', time.localtime(note.at))}</time> "
        f"<b>{printable_html(note.owner)}</b> {printable_html(note.text)}</li>"
        for note in history.notes(until, _NOTES)
    )
