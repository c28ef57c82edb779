"""The form in which failed records are written to a retry topic and read from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from asyncrevoke.client import log_events
from asyncrevoke.client.config.topics import is_legal_topic
from asyncrevoke.client.model import Record
from asyncrevoke.handlers.dead_letters.dead_letter import (
    HEADERS,
    MAX_COUNT,
    DeadLetter,
    may_be_origin,
)

if TYPE_CHECKING:
    from asyncrevoke.client.log_events import Log
    from asyncrevoke.handlers.matching import HandlerLookup

# Headers of a retry topic, in UTF-8: how often the record was written to one, and when its handler
# is called, in milliseconds since the epoch.
DELAYED_ATTEMPT: Final = "asyncrevoke-delayed-attempt"
DUE: Final = "asyncrevoke-due"

# The headers that follow the headers of a record, in this order.
_HEADERS = (*HEADERS, DELAYED_ATTEMPT, DUE)
_MAX_DIGITS = 19
_MAX_INT64 = 2**63 - 1


class RetryHistory(NamedTuple):
    """What happened to a record before it was read from a retry topic.

    ``record`` is the record as it was first read, with its original topic and offset. ``calls``
    counts the calls of its handler so far, ``retry_topic_reads`` how often it was read from there.
    """

    record: Record
    calls: int
    retry_topic_reads: int


class RetryHistories:
    """The histories of records. Only records of the retry ``topics`` have calls in theirs."""

    def __init__(self, lookup: HandlerLookup, log: Log) -> None:
        self.topics = frozenset(
            handler.retry_topic.topic for handler in lookup.handlers if handler.retry_topic
        )
        self._lookup = lookup
        self._log = log
        # Retry topics in which a record named an origin that no handler sends there.
        self._with_other_origins: set[str] = set()

    def of(self, record: Record) -> RetryHistory:
        """The history of a record, without calls if it was not read from a retry topic, or if its
        headers name an origin that no handler sends there."""
        if record.topic in self.topics and (history := retry_history(record)) is not None:
            if may_be_origin(self._lookup, history.record.topic, record.topic):
                return history
            self._log_other_origin(record, history.record.topic)
        return RetryHistory(record, 0, 0)

    def _log_other_origin(self, record: Record, origin: str) -> None:
        """Log only the first such record of a topic: whoever writes to it decides how many."""
        if record.topic not in self._with_other_origins:
            self._with_other_origins.add(record.topic)
            log_events.ORIGIN_NOT_OURS.write_to(
                self._log,
                partition=str(record.topic_partition),
                offset=record.offset,
                origin=origin,
            )


class RetryMessage(DeadLetter):
    """A failed record for a retry topic: a dead letter with two more headers."""

    __slots__ = ()

    def __init__(self, history: RetryHistory, error: BaseException, due: float) -> None:
        """``history`` includes the failed call; ``due`` is in seconds since the epoch."""
        super().__init__(history.record, error, history.calls)
        self.headers += [
            (DELAYED_ATTEMPT, b"%d" % min(history.retry_topic_reads + 1, MAX_COUNT)),
            (DUE, b"%d" % int(due * 1000)),
        ]


def retry_history(record: Record) -> RetryHistory | None:
    """The history of a record of a retry topic; None if another program has written it.

    No offset tracker counts the ``record`` of the history: only the handler receives it.
    """
    own = len(record.headers) - len(_HEADERS)
    if own < 0 or tuple(name for name, _ in record.headers[own:]) != _HEADERS:
        return None
    topic, partition, offset, timestamp, _, _, calls, reads, _ = (
        value or b"" for _, value in record.headers[own:]
    )
    numbers = (partition, offset, timestamp, calls, reads)
    name = topic.decode("ascii", "replace")
    if not is_legal_topic(name) or not all(map(_is_number, numbers)):
        return None
    # Any program may write to the topic: the library writes no number that Kafka's fields cannot
    # hold.
    if not (
        all(0 <= int(number) <= MAX_COUNT for number in (partition, calls, reads))
        and 0 <= int(offset) <= _MAX_INT64
        and -1 <= int(timestamp) <= _MAX_INT64
    ):
        return None
    origin = Record(
        name,
        int(partition),
        int(offset),
        int(timestamp),
        record.timestamp_type,
        record.key,
        record.value,
        record.headers[:own],
    )
    return RetryHistory(origin, int(calls), int(reads))


def due_time_ms(record: Record) -> float:
    """When a record of a retry topic is due, in ms since the epoch; 0 without a valid header."""
    name, value = record.headers[-1] if record.headers else ("", None)
    return float(value) if name == DUE and value is not None and _is_number(value) else 0.0


def _is_number(value: bytes) -> bool:
    digits = value[1:] if value[:1] == b"-" else value
    return digits.isdigit() and len(digits) <= _MAX_DIGITS
