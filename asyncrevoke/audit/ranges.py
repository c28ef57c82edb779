"""Offsets of partitions."""

from __future__ import annotations

from typing import NamedTuple


class Bounds(NamedTuple):
    """The first offset of a partition's log, and its end (the next offset)."""

    lo: int
    hi: int


class Range(NamedTuple):
    """Offsets of a partition, from ``lo`` up to, not including, ``hi``."""

    partition: int
    lo: int
    hi: int
