"""What is written to a retry topic, and what it says when it comes back."""

from __future__ import annotations

from typing import Final, NamedTuple

from asyncrevoke.handlers.dead_letters.dead_letter import (
    ATTEMPTS,
    ERROR_MESSAGE,
    ERROR_TYPE,
    ORIGIN_OFFSET,
    ORIGIN_PARTITION,
    ORIGIN_TIMESTAMP,
    ORIGIN_TOPIC,
    DeadLetter,
)
from asyncrevoke.model import Record

# Further headers, in UTF-8: how often the record has been sent there, and when its handler is to
# be called, in milliseconds since the epoch.
DELAYED_ATTEMPT: Final = "asyncrevoke-delayed-attempt"
DUE: Final = "asyncrevoke-due"

# The headers that are added to a record's own, in this order, at the end.
_ADDED = (
    ORIGIN_TOPIC,
    ORIGIN_PARTITION,
    ORIGIN_OFFSET,
    ORIGIN_TIMESTAMP,
    ERROR_TYPE,
    ERROR_MESSAGE,
    ATTEMPTS,
    DELAYED_ATTEMPT,
    DUE,
)
_MOST_DIGITS = 19
_MOST_INT32 = 2**31 - 1
_MOST_INT64 = 2**63 - 1


class Past(NamedTuple):
    """What is known of a record from before it was read.

    ``record`` is as it was first read, in its origin. ``calls`` counts the calls for it until then,
    and ``returns`` how often it has come back from a retry topic.
    """

    record: Record
    calls: int
    returns: int


class Postponed(DeadLetter):
    """A record for a retry topic: like a dead letter, with two headers more.

    Its timestamp is that of its writing, as brokers delete by it; its own is among the headers.
    """

    __slots__ = ()

    def __init__(self, past: Past, error: BaseException, due: float) -> None:
        """``past`` includes what has just failed; ``due`` is in seconds since the epoch."""
        super().__init__(past.record, error, past.calls)
        self.timestamp = -1
        self.headers += [
            (DELAYED_ATTEMPT, b"%d" % (past.returns + 1)),
            (DUE, b"%d" % int(due * 1000)),
        ]


def past_of(record: Record) -> Past | None:
    """The past of a record that was read from a retry topic; None if it was not sent there by us.

    It has a ``record`` of no tracker: nothing can be done with that but looking at it.
    """
    own = len(record.headers) - len(_ADDED)
    if own < 0 or tuple(name for name, _ in record.headers[own:]) != _ADDED:
        return None
    topic, partition, offset, timestamp, _, _, calls, returns, _ = (
        value or b"" for _, value in record.headers[own:]
    )
    numbers = (partition, offset, timestamp, calls, returns)
    if not topic.isascii() or not all(map(_is_number, numbers)):
        return None
    # Anybody may write to that topic: what Kafka has no room for could not be sent on.
    if not (
        all(0 <= int(each) <= _MOST_INT32 for each in (partition, calls, returns))
        and 0 <= int(offset) <= _MOST_INT64
        and -1 <= int(timestamp) <= _MOST_INT64
    ):
        return None
    origin = Record(
        topic.decode("ascii"),
        int(partition),
        int(offset),
        int(timestamp),
        record.timestamp_type,
        record.key,
        record.value,
        record.headers[:own],
    )
    return Past(origin, int(calls), int(returns))


def due_of(record: Record) -> float:
    """When a record of a retry topic is due, in ms since the epoch; 0 if it does not say."""
    name, value = record.headers[-1] if record.headers else ("", None)
    return float(value) if name == DUE and value is not None and _is_number(value) else 0.0


def _is_number(value: bytes) -> bool:
    digits = value[1:] if value[:1] == b"-" else value
    return digits.isdigit() and len(digits) <= _MOST_DIGITS
