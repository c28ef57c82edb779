"""Batches that are decoded to columns, delivered as record batches are: by the same buffer, beside
what the parser of records gives."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.columns.test_batch_columns import Given, batch, pylist, some
from wire.frames.corrupt_records import fetched, seal
from wire.frames.raw_batches import raw_batch, record

from asyncrevoke.client.core.partition.completion_map import CompletionMap
from asyncrevoke.client.core.partition.record_buffer import RecordBuffer
from asyncrevoke.client.errors import CorruptRecordError, UnreadableRecordError
from asyncrevoke.client.model import Record, TopicPartition, UnreadableRecord
from asyncrevoke.client.protocol.records import CorruptBatch, decode_batches
from asyncrevoke.client.record_parts import RecordParts, joined, offsets_of, size_of

pytest.importorskip("numpy", reason="needs the extra arrow")
pytest.importorskip("pyarrow", reason="needs the extra arrow")

from asyncrevoke.client.columns.column_batches import ColumnBatchDecoder
from asyncrevoke.client.columns.poll_columns import PollColumns
from asyncrevoke.client.runtime.arrow.arrow_options import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.protocol.messages import FetchedPartition
    from asyncrevoke.client.protocol.records import RecordBatch

PARTITION = TopicPartition("orders", 3)
PLAIN: Given = (0, b"k", b"v", [])
WITHOUT_HEADERS = tuple(name for name in COLUMNS if name != "headers")


def whole(fetched_partition: FetchedPartition, read_committed: bool, /) -> Sequence[RecordBatch]:
    return decode_batches(fetched_partition, read_committed, whole=True)


def buffer_of(data: bytes, decoder: Any, position: int = 0) -> RecordBuffer:
    buffer = RecordBuffer(PARTITION, 7, position)
    buffer.append(decoder(fetched(data), True))
    return buffer


def rows_of(records: Sequence[Record], names: Sequence[str] = COLUMNS) -> list[dict[str, Any]]:
    return [row for each in PollColumns(names).of([records]) for row in pylist(each)]


def taken(buffer: RecordBuffer, limits: Sequence[int]) -> list[Sequence[Record]]:
    """What takes of these numbers of records give, and then of all."""
    found: list[Sequence[Record]] = []
    left = list(limits)
    while buffer.buffered:
        if buffer.awaits_decoding:
            decode_large(buffer)
        found.append(buffer.take(left.pop(0) if left else 10_000))
    return found


def decode_large(buffer: RecordBuffer) -> None:
    """As a thread does."""
    large = buffer.start_background_decode()
    try:
        buffer.set_decoded(large, large.decode(*PARTITION, 7, buffer.position))
    except CorruptBatch as error:
        buffer.set_decoded(large, error)


@pytest.mark.parametrize("names", [COLUMNS, WITHOUT_HEADERS, ("value",)])
@pytest.mark.parametrize("compression", range(5))
def test_takes_of_any_size_have_the_columns_and_offsets_of_the_records(
    compression: int, names: tuple[str, ...]
) -> None:
    chance = random.Random(f"{compression} {names}")
    data, base = b"", 2**33
    for _ in range(12):
        records = some(chance, chance.choice((1, 2, 70, 400)))
        if chance.random() < 0.5:
            for _, _, _, headers in records:
                headers.clear()
        data += batch(records, base, compression)
        base += len(records) + chance.choice((0, 5))
    position = 2**33 + chance.randrange(100)
    limits = [chance.choice((1, 30, 100)) for _ in range(9)]
    by_columns = buffer_of(data, ColumnBatchDecoder(whole, decode_batches, names), position)
    by_records = buffer_of(data, decode_batches, position)
    columns, records_ = taken(by_columns, limits), taken(by_records, limits)
    assert sum(map(len, columns)) == sum(map(len, records_)) > 0
    assert rows_of(RecordParts(columns), names) == rows_of(RecordParts(records_), names)
    offsets = [record.offset for each in records_ for record in each]
    assert [record.offset for each in columns for record in each] == offsets
    assert [(7, offsets)] == merged(RecordParts(columns)) == merged(RecordParts(records_))
    assert by_columns.position == by_records.position == base or by_columns.position < base
    assert by_columns.size == by_columns.viewed == by_columns.buffered == 0


def merged(records: Sequence[Record]) -> list[tuple[int, list[int]]]:
    found: dict[int, list[int]] = {}
    for tracker_id, offsets in offsets_of(records):
        found.setdefault(tracker_id, []).extend(offsets)
    return list(found.items())


def test_a_record_of_a_row_is_the_record() -> None:
    given_ = some(random.Random(5), 50)
    data = batch(given_)
    rows = buffer_of(data, ColumnBatchDecoder(whole, decode_batches, WITHOUT_HEADERS)).take(50)
    records = buffer_of(data, decode_batches).take(50)
    assert not isinstance(rows, list)
    for row, expected in zip(rows, records, strict=True):
        for name in Record.__struct_fields__:
            assert getattr(row, name) == getattr(expected, name)
    assert rows[-1].value == records[-1].value
    assert [row.offset for row in rows[10:20:3]] == [10, 13, 16, 19]
    with pytest.raises(IndexError):
        _ = rows[50]


def test_batches_before_a_corrupt_one_are_returned_and_those_after_it_wait() -> None:
    parts = [batch([PLAIN] * 3, 3 * n) for n in range(4)]
    parts[2] = parts[2][:-1] + bytes([parts[2][-1] ^ 1])
    buffer = buffer_of(b"".join(parts), ColumnBatchDecoder(whole, decode_batches, COLUMNS))
    assert [row["offset"] for row in rows_of(buffer.take(100))] == list(range(6))
    with pytest.raises(CorruptRecordError) as caught:
        buffer.take(100)
    assert caught.value.offset == buffer.position == 6


def test_an_unreadable_record_raises_its_error_and_the_others_are_rows() -> None:
    spoiled = raw_batch(
        record(0, key=b"a"),
        record(1, headers=[(b"\xff", b"")]),
        record(2, key=b"b"),
        base_offset=2,
        leader_epoch=-1,
    )
    data = batch([PLAIN] * 2) + spoiled + batch([PLAIN], 5)
    buffer = buffer_of(data, ColumnBatchDecoder(whole, decode_batches, COLUMNS))
    assert [row["offset"] for row in rows_of(buffer.take(100))] == [0, 1, 2]
    with pytest.raises(UnreadableRecordError) as caught:
        buffer.take(100)
    assert (caught.value.offset, caught.value.next_offset) == (3, 4)
    *_, last = buffer.take(100, unreadable=True)
    assert isinstance(last, UnreadableRecord)
    rest = RecordParts([buffer.take(100), buffer.take(100)])
    assert [row["offset"] for row in rows_of(rest)] == [4, 5]


def test_a_timestamp_without_microseconds_is_an_error_of_its_record_alone() -> None:
    beyond = 2**62
    times = [0, 5, beyond, -beyond, 7]
    given_: list[Given] = [(time, None, b"v", []) for time in times]
    data = batch(given_)
    buffer = buffer_of(data, ColumnBatchDecoder(whole, decode_batches, COLUMNS))
    offsets: list[int] = []
    errors: list[tuple[int, bool]] = []
    while buffer.buffered:
        try:
            offsets += [row["offset"] for row in rows_of(buffer.take(100))]
        except UnreadableRecordError as error:
            errors.append((error.offset, "timestamp" in str(error)))
            buffer.take(1, unreadable=True)
    assert (offsets, errors) == ([0, 1, 4], [(2, True), (3, True)])
    buffer = buffer_of(data, ColumnBatchDecoder(whole, decode_batches, ("value", "offset")))
    assert rows_of(buffer.take(100), ("offset",)) == [{"offset": n} for n in range(5)]


def test_records_of_a_completion_map_are_left_out() -> None:
    given_: list[Given] = [(0, b"k", b"%d" % n, []) for n in range(50)]
    data = batch(given_)
    buffer = RecordBuffer(PARTITION, 7, 0, CompletionMap(((3, 7), (20, 30)), -1))
    buffer.append(ColumnBatchDecoder(whole, decode_batches, COLUMNS)(fetched(data), True))
    left = [n for n in range(50) if not (3 <= n < 7 or 20 <= n < 30)]
    rows = rows_of(buffer.take(100))
    assert [row["offset"] for row in rows] == left
    assert [row["value"] for row in rows] == [b"%d" % n for n in left]


def test_released_rows_keep_their_offsets_and_give_their_memory_back() -> None:
    data = batch([PLAIN] * 9)
    buffer = buffer_of(data, ColumnBatchDecoder(whole, decode_batches, COLUMNS))
    parts = [buffer.take(4), buffer.take(100)]
    columns = PollColumns(COLUMNS)
    (first,) = columns.of([parts[0]])
    columns.release([parts[0]])
    assert parts[0][0].value == b"v"  # the rest of its group is not returned yet
    (second,) = columns.of([parts[1]])
    columns.release([parts[1]])
    assert [record.offset for part in parts for record in part] == list(range(9))
    assert first.num_rows + second.num_rows == 9
    assert pylist(second)[-1]["value"] == b"v"


def test_a_batch_that_contradicts_itself_is_judged_by_the_parser_of_records() -> None:
    data = bytearray(batch([PLAIN] * 3))
    data[61 + 3] ^= 0xFF
    sealed = seal(bytes(data))
    by_columns = buffer_of(sealed, ColumnBatchDecoder(whole, decode_batches, COLUMNS))
    by_records = buffer_of(sealed, decode_batches)
    for _ in range(4):
        assert outcome(by_columns) == outcome(by_records)


def outcome(buffer: RecordBuffer) -> object:
    try:
        return [(record.offset, record.value) for record in buffer.take(1)]
    except (CorruptRecordError, UnreadableRecordError) as error:
        buffer.take(1, unreadable=True)
        return str(error)


def plain(first: int, count: int) -> list[Record]:
    return [Record("orders", 3, first + n, 0, 0, None, b"v") for n in range(count)]


@given(
    sizes=st.lists(st.integers(0, 5), max_size=6),
    start=st.none() | st.integers(-25, 25),
    stop=st.none() | st.integers(-25, 25),
    step=st.sampled_from([None, 1, 2, -1]),
)
def test_record_parts_behave_as_one_list(
    sizes: list[int], start: int | None, stop: int | None, step: int | None
) -> None:
    parts = [plain(10 * n, size) for n, size in enumerate(sizes)]
    together = [record for part in parts for record in part]
    found = RecordParts(parts)
    assert len(found) == len(together)
    assert list(found) == together
    assert list(found[start:stop:step]) == together[start:stop:step]
    for index in range(-len(together), len(together)):
        assert found[index] is together[index]
    with pytest.raises(IndexError):
        _ = found[len(together)]
    assert size_of(found) == size_of(together) == len(together)


def test_joined_lists_are_a_list_and_other_records_are_parts() -> None:
    first, more = plain(0, 2), plain(5, 2)
    assert joined([*first], more) == first + more
    parts = joined(RecordParts([first]), more)
    assert isinstance(parts, RecordParts)
    assert list(joined(parts, [])) == first + more
