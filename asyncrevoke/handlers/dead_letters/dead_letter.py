"""The form in which failed records are written to a dead letter topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asyncrevoke.client.config.topics import is_legal_topic
from asyncrevoke.client.printable import error_text
from asyncrevoke.client.protocol.content_limits import (
    ADDED_PREFIX,
    MAX_ADDED_HEADERS,
    MAX_RECORD_HEADERS,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from asyncrevoke.client.model import Record
    from asyncrevoke.handlers.matching import HandlerLookup

# The names of the added headers; their values are UTF-8 text.
ORIGIN_TOPIC: Final = "asyncrevoke-origin-topic"
ORIGIN_PARTITION: Final = "asyncrevoke-origin-partition"
ORIGIN_OFFSET: Final = "asyncrevoke-origin-offset"
ORIGIN_TIMESTAMP: Final = "asyncrevoke-origin-timestamp"
ERROR_TYPE: Final = "asyncrevoke-error-type"
ERROR_MESSAGE: Final = "asyncrevoke-error-message"
ATTEMPTS: Final = "asyncrevoke-attempts"

# All added headers, in the order in which they follow the headers of the record.
HEADERS: Final = (
    ORIGIN_TOPIC,
    ORIGIN_PARTITION,
    ORIGIN_OFFSET,
    ORIGIN_TIMESTAMP,
    ERROR_TYPE,
    ERROR_MESSAGE,
    ATTEMPTS,
)

# Those of a dead letter, two more of a retry, and two of a replay.
_MOST_ADDED: Final = len(HEADERS) + 4
# The highest count in a header.
MAX_COUNT: Final = 2**31 - 1
# The longest value of a header about the error (bytes).
MAX_TEXT_BYTES: Final = 1024


def may_be_origin(lookup: HandlerLookup, origin: str, written_to: str) -> bool:
    """Whether handlers of the topic ``origin`` send failed records to the topic ``written_to``.

    Whoever may write to a dead letter topic or a retry topic chooses the headers of its records.
    A header is believed only if this consumer could have written it: without this, it would choose
    the handler, and name records of any topic.
    """
    return is_legal_topic(origin) and any(
        written_to in handler.failure_topics for handler in lookup.handlers_of(origin)
    )


class DeadLetter:
    """A record's key, value and headers, followed by headers that say why it failed.

    It is written with the time of writing as its timestamp, because brokers accept and delete
    records by timestamp: the time of the record may be days ago, or beyond what the topic allows.
    A header has the timestamp of the record.

    A record that was a dead letter before keeps the headers of the former failure: of two headers
    with the same name, the last one counts. So that it can be read again, the oldest of these are
    left out if there would be too many headers. ``attempts`` is the number of calls of the handler,
    0 if the record does not decode.
    """

    __slots__ = ("headers", "key", "value")

    def __init__(self, record: Record, error: BaseException, attempts: int) -> None:
        self.key = record.key
        self.value = None if record.value is None else bytes(record.value)
        self.headers: list[tuple[str, bytes | None]] = [
            *_kept(record.headers),
            (ORIGIN_TOPIC, record.topic.encode()),
            (ORIGIN_PARTITION, b"%d" % record.partition),
            (ORIGIN_OFFSET, b"%d" % record.offset),
            (ORIGIN_TIMESTAMP, b"%d" % record.timestamp),
            (ERROR_TYPE, _truncated(_type_name(error))),
            (ERROR_MESSAGE, _truncated(error_text(error))),
            (ATTEMPTS, b"%d" % min(attempts, MAX_COUNT)),
        ]

    def set_headers(self, headers: Iterable[tuple[str, bytes | None]]) -> None:
        """Replace all headers, for a tracer that adds the trace context.

        Does nothing if the message would have too many headers to be read again.
        """
        replaced = list(headers)
        if len(replaced) <= max(MAX_RECORD_HEADERS, len(self.headers)):
            self.headers = replaced


def _kept(
    headers: Sequence[tuple[str, bytes | None]],
) -> Sequence[tuple[str, bytes | None]]:
    """The headers of a record, without the oldest added ones if there would be too many."""
    excess = len(headers) + _MOST_ADDED - MAX_RECORD_HEADERS - MAX_ADDED_HEADERS
    if excess <= 0:
        return headers
    added = [at for at, (name, _) in enumerate(headers) if name.startswith(ADDED_PREFIX)]
    left_out = set(added[:excess])
    return [header for at, header in enumerate(headers) if at not in left_out]


def _type_name(error: BaseException) -> str:
    kind = type(error)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _truncated(text: str) -> bytes:
    """The beginning of a text in UTF-8: at most 1 KiB of whole characters."""
    encoded = text[:MAX_TEXT_BYTES].encode("utf-8", "backslashreplace")
    return encoded[:MAX_TEXT_BYTES].decode("utf-8", "ignore").encode()
