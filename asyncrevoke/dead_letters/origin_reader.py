"""Reads dead letters as the original records, for the handlers that have failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from asyncrevoke.dead_letters.errors import DeadLettersError
from asyncrevoke.dead_letters.stored_dead_letter import (
    NoDeadLetter,
    StoredDeadLetter,
    has_no_content,
    read_dead_letter,
)
from asyncrevoke.replays.origin_record import OriginRecord

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from asyncrevoke.dead_letters.dead_letter_filter import DeadLetterFilter
    from asyncrevoke.handlers.policy.registration import HandlerLookup
    from asyncrevoke.model import Record
    from asyncrevoke.replays.range_source import NextRecords


class RejectedLetters(Protocol):
    """Receives the records of a dead letter topic for which no handler can be called.

    Implemented by :class:`asyncrevoke.replays.result_rows.ResultRows`.
    """

    def reject(self, record: Record, error: Exception) -> None:
        """This record failed with ``error``."""

    def wait_for_room(self) -> Awaitable[None]:
        """Return when there is room for further records."""
        ...


class OriginReader:
    """Reads the selected dead letters of ``read`` as ``OriginRecord``.

    ``rejected`` receives records without valid headers of a dead letter, without content, or whose
    original topic has no handler in ``lookup``. With ``strict``, these raise DeadLettersError.
    """

    def __init__(
        self,
        read: NextRecords,
        chosen: DeadLetterFilter,
        lookup: HandlerLookup,
        rejected: RejectedLetters,
        *,
        strict: bool = False,
    ) -> None:
        self._read = read
        self._chosen = chosen
        self._lookup = lookup
        self._rejected = rejected
        self._strict = strict

    async def read(self) -> Sequence[Record]:
        """The original records of the next dead letters; none at the end."""
        while records := await self._read():
            await self._rejected.wait_for_room()
            origins = [origin for each in records if (origin := self._origin_of(each))]
            if origins:
                return origins
        return ()

    def _origin_of(self, record: Record) -> OriginRecord | None:
        letter = read_dead_letter(record)
        if isinstance(letter, NoDeadLetter):
            self._reject(record, letter.why)
        elif self._chosen.takes(letter):
            if has_no_content(letter):
                self._reject(record, "it has no content: the record could not be read")
            elif self._lookup.get(letter.origin_topic) is None:
                self._reject(record, f"no handler for topic {letter.origin_topic!r}, its origin")
            else:
                return origin_of(letter)
        return None

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
