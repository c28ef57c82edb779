"""Reads dead letters, and makes the headers of the records that replay them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from asyncrevoke.client.config.topics import is_legal_topic
from asyncrevoke.client.model import Record, UnreadableRecord
from asyncrevoke.handlers.dead_letters.dead_letter import (
    ATTEMPTS,
    ERROR_MESSAGE,
    ERROR_TYPE,
    HEADERS,
    MAX_COUNT,
    MAX_TEXT_BYTES,
    ORIGIN_OFFSET,
    ORIGIN_PARTITION,
    ORIGIN_TIMESTAMP,
    ORIGIN_TOPIC,
)

if TYPE_CHECKING:
    from collections.abc import Collection

# The name of a topic, and the last part of the name of its dead letter topic.
_NAMED_AFTER: Final = re.compile(
    r"(?!dead[._-]letters?$)(.+?)[._-](?:dead[._-]letters?|[^._-]+)", re.IGNORECASE
)
# How often a record was replayed: a header of replayed records, and of their dead letters.
REPLAYS: Final = "asyncrevoke-replays"
# The timestamp that a replayed record had before its first replay, in milliseconds since the epoch.
REPLAYED_TIMESTAMP: Final = "asyncrevoke-replayed-timestamp"

# The dead letter of a record that could not be read has no key and no value.
_UNREADABLE: Final = "asyncrevoke.errors.UnreadableRecordError"
_MAX_INT64: Final = 2**63 - 1


class StoredDeadLetter(NamedTuple):
    """A dead letter: the ``record`` of the dead letter topic, and the values of its headers.

    ``origin_timestamp`` is the timestamp of the record, in milliseconds since the epoch, -1 if
    unknown. ``replayed_timestamp`` is the one that it had before its first replay, -1 if it was not
    replayed, or kept its timestamp. ``attempts`` counts the calls of the handler, ``replays`` how
    often the record was replayed before it failed. Any program may write to the topic: do not trust
    the texts.
    """

    record: Record
    origin_topic: str
    origin_partition: int
    origin_offset: int
    origin_timestamp: int
    error_type: str
    error_message: str
    attempts: int
    replays: int
    replayed_timestamp: int = -1

    @property
    def original_timestamp(self) -> int:
        """The timestamp before all replays, in milliseconds since the epoch, -1 if unknown."""
        replayed = self.replayed_timestamp
        return self.origin_timestamp if replayed < 0 else replayed

    def replay_headers(self) -> list[tuple[str, bytes | None]]:
        """The headers of the record before it failed, and the number of replays with this one.

        The record has a header with the timestamp before all replays only if it had it before.
        """
        kept: list[tuple[str, bytes | None]] = []
        left = set(HEADERS)
        for header in reversed(self.record.headers):
            # Of two headers with the same name, the last one describes the last failure.
            if header[0] in left:
                left.discard(header[0])
            elif header[0] != REPLAYS:
                kept.append(header)
        kept.reverse()
        return [*kept, (REPLAYS, b"%d" % min(self.replays + 1, MAX_COUNT))]

    def replay_headers_with_timestamp(self) -> list[tuple[str, bytes | None]]:
        """The headers of :meth:`replay_headers`, one of which is the original timestamp."""
        headers = self.replay_headers()
        if self.replayed_timestamp < 0 <= self.origin_timestamp:
            headers.append((REPLAYED_TIMESTAMP, b"%d" % self.origin_timestamp))
        return headers


class NoDeadLetter(NamedTuple):
    """A record of a dead letter topic that cannot be listed or replayed."""

    record: Record
    why: str


def read_dead_letter(record: Record) -> StoredDeadLetter | NoDeadLetter:
    """Read the headers of a dead letter; NoDeadLetter if another program has written the record."""
    if isinstance(record, UnreadableRecord):
        return NoDeadLetter(record, "the record cannot be read")
    headers = dict(record.headers)
    topic = _text(headers.get(ORIGIN_TOPIC))
    partition = _number(headers.get(ORIGIN_PARTITION), MAX_COUNT)
    offset = _number(headers.get(ORIGIN_OFFSET), _MAX_INT64)
    if not topic:
        return NoDeadLetter(record, "it has no headers of a dead letter")
    if not is_legal_topic(topic):
        return NoDeadLetter(record, f"its origin {topic!r:.100} is not a valid topic name")
    if partition is None or offset is None:
        return NoDeadLetter(record, "its origin has no valid partition and offset")
    return StoredDeadLetter(
        record,
        topic,
        partition,
        offset,
        _timestamp(headers.get(ORIGIN_TIMESTAMP)),
        _text(headers.get(ERROR_TYPE)),
        _text(headers.get(ERROR_MESSAGE)),
        _number(headers.get(ATTEMPTS), MAX_COUNT) or 0,
        _replays(headers),
        _timestamp(headers.get(REPLAYED_TIMESTAMP)),
    )


def why_not_replayed(
    letter: StoredDeadLetter, to: str, allowed: Collection[str], max_replays: int
) -> str | None:
    """The reason why a dead letter is not written to the topic ``to``; None if it may be.

    A header names the origin, and each writer of the dead letter topic can set it. So ``to`` must
    be an ``allowed`` topic, or the one topic that the dead letter topic is named after: its name
    without the last part (``orders`` of ``orders.dlq``, ``orders.eu`` of ``orders.eu.dlq``).
    """
    if to == letter.record.topic:
        return "it would be written to the dead letter topic itself"
    if to.startswith("__"):
        return f"its origin {to} is an internal topic"
    if to not in allowed and to != named_after(letter.record.topic):
        return (
            f"its origin {to} is not the topic that {letter.record.topic} is named after: select "
            "that origin topic to allow it"
        )
    if letter.replays >= max_replays:
        return (
            f"it was replayed {letter.replays} times and failed again (max_attempts={max_replays})"
        )
    if has_no_content(letter):
        return "it has no content: the record could not be read when it failed"
    return None


def named_after(dead_letter_topic: str) -> str | None:
    """The topic that a dead letter topic is named after; None if its name has one part.

    ``dead-letters`` and ``dead-letter`` are one part.
    """
    found = _NAMED_AFTER.fullmatch(dead_letter_topic)
    return None if found is None else found[1]


def has_no_content(letter: StoredDeadLetter) -> bool:
    """Whether the record could not be read when it failed, so the dead letter has no content."""
    return letter.error_type == _UNREADABLE and letter.record.value is None


def _replays(headers: dict[str, bytes | None]) -> int:
    """The number of replays; the highest if it cannot be read, so that no replay loops for ever."""
    if REPLAYS not in headers:
        return 0
    number = _number(headers[REPLAYS], MAX_COUNT)
    return MAX_COUNT if number is None else number


def _timestamp(value: bytes | None) -> int:
    number = _number(value, _MAX_INT64)
    return -1 if number is None else number


def _text(value: bytes | None) -> str:
    """The beginning of a text: whoever writes to the topic decides how long it is."""
    return (value or b"")[:MAX_TEXT_BYTES].decode("utf-8", "replace")


def _number(value: bytes | None, largest: int) -> int | None:
    if value is None or not value.isdigit() or len(value) > 19:
        return None
    number = int(value)
    return number if number <= largest else None
