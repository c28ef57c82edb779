"""Counts of durations by bucket."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Distribution(NamedTuple):
    """The state of a histogram: the count of each bucket, the last without a bound, and the sum."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


class Histogram:
    """Counts values. A bucket has the values up to its bound, and above the bound before."""

    __slots__ = ("_bounds", "_counts", "_total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def add_all(self, values: Sequence[float]) -> None:
        """Count many values, fast if all are in the first bucket."""
        self._total += sum(values)
        if max(values) <= self._bounds[0]:
            self._counts[0] += len(values)
            return
        values = sorted(values)
        start = 0
        for number, bound in enumerate(self._bounds):
            end = bisect_right(values, bound, start)
            self._counts[number] += end - start
            start = end
        self._counts[-1] += len(values) - start

    def read(self) -> Distribution:
        """The counts so far, in any thread."""
        return Distribution(self._bounds, tuple(self._counts), self._total)
