"""A dead letter in the form of the page: its origin, and the contents of its record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.printable import counted, printable

if TYPE_CHECKING:
    from asyncrevoke.client.model import Record

# Limits for the shown bytes of a key, header or value, and for headers.
_MOST_BYTES: Final = 2000
_MOST_HEADERS: Final = 50


class ShownDeadLetter(NamedTuple):
    """A record that was written to a dead letter topic at ``at`` (seconds since the epoch).

    ``error`` is the type of the exception. ``contents`` are pairs of a name and a printable text:
    the error's message, the key, the headers and the value.
    """

    number: int
    at: float
    owner: str
    topic: str
    origin: TopicPartition
    offset: int
    error: str
    contents: tuple[tuple[str, str], ...]


def contents(record: Record, error: str) -> tuple[tuple[str, str], ...]:
    """The error's message, and the record. Each text is cut after 2,000 bytes."""
    headers = [
        (f"header {printable(name, _MOST_BYTES)}", _shown(value))
        for name, value in record.headers[:_MOST_HEADERS]
    ]
    return (
        ("error", printable(error, _MOST_BYTES)),
        ("key", _shown(record.key)),
        *headers,
        ("value", _shown(record.value)),
    )


def _shown(content: bytes | None) -> str:
    if content is None:
        return "null"
    text = printable(bytes(content[:_MOST_BYTES]).decode("utf-8", "backslashreplace"), _MOST_BYTES)
    return text if len(content) <= _MOST_BYTES else f"{text}… ({counted(len(content), 'byte')})"
