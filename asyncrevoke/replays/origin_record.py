"""The original record of a dead letter."""

from __future__ import annotations

from asyncrevoke.client.model import Record


class OriginRecord(Record, frozen=True, gc=False, eq=False):
    """The original record of a dead letter, with the topic, partition and offset that it had.

    The dead letter is at ``letter_offset`` of ``letter_partition``.
    """

    letter_partition: int = -1
    letter_offset: int = -1


def place_of(record: Record) -> tuple[int, int]:
    """The partition and the offset from which a replay has read a record or its dead letter."""
    if isinstance(record, OriginRecord):
        return record.letter_partition, record.letter_offset
    return record.partition, record.offset
