"""Log lines about positions that ``auto_offset_reset`` has set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.model import Value

if TYPE_CHECKING:
    from asyncrevoke.client.core.io.outbox import Outbox
    from asyncrevoke.client.model import TopicPartition

_NAMED = 100


class ResetCause(Value, frozen=True):
    """Why a position is reset, and by which policy."""

    out_of_range: bool
    policy: str
    reason: str


class ResetLog:
    """Collects reset positions, and logs those of one response in one line for each cause."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._found: dict[ResetCause, dict[str, int]] = {}

    def found(self, cause: ResetCause, partition: TopicPartition, offset: int) -> None:
        """The partition is read from this offset on."""
        self._found.setdefault(cause, {})[str(partition)] = offset

    def write(self) -> None:
        """Log what was found since the last call."""
        for cause, offsets in self._found.items():
            self._outbox.emit(
                log_events.POSITION_OUT_OF_RANGE
                if cause.out_of_range
                else log_events.POSITION_RESET,
                policy=cause.policy,
                reason=cause.reason,
                count=len(offsets),
                offsets=dict(list(offsets.items())[:_NAMED]),
            )
        self._found = {}
