"""Waiting for transactions to end: brokers write their markers after they have answered."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from asyncrevoke.spark.reading.offsets import resolve_ranges

if TYPE_CHECKING:
    from asyncrevoke.spark.reading.offsets import OffsetRange

_DEADLINE = 30.0


def ended_ranges(address: str, topic: str, *ends: int) -> list[OffsetRange]:
    """The ranges of a topic, once its partitions end at these offsets."""
    deadline = time.monotonic() + _DEADLINE
    while True:
        ranges = resolve_ranges(address, topic)
        if tuple(each.end for each in ranges) == ends:
            return ranges
        assert time.monotonic() < deadline, ranges
        time.sleep(0.05)
