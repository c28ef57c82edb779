"""A record that is read from another topic than the one that its handler knows it by."""

from __future__ import annotations

from asyncrevoke.model import Record


class OriginRecord(Record, frozen=True, gc=False, eq=False):
    """A failed record, read from a dead letter topic, with the topic, partition and offset at which
    it was read before it failed.

    The dead letter is at ``letter_offset`` of ``letter_partition``.
    """

    letter_partition: int = -1
    letter_offset: int = -1


def place_of(record: Record) -> tuple[int, int]:
    """The partition and the offset at which a replay has read this record."""
    if isinstance(record, OriginRecord):
        return record.letter_partition, record.letter_offset
    return record.partition, record.offset
