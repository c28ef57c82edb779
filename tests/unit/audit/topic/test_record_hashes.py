"""Hashes of the records of whole batches are those of each record alone."""

from __future__ import annotations

import random
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from asyncrevoke.audit.offsets import UnusedHashes
from asyncrevoke.audit.topic.record_hashes import record_columns
from asyncrevoke.client.columns.record_fields import fields_of
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.journal.format.hashing import record_hashes, signed_key_hashes

Known = dict[int, tuple[int, bytes | None, bytes | None]]

PARTITION = TopicPartition("orders", 3)
WANTED = range(10, 4020)


def batch(base: int, records: Known) -> bytes:
    """A batch of a log, from this offset on."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 2**20)
    for offset, (timestamp, key, value) in records.items():
        builder.append(offset - base, timestamp, key, value, [])
    return base.to_bytes(8) + bytes(builder.build())[8:]


@pytest.mark.parametrize("nulls", [False, True], ids=["without nulls", "with nulls"])
def test_columns_have_the_hashes_of_each_record_of_the_range(nulls: bool) -> None:
    chance = random.Random(7)
    batches: list[bytes] = []
    known: Known = {}
    for base in (0, 97, 109, 3000, 4000):
        offsets = range(base, base + (97, 12, 5, 2, 40)[len(batches)], 1 + len(batches) % 2)
        records: Known = {
            offset: (
                1_700_000_000_000 + offset,
                None if nulls and chance.random() < 0.3 else b"%d" % chance.getrandbits(40),
                None if nulls and chance.random() < 0.3 else b"v" * chance.randrange(90),
            )
            for offset in offsets
        }
        batches.append(batch(base, records))
        known |= records
    expected: list[dict[str, int | None]] = [
        {
            "part": 3,
            "off": offset,
            "timestamp_us": timestamp * 1000,
            "key_hash": signed_key_hashes([key])[0],
            "record_hash": signed(record_hashes([key], [value], None)[0]),
        }
        for offset, (timestamp, key, value) in known.items()
        if offset in WANTED
    ]
    found = list(fields_of(PARTITION, WANTED, batches))
    rows: list[Any] = [record_columns(3, *candidate) for candidate in found]
    assert [row for each in rows for row in each.to_pylist()] == expected
    for unused, left_out in (
        (UnusedHashes({3}, {3}), ("key_hash", "record_hash")),
        (UnusedHashes((), {3}), ("record_hash",)),
        (UnusedHashes({4}, {4}), ()),
    ):
        rows = [record_columns(3, *candidate, unused) for candidate in found]
        assert [row for each in rows for row in each.to_pylist()] == [
            row | dict.fromkeys(left_out) for row in expected
        ]


def signed(number: int) -> int:
    """The number as Spark has it."""
    return number - 2**64 if number >= 2**63 else number
