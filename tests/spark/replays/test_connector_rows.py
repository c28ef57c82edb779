"""Rows that Spark has read, as records for handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow", reason="needs the extra spark")

from asyncrevoke.client.columns.arrow import pa
from asyncrevoke.client.model import UnreadableRecord
from asyncrevoke.spark.replays.rows_task import to_records

if TYPE_CHECKING:
    from asyncrevoke.client.columns.arrow import ArrowRecordBatch

Row = dict[str, Any]

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("timestamp_type", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("unreadable", pa.struct([("next_offset", pa.int64()), ("reason", pa.string())])),
    ]
)


def row(offset: int, **changed: object) -> Row:
    plain: Row = {
        "topic": "orders",
        "partition": 3,
        "offset": offset,
        "timestamp": 1000,
        "timestamp_type": 0,
        "key": b"k",
        "value": b"v",
        "headers": [{"key": "a", "value": b"b"}],
        "unreadable": None,
    }
    return plain | changed


def batch(*rows: Row) -> ArrowRecordBatch:
    made: ArrowRecordBatch = pa.RecordBatch.from_pylist(list(rows), schema=SCHEMA)
    return made


def test_rows_that_can_be_read_are_one_list() -> None:
    (records,) = to_records(batch(row(0), row(1, headers=None), row(2, key=None)))
    assert [(record.offset, record.key, record.headers) for record in records] == [
        (0, b"k", (("a", b"b"),)),
        (1, b"k", ()),
        (2, None, (("a", b"b"),)),
    ]


def test_unreadable_rows_end_their_lists() -> None:
    why = {"next_offset": 9, "reason": "it is too large"}
    lists = list(to_records(batch(row(0), row(1), row(2, unreadable=why, value=None), row(9))))
    assert [[record.offset for record in records] for records in lists] == [[0, 1, 2], [9]]
    unreadable = lists[0][-1]
    assert isinstance(unreadable, UnreadableRecord)
    assert (unreadable.topic_partition.partition, unreadable.next_offset) == (3, 9)
    assert unreadable.detail == "it is too large"


def test_records_of_any_reader_have_as_many_headers_as_a_consumer_accepts() -> None:
    many = [{"key": "", "value": None}] * 10_001
    lists = list(to_records(batch(row(0, headers=many[1:]), row(1, headers=many))))
    (records,) = lists
    assert [isinstance(record, UnreadableRecord) for record in records] == [False, True]
    assert len(records[0].headers) == 10_000
    rejected = records[1]
    assert isinstance(rejected, UnreadableRecord)
    assert (rejected.next_offset, rejected.headers) == (2, ())
    assert "more than 10000 headers" in rejected.detail


def test_headers_that_the_library_adds_do_not_count_for_the_limit_of_a_row() -> None:
    most, own = [{"key": "h", "value": b""}] * 10_000, {"key": "asyncrevoke-due", "value": b"1"}
    (records,) = to_records(batch(row(0, headers=[*most, *[own] * 100]), row(1, headers=None)))
    assert [len(record.headers) for record in records] == [10_100, 0]
    for headers in ([*most, *[own] * 101], [*most, most[0], own]):
        ((found,),) = to_records(batch(row(0, headers=headers)))
        assert isinstance(found, UnreadableRecord)
