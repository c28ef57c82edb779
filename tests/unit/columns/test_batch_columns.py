"""Record batches as Arrow columns, beside what the parser of single records says of them."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from wire.frames.corrupt_records import fetched, seal
from wire.frames.response_frames import damage

from asyncrevoke.client.errors import CorruptRecordError, UnreadableRecordError
from asyncrevoke.client.model import TopicPartition, UnreadableRecord
from asyncrevoke.client.protocol.records import CorruptBatch, decode_batches

pytest.importorskip("numpy", reason="needs the extra arrow")
pytest.importorskip("pyarrow", reason="needs the extra arrow")

from asyncrevoke.client.columns import batch_columns, record_fields
from asyncrevoke.client.columns.arrow import pa, pc
from asyncrevoke.client.columns.batch_columns import BatchColumns
from asyncrevoke.client.columns.record_columns import RecordColumns

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from asyncrevoke.client.model import Record

NAMES = [
    "key", "value", "topic", "partition", "offset", "timestamp", "timestamp_type", "schema_id",
    "payload",
]  # fmt: skip
PARTITION = TopicPartition("orders", 3)
EVERYTHING = range(2**62)

Given = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]
COMPILED = "asyncrevoke.client.columns.compiled_rows"


def batch(records: Sequence[Given], base: int = 0, compression: int = 0) -> bytes:
    """Of (timestamp, key, value, headers)."""
    builder = DefaultRecordBatchBuilder(2, compression, 0, -1, -1, -1, 2**30)
    for number, (timestamp, key, value, headers) in enumerate(records):
        builder.append(number, timestamp, key, value, headers)
    data = bytes(builder.build())
    return struct.pack(">q", base) + data[8:]


def some(random_: random.Random, count: int) -> list[Given]:
    def text(longest: int) -> bytes | None:
        if random_.random() < 0.2:
            return None
        return random_.randbytes(random_.randrange(longest))

    return [
        (
            1_700_000_000_000 + random_.randrange(-(2**34), 2**34),
            text(90),
            text(random_.choice((2, 90, 20_000))),
            [("name", text(200))] * random_.randrange(3),
        )
        for _ in range(count)
    ]


def framed(records: Sequence[Given]) -> list[Given]:
    """Every other one with the zero byte that a schema id follows."""
    return [
        (time, key, b"\0" + value if value is not None and number % 2 else value, headers)
        for number, (time, key, value, headers) in enumerate(records)
    ]


def by_column(data: bytes, wanted: range = EVERYTHING) -> list[dict[str, Any]]:
    """As they come to Spark."""
    whole = [
        record.value
        for decode_batch in decode_batches(fetched(data), read_committed=True, whole=True)
        for record in decode_batch.decode("orders", 3, 0, 0)
        if record.value is not None
    ]
    return [
        row for rows in BatchColumns(PARTITION, NAMES).slices(wanted, whole) for row in pylist(rows)
    ]


def decoded(data: bytes) -> list[Record]:
    return [
        record
        for decode_batch in decode_batches(fetched(data), read_committed=True)
        for record in decode_batch.decode("orders", 3, 0, 0)
    ]


def one_by_one(data: bytes) -> list[dict[str, Any]]:
    records = decoded(data)
    return pylist(RecordColumns(NAMES).batch(records)) if records else []


def unreadable_offsets(data: bytes) -> set[int]:
    return {each.offset for each in decoded(data) if isinstance(each, UnreadableRecord)}


def pylist(rows: Any) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = rows.to_pylist()
    return made


@pytest.mark.parametrize("compression", range(5))
def test_the_columns_are_those_of_the_records(compression: int) -> None:
    chance = random.Random(compression)
    parts = [framed(some(chance, chance.choice((1, 2, 70, 400)))) for _ in range(12)]
    data, base = b"", 2**33
    for part in parts:
        data += batch(part, base, compression)
        base += len(part) + chance.choice((0, 5))
    assert by_column(data) == one_by_one(data)


@pytest.mark.parametrize(
    ("value", "schema_id", "payload"),
    [
        (b"\0\0\0\0\x07{}", 7, b"{}"),
        (b"\0\x7f\xff\xff\xff", 2**31 - 1, b""),
        (b"\0\x80\0\0\0{}", None, None),
        (b"\1\0\0\0\7{}", None, None),
        (b"\0\0\0\7", None, None),
        (b"", None, None),
        (None, None, None),
    ],
)
def test_the_framing_of_a_schema_registry_is_split_off(
    value: bytes | None, schema_id: int | None, payload: bytes | None
) -> None:
    data = batch([(5, None, value, [])])
    for (row,) in (by_column(data), one_by_one(data)):
        assert (row["value"], row["schema_id"], row["payload"]) == (value, schema_id, payload)


@pytest.mark.parametrize(
    ("limit", "most", "parts"), [("_MOST_BYTES", 400, 20), ("_MOST_RECORDS", 7, 20)]
)
def test_the_batches_of_an_arrow_batch_are_within_both_limits_and_all_are_read(
    monkeypatch: pytest.MonkeyPatch, limit: str, most: int, parts: int
) -> None:
    monkeypatch.setattr(record_fields, limit, most)
    rows: list[Given] = [(1_700_000_000_000, b"key", b"value of 34 bytes, as all the rest", [])] * 3
    batches = [batch(rows, n * 3) for n in range(40)]
    columns = BatchColumns(PARTITION, NAMES)
    offsets = [row.column("offset").to_pylist() for row in columns.slices(EVERYTHING, batches)]
    assert len(offsets) == parts
    assert [offset for part in offsets for offset in part] == list(range(120))


def test_large_columns_are_passed_on_in_slices_with_all_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows: list[Given] = [(1_700_000_000_000, b"key", bytes(1000), [])] * 90
    columns = BatchColumns(PARTITION, NAMES)
    (whole,) = columns.slices(EVERYTHING, [batch(rows), batch(rows, 90)])
    monkeypatch.setattr(batch_columns, "_BATCH_BYTES", 20_000)
    slices = list(columns.slices(EVERYTHING, [batch(rows), batch(rows, 90)]))
    row = whole.nbytes / whole.num_rows
    assert max(part.nbytes for part in slices) < 20_000 + 2 * row < whole.nbytes
    assert pa.Table.from_batches(slices).equals(pa.Table.from_batches([whole]))
    monkeypatch.setattr(batch_columns, "_BATCH_BYTES", 10)
    assert [each.num_rows for each in columns.slices(EVERYTHING, [batch(rows)])] == [1] * 90


def test_batches_of_any_content_are_read_in_several_arrow_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record_fields, "_MOST_BYTES", 1000)
    chance = random.Random(1)
    data = b"".join(batch(some(chance, 3), n * 3) for n in range(40))
    assert by_column(data) == one_by_one(data)


def test_batches_that_stand_one_behind_the_other_are_not_copied() -> None:
    data = bytearray(b"".join(batch(some(random.Random(4), 3), n * 3) for n in range(4)))
    view = memoryview(data)[100:]
    first, second, third = view[:50], view[50:70], view[70:]
    whole, at = record_fields.joined([first, second, third])
    assert whole is data
    assert at == 100
    apart: list[list[bytes | memoryview]] = [
        [first, third],
        [second, first],
        [first, bytes(second)],
        [bytes(first)],
    ]
    for parts in apart:
        assert record_fields.joined(parts) == (b"".join(parts), 0)


@pytest.mark.parametrize("size", [0, 1, 54, 55, 56, 60, 8_000, 8_200, 20_000])
def test_records_of_one_length_are_found_at_once_as_one_by_one(size: int) -> None:
    chance = random.Random(size)
    lengths = [size] * 300
    for place in chance.sample(range(300), 5):
        lengths[place] = max(0, size + chance.choice((-1, 1, 2)))
    data = b"".join(
        batch([(5, b"key", chance.randbytes(length), []) for length in part], base)
        for base, part in ((0, lengths[:200]), (200, lengths[200:]))
    )
    assert by_column(data) == one_by_one(data)


def test_of_records_of_one_length_none_is_taken_for_more_than_there_are() -> None:
    """The batch has fewer, and its last value looks like another record."""
    value = bytes((24,)) + bytes(12)
    data = bytearray(batch([(5, None, value, []) for _ in range(100)]))
    struct.pack_into(">i", data, 57, 99)
    struct.pack_into(">i", data, 23, 98)
    with pytest.raises(CorruptRecordError, match="do not fill"):
        by_column(seal(data))
    struct.pack_into(">i", data, 57, 101)
    struct.pack_into(">i", data, 23, 100)
    with pytest.raises(CorruptRecordError, match=r"do not fill|beyond"):
        by_column(seal(data))


def test_what_lies_outside_of_the_range_is_left_out() -> None:
    chance = random.Random(2)
    data = b"".join(batch(some(chance, 10), n * 10) for n in range(3))
    rows = by_column(data, range(7, 22))
    assert rows == one_by_one(data)[7:22]
    assert not by_column(data, range(30, 40))


def test_with_log_append_time_every_record_has_the_time_of_its_batch() -> None:
    data = bytearray(batch([(5, None, b"x", []), (9, b"", None, [])]))
    data[22] |= 0x08
    struct.pack_into(">q", data, 35, 123_456)  # the largest timestamp
    sealed = seal(data)
    assert by_column(sealed) == one_by_one(sealed)
    assert [row["timestamp_type"] for row in by_column(sealed)] == [1, 1]


@pytest.mark.parametrize("time", [2**63 - 1, -(2**63), (2**63 - 1) // 1000 + 1])
def test_a_timestamp_beyond_microseconds_is_an_error_that_names_its_record(time: int) -> None:
    data = bytearray(batch([(5, b"k", b"a", [])], 1))
    struct.pack_into(">qq", data, 27, time, time)
    message = rf"orders-3 at offset 1: its timestamp {time} is beyond .* leave out the column"
    for columns in (by_column, one_by_one):
        with pytest.raises(UnreadableRecordError, match=message) as error:
            columns(seal(data))
        assert error.value.next_offset == 2
    names = [name for name in NAMES if name != "timestamp"]
    (rows,) = BatchColumns(PARTITION, names).slices(EVERYTHING, [seal(data)])
    assert pylist(rows)[0]["value"] == b"a"
    # The column unreadable can say it.
    records = decoded(batch([(5, b"k", b"b", [])]) + seal(data))
    rows = RecordColumns(["value", "timestamp", "unreadable"]).batch(records)
    first, second = pylist(rows)
    assert (first["value"], first["unreadable"]) == (b"b", None)
    assert (second["value"], second["timestamp"]) == (b"a", None)
    assert second["unreadable"]["next_offset"] == 2
    assert f"its timestamp {time} is beyond" in second["unreadable"]["reason"]


@pytest.mark.parametrize("time", [-1, 0, (2**63 - 1) // 1000])
def test_timestamps_up_to_the_largest_in_microseconds_are_read(time: int) -> None:
    data = bytearray(batch([(5, None, b"a", [])]))
    struct.pack_into(">qq", data, 27, time, time)
    sealed = seal(data)
    micros = [
        pc.cast(rows.column("timestamp"), pa.int64()).to_pylist()
        for rows in (
            *BatchColumns(PARTITION, ["timestamp"]).slices(EVERYTHING, [sealed]),
            RecordColumns(["timestamp"]).batch(decoded(sealed)),
        )
    ]
    assert micros == [[1000 * time]] * 2


def test_an_unbounded_length_is_rejected_and_takes_no_time() -> None:
    data = bytearray(batch([(5, None, bytes(100_000), [])]))
    data[61:] = b"\xff" * len(data[61:])
    with pytest.raises(CorruptRecordError, match="orders-3 at offset 0"):
        by_column(seal(data))


def test_corrupt_batches_are_rejected_or_read_as_the_parser_of_records_does() -> None:
    chance = random.Random(3)
    outcomes = {"same": 0, "rejected": 0, "headers": 0}
    for _ in range(1500):
        data = bytearray(batch(some(chance, 3), 100))
        body = damage(bytes(data[61:]), chance)
        data[61:] = body
        struct.pack_into(">i", data, 8, len(data) - 12)
        sealed = seal(data)
        unreadable: set[int] = set()
        try:
            expected = one_by_one(sealed)
            unreadable = unreadable_offsets(sealed)
        except CorruptBatch:
            expected = None
        rows, rejection = None, ""
        try:
            rows = by_column(sealed)
        except CorruptRecordError as error:
            rejection = str(error)
        if rows is None:
            assert expected is None or unreadable or "unknown attributes" in rejection
            outcomes["rejected"] += 1
        elif expected is None:
            outcomes["headers"] += 1  # which no column shows
        else:
            readable = [row for row in expected if row["offset"] not in unreadable]
            assert [row for row in rows if row["offset"] not in unreadable] == readable
            outcomes["headers" if unreadable else "same"] += 1
    assert min(outcomes.values()) > 10, outcomes


@pytest.mark.parametrize("names", [["key"], ["value"], ["payload"], ["schema_id"], ["offset"]])
def test_one_column_is_the_same_as_with_all_others(names: list[str]) -> None:
    data = batch(framed(some(random.Random(7), 50)))
    whole = list(BatchColumns(PARTITION, NAMES).slices(EVERYTHING, [data]))
    alone = list(BatchColumns(PARTITION, names).slices(EVERYTHING, [data]))
    assert pa.Table.from_batches(alone).equals(pa.Table.from_batches(whole).select(names))


@pytest.mark.parametrize("count", [2, 1000, 2**31 - 1])
def test_a_batch_that_declares_more_records_than_it_has_room_for_is_rejected(count: int) -> None:
    data = bytearray(batch([(5, b"key", b"value", [])]))
    struct.pack_into(">i", data, 57, count)
    with pytest.raises(CorruptRecordError, match="do not fill"):
        list(BatchColumns(PARTITION, NAMES).slices(EVERYTHING, [bytes(data)]))


def test_compiled_loops_read_and_write_within_bounds(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """numba raises IndexError with this option, which is not among those it keeps code for."""
    if "numpy" in request.node.name:
        pytest.skip("needs no numba, and so no check of its loops")
    tests = [__file__, "-k", "numba and not compiled"]
    checked = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        env={**os.environ, **checked},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stdout


def test_loops_are_compiled_where_no_folder_can_keep_the_result(
    request: pytest.FixtureRequest,
) -> None:
    if "numpy" in request.node.name:
        pytest.skip("needs no numba")

    def double(number: int) -> int:
        return 2 * number

    nowhere = FunctionType(double.__code__.replace(co_filename="<nowhere>"), {}, "double")
    assert import_module(COMPILED)._compiled(nowhere)(4) == 8
