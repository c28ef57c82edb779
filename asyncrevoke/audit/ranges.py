"""Offsets of partitions, and what an audit reads of their records."""

from __future__ import annotations

from collections.abc import Container
from typing import Final, NamedTuple


class Bounds(NamedTuple):
    """The first offset of a partition's log, and its end (the next offset)."""

    lo: int
    hi: int


class Range(NamedTuple):
    """Offsets of a partition, from ``lo`` up to, not including, ``hi``."""

    partition: int
    lo: int
    hi: int


class UnusedHashes(NamedTuple):
    """The partitions whose records may be read without the hashes of keys, and without those of
    whole records."""

    of_keys: Container[int] = ()
    of_records: Container[int] = ()


ALL_USED: Final = UnusedHashes()
"""All hashes are needed."""
