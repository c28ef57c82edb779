"""Counts of dead letters by origin and error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from asyncrevoke.dead_letters.stored_dead_letter import NoDeadLetter, StoredDeadLetter

# Rows of a listing; dead letters of further rows are counted together.
MAX_ROWS: Final = 10_000
# Characters of an error's type in a row.
_LONGEST_TYPE: Final = 256
# Records that a result names.
MAX_NAMED: Final = 100


class DeadLetterCount(msgspec.Struct):
    """The number of dead letters of one origin and error.

    The timestamps are the first and the last of their original records, in milliseconds since the
    epoch, -1 if unknown.
    """

    origin_topic: str
    origin_partition: int
    error_type: str
    count: int = 0
    first_timestamp: int = -1
    last_timestamp: int = -1


class NamedRecord(msgspec.Struct):
    """A record of a dead letter topic that was not sent or has failed, and the reason."""

    partition: int
    offset: int
    why: str


class PlannedRecord(msgspec.Struct):
    """A dead letter that a dry run would send to the topic ``to``, the place of its original
    record, and the type of its error."""

    partition: int
    offset: int
    to: str
    origin_topic: str
    origin_partition: int
    origin_offset: int
    error_type: str


class Listing(msgspec.Struct):
    """The counts of a dead letter topic.

    ``other`` counts dead letters beyond the limit of rows. ``no_dead_letters`` counts records that
    other programs have written; ``named`` has the first of them.
    """

    topic: str
    rows: list[DeadLetterCount] = []
    other: int = 0
    no_dead_letters: int = 0
    named: list[NamedRecord] = []

    @property
    def count(self) -> int:
        """The number of selected dead letters."""
        return sum(row.count for row in self.rows) + self.other


class Counting:
    """Counts dead letters; :attr:`listing` has the result so far."""

    def __init__(self, topic: str) -> None:
        self.listing = Listing(topic=topic)
        self._rows: dict[tuple[str, int, str], DeadLetterCount] = {}

    def add(self, letter: StoredDeadLetter) -> None:
        """Count a dead letter."""
        key = letter.origin_topic, letter.origin_partition, letter.error_type[:_LONGEST_TYPE]
        row = self._rows.get(key)
        if row is None:
            if len(self._rows) >= MAX_ROWS:
                self.listing.other += 1
                return
            row = self._rows[key] = DeadLetterCount(*key)
            self.listing.rows.append(row)
        row.count += 1
        timestamp = letter.origin_timestamp
        if timestamp >= 0:
            if row.first_timestamp < 0 or timestamp < row.first_timestamp:
                row.first_timestamp = timestamp
            row.last_timestamp = max(row.last_timestamp, timestamp)

    def add_other(self, record: NoDeadLetter) -> None:
        """Count a record that is not a dead letter."""
        self.listing.no_dead_letters += 1
        if len(self.listing.named) < MAX_NAMED:
            place = record.record
            self.listing.named.append(NamedRecord(place.partition, place.offset, record.why))

    def end(self) -> Listing:
        """Return the listing, with rows sorted by origin and error."""
        rows = self.listing.rows
        rows.sort(key=lambda row: (row.origin_topic, row.origin_partition, row.error_type))
        return self.listing
