"""What is written to a dead letter topic beside the record itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from asyncrevoke.model import Record

# The names of the headers that are added; their values are UTF-8 text.
ORIGIN_TOPIC: Final = "asyncrevoke-origin-topic"
ORIGIN_PARTITION: Final = "asyncrevoke-origin-partition"
ORIGIN_OFFSET: Final = "asyncrevoke-origin-offset"
ORIGIN_TIMESTAMP: Final = "asyncrevoke-origin-timestamp"
ERROR_TYPE: Final = "asyncrevoke-error-type"
ERROR_MESSAGE: Final = "asyncrevoke-error-message"
ATTEMPTS: Final = "asyncrevoke-attempts"

# Bytes of an error's type or message that are kept.
_MOST_BYTES = 1024


class DeadLetters(Protocol):
    """Where records go whose handlers have failed for good."""

    async def send(self, topic: str, letter: DeadLetter) -> None:
        """Write this to a topic, and return when all in-sync replicas have it.

        Raises whatever keeps it from being written. If cancelled, it may be written all the same.
        """
        ...


class LetterSender(DeadLetters, Protocol):
    """One that is to be closed."""

    async def aclose(self) -> None:
        """Nothing more is to be sent."""
        ...


class DeadLetter:
    """A record's own key, value, timestamp and headers, and headers that say why it is here.

    The record may be a dead letter itself: its headers are kept, so that of a name that occurs
    twice the last one is ours. ``attempts`` counts the calls of its handler; 0 if it did not
    decode.
    """

    __slots__ = ("headers", "key", "timestamp", "value")

    def __init__(self, record: Record, error: BaseException, attempts: int) -> None:
        self.key = record.key
        self.value = record.value
        self.timestamp = record.timestamp
        self.headers: list[tuple[str, bytes | None]] = [
            *record.headers,
            (ORIGIN_TOPIC, record.topic.encode()),
            (ORIGIN_PARTITION, b"%d" % record.partition),
            (ORIGIN_OFFSET, b"%d" % record.offset),
            (ORIGIN_TIMESTAMP, b"%d" % record.timestamp),
            (ERROR_TYPE, _cut(_type_name(error))),
            (ERROR_MESSAGE, _cut(_message(error))),
            (ATTEMPTS, b"%d" % attempts),
        ]


def _type_name(error: BaseException) -> str:
    kind = type(error)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as unprintable:  # noqa: BLE001 - a user's exception may fail at that, too
        return f"(its text cannot be had: {type(unprintable).__name__})"


def _cut(text: str) -> bytes:
    """At most 1 KiB, and no half character."""
    encoded = text[:_MOST_BYTES].encode("utf-8", "backslashreplace")
    return encoded[:_MOST_BYTES].decode("utf-8", "ignore").encode()
