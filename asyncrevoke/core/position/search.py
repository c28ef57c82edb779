"""The search for the position of one partition instance, and what it waits for."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncrevoke.core.partition.offset_tracker import OffsetTracker

FIRST_BACKOFF = 0.1


class AwaitedOffset(enum.Enum):
    """What an instance waits for."""

    COMMITTED = "its committed offset"
    END = "the end of the log"
    TIMESTAMP = "an offset by timestamp"


class PositionSearch:
    """The search for the position of one instance."""

    __slots__ = (
        "asked",
        "awaits",
        "backoff",
        "due",
        "end",
        "error_reported",
        "timestamp",
        "topic_unknown",
        "tracker",
    )

    def __init__(
        self, now: float, tracker: OffsetTracker | None, awaits: AwaitedOffset, timestamp: int
    ) -> None:
        self.tracker = tracker
        self.awaits = awaits
        self.timestamp = timestamp
        # The end of the log, read before a search by timestamp: if no record is that young, we
        # start there, and not at a later end that would skip what arrives in between.
        self.end: tuple[int, int] | None = None
        self.asked = False
        self.due = now
        self.backoff = FIRST_BACKOFF
        self.error_reported = False
        self.topic_unknown = False
