"""The lag of groups by topic, and how fast it changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from asyncrevoke.client.groups.facts import GroupFacts, PartitionFacts, ShareGroupFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class TopicLag(msgspec.Struct, frozen=True, kw_only=True):
    """A group's lag in a topic, in records: ``lag`` of the partitions whose lag is known, None if
    it is of none; ``unknown`` is the number of the others. ``worst`` is the partition with the
    largest lag.

    ``arriving`` and ``committing`` are records a second since the look before: by how much the ends
    of the logs, and the committed offsets, have risen. None in the first look, and of share groups,
    which commit no offsets.
    """

    group: str
    topic: str
    partitions: int
    lag: int | None
    unknown: int
    worst: int | None
    arriving: float | None = None
    committing: float | None = None


class LagHistory:
    """Looks at groups again and again. Times are seconds."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[float, Mapping[tuple[str, int], PartitionFacts]]] = {}

    def look(self, group: GroupFacts | ShareGroupFacts, now: float) -> list[TopicLag]:
        """The lag of a group in each topic, by name. Rates are since the look before at it."""
        partitions: Sequence[PartitionFacts] = (
            group.partitions if isinstance(group, GroupFacts) else ()
        )
        present = {(each.topic, each.partition): each for each in partitions}
        then, before = self._before.get(group.group, (now, {}))
        self._before[group.group] = now, present
        return [
            _topic_lag(group, topic, _Change(present, before, now - then))
            for topic in sorted({each.topic for each in group.partitions})
        ]

    def forget(self, group: str) -> None:
        """The group does not exist: if it is created again, its first rates are unknown."""
        self._before.pop(group, None)


class _Change:
    """From one look to the next."""

    def __init__(
        self,
        present: Mapping[tuple[str, int], PartitionFacts],
        before: Mapping[tuple[str, int], PartitionFacts],
        seconds: float,
    ) -> None:
        self._present = present
        self._before = before
        self._seconds = seconds

    def rate(self, topic: str, offset: Callable[[PartitionFacts], int | None]) -> float | None:
        """The records a second by which an offset has risen, over the partitions of a topic that
        have it in both looks. After a reset it may fall."""
        rises: list[int] = []
        for key, now in self._present.items():
            then = self._before.get(key)
            if key[0] != topic or then is None:
                continue
            first, last = offset(then), offset(now)
            if first is not None and last is not None:
                rises.append(last - first)
        return round(sum(rises) / self._seconds, 1) if rises and self._seconds > 0 else None


def _topic_lag(group: GroupFacts | ShareGroupFacts, topic: str, change: _Change) -> TopicLag:
    lags = {each.partition: each.lag for each in group.partitions if each.topic == topic}
    known = {number: lag for number, lag in lags.items() if lag is not None}
    return TopicLag(
        group=group.group,
        topic=topic,
        partitions=len(lags),
        lag=sum(known.values()) if known else None,
        unknown=len(lags) - len(known),
        worst=max(known, key=lambda number: known[number]) if any(known.values()) else None,
        arriving=change.rate(topic, lambda each: each.end),
        committing=change.rate(topic, lambda each: each.committed),
    )
