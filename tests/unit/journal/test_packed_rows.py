"""Attempts of one turn of the event loop, encoded at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from unit.journal.written_journal import A, record

from asyncrevoke.journal.format.frames import SegmentHeader, header_frame
from asyncrevoke.journal.format.hashing import key_hash, signed_key_hashes
from asyncrevoke.journal.recording.encoding import encode, pack
from asyncrevoke.journal.recording.entries import Attempts, Entry, Packed, Turn
from asyncrevoke.journal.segments import read_blob

if TYPE_CHECKING:
    from asyncrevoke import Record


def taken_apart(records: list[Record], *, hashed: bool = True) -> tuple[Packed | None, Attempts]:
    started = list(range(len(records)))
    turns = [Turn(len(records), started, 200)]
    packed = pack(records, turns, hashed=hashed, one_topic=False)
    return packed, Attempts(records, started, 200)


def test_hashes_of_keys_are_signed_as_those_of_spark() -> None:
    keys = [b"%d" % number for number in range(100)]
    hashes = [key_hash(key) for key in keys]
    assert max(hashes) >= 2**63
    signed = [number - 2**64 if number >= 2**63 else number for number in hashes]
    assert signed_key_hashes([*keys, None]) == [*signed, None]


def encoded_rows(entry: Entry, *, hashed: bool) -> list[dict[str, Any]]:
    """As they are read from a log."""
    header = header_frame(SegmentHeader(A, "billing", 1), 5).data
    frames = [frame.data for frame in encode([entry], 5, hashed=hashed)]
    content = read_blob(b"".join([header, *frames]))
    assert (content.torn, content.damaged) == (None, None)
    return [row for batch in content.batches for row in batch.to_pylist()]


@pytest.mark.parametrize("hashed", [True, False])
@pytest.mark.parametrize("change", [{}, {"key": None}])
def test_rows_that_are_taken_apart_at_once_are_the_same(
    change: dict[str, Any], hashed: bool
) -> None:
    records = [
        msgspec.structs.replace(record(offset, partition=offset % 3), **change)
        for offset in range(100)
    ]
    packed, attempts = taken_apart(records, hashed=hashed)
    assert packed is not None
    assert encoded_rows(packed, hashed=hashed) == encoded_rows(attempts, hashed=hashed)


@pytest.mark.parametrize("change", [{"key": None}, {"value": None}, {"topic": "bills"}])
def test_what_is_not_plain_is_not_taken_apart(change: dict[str, Any]) -> None:
    odd = msgspec.structs.replace(record(50), **change)
    plain = [record(offset) for offset in range(50)]
    assert taken_apart([*plain, odd])[0] is None
    assert taken_apart([odd, *plain])[0] is None
