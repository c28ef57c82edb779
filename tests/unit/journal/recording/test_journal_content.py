"""What a journal has of the content of records: checksums of record batches, or hashes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from unit.journal.journal_rows import attempts_of, rows_of
from unit.journal.written_journal import A, record

from asyncrevoke import Consumer, Record
from asyncrevoke.journal import Journal
from asyncrevoke.journal.format.frames import SegmentHeader, header_frame
from asyncrevoke.journal.format.hashing import key_hash, signed_key_hashes
from asyncrevoke.journal.reading import read_journal
from asyncrevoke.journal.recording.encoding import encode, pack
from asyncrevoke.journal.recording.entries import Attempts, Entry, LoopTurn, Packed
from asyncrevoke.journal.segments import read_blob
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from pathlib import Path

    from asyncrevoke.journal.format.schema import Content


@pytest.mark.parametrize("strict", [True, False])
async def test_rows_without_content_have_no_hashes(tmp_path: Path, strict: bool) -> None:
    consumer = Consumer(group_id="billing", journal=Journal(tmp_path, strict=strict, content=None))

    @consumer.handler("orders", on_error="skip")
    async def bill(value: dict[str, int]) -> None:
        if value["id"] == 1:
            raise ValueError("no such customer")

    async with TestConsumer(consumer, partitions=1) as t:
        for number in range(4):
            await t.publish("orders", {"id": number}, key="a")
        await t.advance(1)
    assert Counter(attempts_of(tmp_path)) == Counter(
        [(0, 0, 1, "ok"), (0, 1, 1, "skipped"), (0, 2, 1, "ok"), (0, 3, 1, "ok")]
    )
    assert len(rows_of(tmp_path, "START")) == (4 if strict else 0)
    found = read_journal(tmp_path)
    assert {(row["key_hash"], row["record_hash"]) for row in found.table.to_pylist()} == {
        (None, None)
    }
    assert found.sessions[0].facts["content"] is None
    assert found.sessions[0].gap is None


async def test_a_journal_has_the_record_batches_of_all_attempts(tmp_path: Path) -> None:
    consumer = Consumer(group_id="billing", journal=Journal(tmp_path))

    @consumer.handler("orders")
    async def bill(record: Record) -> None: ...

    async with TestConsumer(consumer, partitions=2) as t:
        for number in range(40):
            await t.publish("orders", b"%d" % number, partition=number % 2)
        await t.advance(1)
    batches, calls = rows_of(tmp_path, "FETCHED"), rows_of(tmp_path, "ATTEMPT")
    covered = [
        (row["topic"], row["partition"], offset)
        for row in batches
        for offset in range(row["offset"], row["last_offset"] + 1)
    ]
    assert Counter(covered) == Counter((r["topic"], r["partition"], r["offset"]) for r in calls)
    assert all(row["records"] == 1 and row["checksum"] is not None for row in batches)
    came = {(row["partition"], row["offset"]): row["started_us"] for row in batches}
    assert all(came[row["partition"], row["offset"]] <= row["started_us"] for row in calls)


@pytest.mark.parametrize("content", [None, "records"])
async def test_without_content_batches_there_are_no_rows_of_record_batches(
    tmp_path: Path, content: Content | None
) -> None:
    consumer = Consumer(group_id="billing", journal=Journal(tmp_path, content=content))

    @consumer.handler("orders")
    async def bill(record: Record) -> None: ...

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("orders", b"1")
        await t.advance(1)
    assert rows_of(tmp_path, "FETCHED") == []
    assert len(rows_of(tmp_path, "ATTEMPT")) == 1


def test_key_hashes_are_signed_as_those_of_spark() -> None:
    keys = [b"%d" % number for number in range(100)]
    hashes = [key_hash(key) for key in keys]
    assert max(hashes) >= 2**63
    signed = [number - 2**64 if number >= 2**63 else number for number in hashes]
    assert signed_key_hashes([*keys, None]) == [*signed, None]


def packed_and_not(records: list[Record], *, hashed: bool = True) -> tuple[Packed | None, Attempts]:
    started = list(range(len(records)))
    turns = [LoopTurn(len(records), started, 200)]
    packed = pack(records, turns, hashed=hashed, one_topic=False)
    return packed, Attempts(records, started, 200)


def encoded_rows(entry: Entry, *, hashed: bool) -> list[dict[str, Any]]:
    """As they are read from a log."""
    header = header_frame(SegmentHeader(A, "billing", 1), 5).data
    frames = [frame.data for frame in encode([entry], 5, hashed=hashed)]
    content = read_blob(b"".join([header, *frames]))
    assert (content.torn, content.damaged) == (None, None)
    return [row for batch in content.batches for row in batch.to_pylist()]


@pytest.mark.parametrize("hashed", [True, False])
@pytest.mark.parametrize("change", [{}, {"key": None}])
def test_packed_attempts_encode_the_same_rows(change: dict[str, Any], hashed: bool) -> None:
    records = [
        msgspec.structs.replace(record(offset, partition=offset % 3), **change)
        for offset in range(100)
    ]
    packed, attempts = packed_and_not(records, hashed=hashed)
    assert packed is not None
    assert encoded_rows(packed, hashed=hashed) == encoded_rows(attempts, hashed=hashed)


@pytest.mark.parametrize("change", [{"key": None}, {"value": None}, {"topic": "bills"}])
def test_attempts_with_nulls_or_of_two_topics_are_not_packed(change: dict[str, Any]) -> None:
    odd = msgspec.structs.replace(record(50), **change)
    plain = [record(offset) for offset in range(50)]
    assert packed_and_not([*plain, odd])[0] is None
    assert packed_and_not([odd, *plain])[0] is None
