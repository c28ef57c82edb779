"""Renders the parts of the page at one time."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.dead_letters.dead_letter_filter import DeadLetterFilter
from asyncrevoke.dead_letters.listing import Counting
from asyncrevoke.web.dashboard import picture
from asyncrevoke.web.dashboard.history import History, Pending, Sample
from asyncrevoke.web.pages.templates import Drawing, render_blocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.web.dashboard.stored_letters import TopicReading

_NOTES = 40
_MOST_ROWS = 50


def parts(history: History, ago: float, dead_letter_topics: Sequence[str] = ()) -> dict[str, str]:
    """HTML by the id of its element, as of ``ago`` seconds before now. The viewer can list
    ``dead_letter_topics``."""
    until, live = history.clock() - ago, not ago
    owned, lanes = _owned(history, until), picture.lanes(history, until)
    places = [place for places in history.places.values() for place in places]
    return render_blocks(
        "web/dashboard/parts.html",
        title=history.title,
        live=live,
        until=until,
        clock=_clock,
        seconds=_shown_seconds,
        most_rows=_MOST_ROWS,
        figures=_figures(history, until),
        topics=lanes.topics,
        is_share=history.is_share,
        acquired=sorted(history.acquired.items()),
        owners=[
            (owner, number % picture.COLOURS, owned[owner])
            for owner, number in history.owners.items()
            if owned[owner]
            or owner in lanes.owners
            or any(history.samples(owner, until - 10, until))
        ],
        unowned=owned[""],
        # A consumer knows its own partitions, brokers report those of all members.
        nobody="other members or none" if _is_of_consumers(history, until) else "nobody",
        revocations=_pending(history) if live else _revoking(history, until),
        places=sorted(places, key=lambda place: (-(place.lag or 0), place.partition)),
        inside=any(place.in_flight is not None for place in places),
        handlers=[call for owner in history.handlers.values() for call in owner],
        unavailable=[
            (owner, member) for owner, all_ in history.unavailable.items() for member in all_
        ],
        dead_letters=history.dead_letters.most_common(_MOST_ROWS),
        dead_letter_topics=dead_letter_topics,
        letters=list(reversed(history.letters)),
        results=history.results.most_common(_MOST_ROWS),
        transactions=history.transactions.most_common(),
        notes=history.notes(until, _NOTES),
    )


def dead_letter(history: History, number: int) -> dict[str, str] | None:
    """One dead letter with its contents, as HTML by the id of its element. None if it is no longer
    kept."""
    letter = next((stored for stored in history.letters if stored.number == number), None)
    if letter is None:
        return None
    return render_blocks(
        "web/dashboard/dead_letter.html",
        heading=f"{letter.origin} at offset {letter.offset}",
        about=f"{letter.error}, written to {letter.topic} at {_clock(letter.at)} by {letter.owner}",
        contents=letter.contents,
    )


def stored_letters(
    reading: TopicReading, chosen: DeadLetterFilter, *, values: bool
) -> dict[str, str]:
    """The selected dead letters of a topic, as HTML by the id of its element. With ``values`` the
    viewer can show their contents."""
    counting = Counting(reading.topic)
    letters = [letter for letter in reading.letters if chosen.takes(letter)]
    for letter in letters:
        counting.add(letter)
    return render_blocks(
        "web/dashboard/stored_letters.html",
        reading=reading,
        whole_topic=chosen == DeadLetterFilter(),
        count=len(letters),
        rows=sorted(counting.end().rows, key=lambda row: -row.count),
        letters=letters[:_MOST_ROWS],
        most_rows=_MOST_ROWS,
        values=values,
        time=_time_of,
    )


def stored_contents(
    topic: str, partition: int, offset: int, contents: tuple[tuple[str, str], ...]
) -> dict[str, str]:
    """The contents of one dead letter of a topic, as HTML by the id of its element."""
    return render_blocks(
        "web/dashboard/dead_letter.html",
        heading=f"{topic}-{partition} at offset {offset}",
        about="",
        contents=contents,
    )


def _time_of(timestamp: int) -> str:
    """A timestamp in milliseconds, in UTC. A record may have any."""
    try:
        return f"{datetime.fromtimestamp(timestamp / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return f"{timestamp} ms"


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))


def _shown_seconds(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    return f"{seconds:.1f} s"


def _owned(history: History, until: float) -> Counter[str]:
    """The number of partitions of each owner; "" stands for no owner."""
    spans = (history.at(partition, until) for partition in history.partitions())
    return Counter(span.owner for span in spans if span is not None)


class _Figure(NamedTuple):
    name: str
    value: str
    curve: Drawing | None = None


def _is_of_consumers(history: History, until: float) -> bool:
    """Whether this is the page of consumers in this process, not of what brokers report."""
    since = until - picture.WINDOW
    newest = [
        samples[-1]
        for owner in history.sampled()
        if (samples := list(history.samples(owner, since, until)))
    ]
    return any(sample.in_flight is not None for sample in newest)


def _figures(history: History, until: float) -> list[_Figure]:
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
    shown = rate[newest] if newest > until - 4 else 0
    inside = all(sample.in_flight is not None for sample in last)

    def figure(name: str, value: int, over_time: Counter[int] | None = None) -> _Figure:
        curve = None if over_time is None else picture.curve(sorted(over_time.items()), until)
        return _Figure(name, f"{value:,}", curve)

    figures = [
        figure("records per second" if inside else "committed per second", shown, rate),
        figure("lag", sum(sample.lag for sample in last), lag),
    ]
    if inside:
        oldest = max((sample.oldest or 0.0 for sample in last), default=0.0)
        letters = sum(samples[-1].dead_letters or 0 for samples in every.values() if samples)
        figures += [
            figure("in flight", sum(sample.in_flight or 0 for sample in last), in_flight),
            _Figure("oldest in flight", f"{oldest:.1f} s"),
            figure("dead letters", letters),
        ]
    members = [sample.members for sample in last if sample.members is not None]
    if members:
        figures.append(figure("members", sum(members)))
    if states := sorted({sample.state for sample in last if sample.state}):
        figures.append(_Figure("state", ", ".join(states)))
    return figures


def _seconds(samples: list[Sample]) -> list[Sample]:
    """The last sample of each second."""
    return list({int(sample.at): sample for sample in samples}.values())


def _pending(history: History) -> list[Pending]:
    """The revocations that have not ended, the oldest first."""
    return sorted(
        (p for of_partition in history.pending.values() for p in of_partition),
        key=lambda p: p.since,
    )


def _revoking(history: History, until: float) -> list[Pending]:
    """The revocations that had not ended at that time."""
    return [
        Pending(partition, span.owner, span.state, span.began)
        for partition in history.partitions()
        if (span := history.at(partition, until)) is not None and span.state not in ("held", "lost")
    ]
