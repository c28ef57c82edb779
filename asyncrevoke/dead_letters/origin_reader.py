"""Reads dead letters as the original records, for the handlers that have failed."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from asyncrevoke.dead_letters.errors import DeadLettersError
from asyncrevoke.dead_letters.stored_dead_letter import (
    NoDeadLetter,
    StoredDeadLetter,
    has_no_content,
    read_dead_letter,
)
from asyncrevoke.handlers.dead_letters.dead_letter import may_be_origin
from asyncrevoke.replays.result_rows import OriginRecord, ResultRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.model import Record
    from asyncrevoke.dead_letters.dead_letter_filter import DeadLetterFilter
    from asyncrevoke.replays.opened_handlers import OpenedHandlers
    from asyncrevoke.replays.range_source import NextRecords


class OriginReader:
    """Reads the selected dead letters of ``read`` as ``OriginRecord``.

    ``rejected`` receives records without valid headers of a dead letter, without content, or with
    an original topic that has no handler, or whose handlers do not write to this dead letter topic
    (unless ``chosen`` names that original topic). With ``strict``, these raise DeadLettersError.
    After ``limit`` original records, none are read or rejected any more.
    """

    def __init__(
        self,
        read: NextRecords,
        chosen: DeadLetterFilter,
        opened: OpenedHandlers,
        rejected: ResultRows,
        *,
        strict: bool = False,
        limit: int | None = None,
    ) -> None:
        self._read = read
        self._chosen = chosen
        self._opened = opened
        self._rejected = rejected
        self._strict = strict
        self._left = limit

    async def read(self) -> Sequence[Record]:
        """The original records of the next dead letters; none at the end."""
        while self._left != 0 and (records := await self._read()):
            await self._rejected.wait_for_room()
            found = (origin for record in records if (origin := self._origin_of(record)))
            origins = list(islice(found, self._left))
            if self._left is not None:
                self._left -= len(origins)
            if origins:
                return origins
        return ()

    def _origin_of(self, record: Record) -> OriginRecord | None:
        letter = read_dead_letter(record)
        if isinstance(letter, NoDeadLetter):
            self._reject(record, letter.why)
        elif self._chosen.takes(letter):
            why = self._why_not(letter)
            if why is None:
                return origin_of(letter)
            self._reject(record, why)
        return None

    def _why_not(self, letter: StoredDeadLetter) -> str | None:
        """Why no handler is called for a dead letter; None if one is."""
        origin, topic = letter.origin_topic, letter.record.topic
        if has_no_content(letter):
            return "it has no content: the record could not be read"
        opened = self._opened
        if opened.router.get(origin) is None:
            return f"no handler for topic {origin!r}, its origin"
        if origin in self._chosen.origin_topics or may_be_origin(opened.registered, origin, topic):
            return None
        return (
            f"no handler of {origin}, its origin, has dead_letter={topic}: select that origin "
            "topic to allow it"
        )

    def _reject(self, record: Record, why: str) -> None:
        error = DeadLettersError(f"{record.topic_partition} offset {record.offset}: {why}")
        if self._strict:
            raise error
        self._rejected.reject(record, error)


def origin_of(letter: StoredDeadLetter) -> OriginRecord:
    """The original record of a dead letter, with the number of its replays as a header."""
    record = letter.record
    return OriginRecord(
        letter.origin_topic,
        letter.origin_partition,
        letter.origin_offset,
        letter.origin_timestamp,
        record.timestamp_type,
        record.key,
        record.value,
        tuple(letter.replay_headers()),
        letter_partition=record.partition,
        letter_offset=record.offset,
    )
