"""The search for the position of one partition instance, and why a position is reset."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.backoff import Backoff
from asyncrevoke.client.model import TopicPartition, Value

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.io.outbox import Outbox
    from asyncrevoke.client.core.partition.offset_tracker import OffsetTracker

_FIRST_BACKOFF = 0.1
_LONGEST_BACKOFF = 2.0
# Seconds: the transaction.timeout.ms that producers of other clients have by default, and the
# longest that a coordinator takes, beyond it, to abort a transaction.
_OTHERS_TIMEOUT = 60.0
_ABORTED_WITHIN = 20.0
# Offsets that one log line names.
_NAMED = 100


class AwaitedOffset(enum.Enum):
    """What an instance waits for."""

    COMMITTED = "its committed offset"
    END = "the end of the log"
    TIMESTAMP = "an offset by timestamp"


class ResetCause(Value, frozen=True):
    """Why a position is reset, and by which policy."""

    out_of_range: bool
    policy: str
    reason: str


class PositionSearch:
    """The search for the position of one instance."""

    def __init__(self, now: float, tracker: OffsetTracker | None) -> None:
        self.tracker = tracker
        self.awaits = AwaitedOffset.COMMITTED
        self.timestamp = 0
        # The end of the log, read before a search by timestamp: without a record that young, the
        # instance starts there, and not at a later end that would skip new records.
        self.end: tuple[int, int] | None = None
        # Why the reset policy applies; None for a committed offset, and for a seek.
        self.reset_cause: ResetCause | None = None
        self.asked = False
        self.due = now
        self.backoff = Backoff(_FIRST_BACKOFF, _LONGEST_BACKOFF)
        self.error_reported = False
        self.topic_unknown = False
        # When its committed offset was first in a transaction that is open; infinite when that was
        # reported.
        self._pending_since: float | None = None

    def wait_until(self, at: float) -> None:
        """Ask at this time."""
        self.due = at

    def hasten(self, now: float) -> None:
        """Ask now, if it waits."""
        self.due = min(self.due, now)

    def set_asked(self, asked: bool) -> None:
        """Whether a request is under way."""
        self.asked = asked

    def set_topic_unknown(self, unknown: bool) -> None:
        """Whether it waits for the metadata of its topic."""
        self.topic_unknown = unknown

    def retry_later(self, now: float, slow: float | None) -> None:
        """Ask again after a backoff, or after ``slow`` seconds."""
        self.asked = False
        delay = self.backoff.failed()
        self.due = now + (delay if slow is None else slow)

    def offset_pending(
        self, now: float, outbox: Outbox, partition: TopicPartition, config: ConsumerConfig
    ) -> None:
        """Its committed offset is in a transaction that is open. Logged once if that lasts for
        longer than a transaction may."""
        if self._pending_since is None:
            self._pending_since = now
        exactly_once = config.processing == "exactly_once"
        seconds = config.transaction_timeout if exactly_once else _OTHERS_TIMEOUT
        seconds += _ABORTED_WITHIN
        if now - self._pending_since > seconds:
            self._pending_since = float("inf")
            outbox.emit(
                log_events.OFFSET_PENDING_TOO_LONG, partition=str(partition), seconds=seconds
            )

    def by_policy(self, timestamp: int, cause: ResetCause) -> None:
        """The reset policy applies: look for the first record at or after this time."""
        self.reset_cause = cause
        self.by_time(timestamp)

    def by_time(self, timestamp: int) -> None:
        """Look for the first record at or after this time."""
        self.timestamp = timestamp
        self.awaits = AwaitedOffset.TIMESTAMP if timestamp < 0 else AwaitedOffset.END
        self.backoff.succeeded()

    def end_found(self, now: float, end: tuple[int, int]) -> None:
        """The end of the log is known: search by timestamp now."""
        self.end = end
        self.awaits = AwaitedOffset.TIMESTAMP
        self.due = now

    def report_error(self) -> bool:
        """Whether to report its error: True only the first time."""
        is_new = not self.error_reported
        self.error_reported = True
        return is_new


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
