"""What waits to be written: rows before they are rows."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from asyncrevoke.journal.arrow import RecordBatch
from asyncrevoke.journal.schema import Kind, Outcome
from asyncrevoke.model import Record

if TYPE_CHECKING:
    from collections import deque


class Attempts(NamedTuple):
    """Records that ended together. ``started`` is one time for all, or one each."""

    records: Sequence[Record]
    started: int | Sequence[int]
    at: int
    outcome: Outcome = Outcome.OK
    attempt: int | None = 1
    error: BaseException | None = None


class Turn(NamedTuple):
    """Attempts that ended together. ``started`` is one time for all, or one each."""

    rows: int
    started: int | Sequence[int]
    at: int


class Packed(NamedTuple):
    """Attempts that went well at first, of one topic: columns, as Arrow will have them, and when
    they were.

    ``key_hashes`` is empty if all keys are null, and with ``record_hashes`` if there are none.
    """

    rows: int
    topic: str
    turns: Sequence[Turn]
    partitions: array[int]
    offsets: array[int]
    key_hashes: bytes
    record_hashes: bytes


class Fetched(NamedTuple):
    """A record batch that came from a broker, and when."""

    topic: str
    partition: int
    first: int
    last: int
    records: int
    checksum: int
    came: int


class Notes(NamedTuple):
    """Batches that are written down together."""

    batches: Sequence[Fetched]
    at: int


class Fact(NamedTuple):
    """Any other row."""

    kind: Kind
    at: int
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    member: str | None = None
    generation: int | None = None
    outcome: Outcome | None = None
    facts: str | None = None
    # Of a START.
    record: Record | None = None


Entry: TypeAlias = Attempts | Packed | Notes | Fact


class Batches(NamedTuple):
    """Rows that are Arrow record batches already."""

    batches: Sequence[RecordBatch]


# Each with the number of its first row. Only the event loop's thread appends; entries that come
# after another have numbers that do.
Queue: TypeAlias = "deque[tuple[int, Entry | Batches]]"
