"""What a task of an audit makes of record batches, beside what is made of each record alone."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from asyncrevoke.audit.rules.views import SUMMED
from asyncrevoke.journal.format.hashing import offset_hashes, record_hashes, signed_key_hashes
from asyncrevoke.journal.format.schema import BUCKET
from asyncrevoke.spark.reading.offsets import OffsetRange
from asyncrevoke.spark.source.options import SourceOptions

pytest.importorskip("numpy", reason="needs the extra spark")
pytest.importorskip("pyarrow", reason="needs the extra spark")

from asyncrevoke.ranges.record_fields import fields_of
from asyncrevoke.spark.audits.hash_tasks import HashTask

if TYPE_CHECKING:
    from collections.abc import Generator

    from asyncrevoke.ranges.record_fields import Fields

Known = dict[int, tuple[int, bytes | None, bytes | None]]

PART = OffsetRange("orders", 3, BUCKET - 90, 4 * BUCKET + 20)
OPTIONS = SourceOptions.of({"bootstrap_servers": "nowhere:9092", "topic": "orders"})


def batch(base: int, records: Known) -> bytes:
    """Those of a log, from this offset on."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 2**20)
    for offset, (timestamp, key, value) in records.items():
        builder.append(offset - base, timestamp, key, value, [])
    return base.to_bytes(8) + bytes(builder.build())[8:]


@pytest.fixture(params=[False, True], ids=["without nulls", "with nulls"])
def known(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Known:
    """Records that a reader gives: with gaps, around the ends of buckets and of the range."""
    chance = random.Random(7)
    batches: list[bytes] = []
    known: Known = {}
    for base in (BUCKET - 100, BUCKET - 3, BUCKET + 9, 3 * BUCKET - 1, 4 * BUCKET - 2):
        offsets = range(base, base + (97, 12, 5, 2, 40)[len(batches)], 1 + len(batches) % 2)
        records: Known = {
            offset: (
                1_700_000_000_000 + offset,
                None if request.param and chance.random() < 0.3 else b"%d" % chance.getrandbits(40),
                None if request.param and chance.random() < 0.3 else b"v" * chance.randrange(90),
            )
            for offset in offsets
        }
        batches.append(batch(base, records))
        known |= records

    def read(_: HashTask, part: OffsetRange) -> Generator[tuple[bytes | bytearray, Fields]]:
        wanted = range(part.start, part.end)
        yield from fields_of(part.topic_partition, wanted, batches[:2])
        yield from fields_of(part.topic_partition, wanted, batches[2:])

    monkeypatch.setattr(HashTask, "_read", read)
    return {offset: known[offset] for offset in known if PART.start <= offset < PART.end}


def rows(hashless: frozenset[int] | None) -> list[dict[str, Any]]:
    """What a task gives for the first range."""
    asked: Any = Number()
    made: list[Any] = list(HashTask(OPTIONS, [PART], hashless).run([asked]))
    return [row for each in made for row in each.to_pylist()]


class Number:
    """A batch of Spark's that names the first range."""

    def column(self, _: str) -> Number:
        """The identifiers."""
        return self

    def to_pylist(self) -> list[int]:
        """One of them."""
        return [0]


def test_hashes_are_those_of_each_record_alone(known: Known) -> None:
    assert rows(None) == [
        {
            "part": 3,
            "off": offset,
            "timestamp_us": timestamp * 1000,
            "key_hash": signed_key_hashes([key])[0],
            "record_hash": signed(record_hashes([key], [value], None)[0]),
        }
        for offset, (timestamp, key, value) in known.items()
    ]


@pytest.mark.parametrize("hashless", [frozenset[int](), frozenset({3})], ids=["content", "offsets"])
def test_fingerprints_are_those_of_the_records_of_each_bucket(
    known: Known, hashless: frozenset[int]
) -> None:
    expected: dict[int, tuple[int, int, int]] = {}
    for offset, (_, key, value) in known.items():
        mark = offset_hashes([offset])[0] if hashless else record_hashes([key], [value], None)[0]
        count, mixed, total = expected.get(offset // BUCKET, (0, 0, 0))
        expected[offset // BUCKET] = count + 1, mixed ^ mark, total + (mark & SUMMED)
    assert list(expected) == [0, 1, 2, 3, 4]
    assert rows(hashless) == [
        {"part": 3, "bucket": number, "records": count, "mixed": signed(mixed), "total": total}
        for number, (count, mixed, total) in expected.items()
    ]


def signed(number: int) -> int:
    """As Spark has it."""
    return number - 2**64 if number >= 2**63 else number
