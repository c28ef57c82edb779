"""Values as memoryviews, and large values that are cut out of their batch."""

from __future__ import annotations

import gc
import random
import struct
from typing import TYPE_CHECKING, cast

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from wire.frames.corrupt_records import fetched

from asyncrevoke.client.protocol.receive_buffers import ReceiveBuffer
from asyncrevoke.client.protocol.records import CorruptBatch, RecordBatch, decode_batches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.model import Record

KIB = 1024
# Beside it, a value of this size is neither small nor a fraction of its response.
LARGE = 64 * KIB
Written = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def plain(size: int) -> Written:
    """A record of a value of zeros alone."""
    return None, bytes(size), []


def built(records: Sequence[Written], compression: int = 0, first: int = 0) -> bytes:
    """A batch whose first offset is ``first``."""
    builder = DefaultRecordBatchBuilder(2, compression, 0, -1, -1, -1, 2**30)
    for number, (key, value, headers) in enumerate(records):
        assert builder.append(number, 1000 + number, key, value, headers)
    data = bytearray(builder.build())
    struct.pack_into(">q", data, 0, first)
    return bytes(data)


def sealed(data: bytes | bytearray) -> bytes:
    """With the length and the checksum of what is there."""
    whole = bytearray(data)
    struct.pack_into(">i", whole, 8, len(whole) - 12)
    struct.pack_into(">I", whole, 17, crc32c(memoryview(whole)[21:]))
    return bytes(whole)


def received(data: bytes, more: int = 0) -> memoryview:
    """The bytes in the buffer of a response that has ``more`` others."""
    buffer = ReceiveBuffer(len(data) + more)
    buffer[: len(data)] = data
    return memoryview(buffer)[: len(data)]


def batches(data: bytes | memoryview, *, views: bool = True) -> list[RecordBatch]:
    return decode_batches(fetched(data), read_committed=False, views=views)


def records(data: bytes | memoryview, *, views: bool = True) -> list[Record]:
    return [each for one in batches(data, views=views) for each in one.decode("t", 0, 7, 0)]


def buffer_behind(record: Record) -> object:
    assert isinstance(record.value, memoryview)
    return record.value.obj


def contents(read: list[Record]) -> list[tuple[object, ...]]:
    return [
        (
            read_range.offset,
            read_range.timestamp,
            read_range.timestamp_type,
            read_range.key,
            None if read_range.value is None else bytes(read_range.value),
            read_range.headers,
            read_range.tracker_id,
        )
        for read_range in read
    ]


VALUES = st.one_of(
    st.none(),
    st.binary(max_size=20),
    st.builds(random.Random.randbytes, st.randoms(), st.integers(0, 400 * KIB)),
)
RECORDS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=300),
        VALUES,
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
    ),
    min_size=1,
    max_size=5,
)


@settings(deadline=None, max_examples=50)
@given(RECORDS, st.integers(0, 4))
def test_values_are_the_same_however_they_are_read(
    written: list[Written], compression: int
) -> None:
    data = built(written, compression)
    expected = contents(records(data, views=False))
    assert [value for _, _, _, _, value, _, _ in expected] == [value for _, value, _ in written]
    for source in (data, received(data), received(data, 10 * KIB)):
        assert contents(records(source)) == expected
        assert contents(records(source, views=False)) == expected


def test_a_large_value_is_a_read_only_view_of_the_buffer_it_was_received_into() -> None:
    data = received(built([(b"key", bytes(LARGE), [("name", b"h")])]))
    (record,) = records(data)
    assert buffer_behind(record) is data.obj
    value = cast("memoryview", cast("object", record.value))
    assert value.readonly
    assert bytes(record.view or b"") == bytes(LARGE)
    assert (record.key, record.headers) == (b"key", (("name", b"h"),))


@pytest.mark.parametrize("count", [1, 20])
def test_a_small_value_does_not_keep_the_buffer(count: int) -> None:
    data = received(built([plain(10 * KIB)] * count))
    for record in records(data):
        assert buffer_behind(record) is not data.obj
        assert record.serialized_value_size == 10 * KIB


def test_the_garbage_collector_tracks_no_memoryviews_of_small_values() -> None:
    data = built([plain(10 * KIB), (None, None, []), (b"key", b"value", [("name", b"h")])])
    before = tracked_views()
    read = records(data)
    # A thread that an earlier test left may have views of its own.
    known = {id(view) for view in before}
    sizes = {10 * KIB, len(b"value")}
    new = [view for view in tracked_views() if id(view) not in known]
    assert sizes.isdisjoint(map(size_of, new))
    assert [record.view and bytes(record.view) for record in read] == [
        bytes(10 * KIB),
        None,
        b"value",
    ]
    assert read[2].view is not None
    assert read[2].view.readonly
    assert (read[2].key, read[2].headers) == (b"key", (("name", b"h"),))


def tracked_views() -> list[memoryview]:
    # isinstance() reads __class__, which raises for a weak proxy whose object is gone.
    return [get_object for get_object in gc.get_objects() if type(get_object) is memoryview]


def size_of(view: memoryview) -> int | None:
    try:
        return view.nbytes
    except ValueError:
        return None  # a thread has released it


def test_a_value_that_is_a_small_part_of_its_response_does_not_keep_it() -> None:
    data = received(built([(None, bytes(LARGE), [])]), 300 * LARGE)
    (record,) = records(data)
    assert buffer_behind(record) is not data.obj


def test_small_values_beside_a_large_one_do_not_keep_the_buffer() -> None:
    data = received(built([(None, bytes(4 * LARGE), []), (None, b"small", [])]))
    large, small = records(data)
    assert buffer_behind(large) is data.obj
    assert buffer_behind(small) is not data.obj


def test_a_small_value_of_a_compressed_batch_does_not_keep_the_others() -> None:
    read = records(built([(None, random.Random(n).randbytes(2 * LARGE), []) for n in range(4)], 3))
    for record in read:
        assert len(cast("bytes", buffer_behind(record))) == 2 * LARGE


@pytest.mark.parametrize("views", [True, False])
def test_a_batch_is_a_view_until_it_is_copied(views: bool) -> None:
    data = received(built([(None, b"x" * LARGE, [])]))
    buffer = cast("ReceiveBuffer", data.obj)
    (one,) = batches(data, views=views)
    assert one.viewed_size == one.size == len(data)
    data.release()
    assert buffer.is_viewed
    one.copy()
    assert (one.viewed_size, buffer.is_viewed) == (0, False)
    (record,) = one.decode("t", 0, 7, 0)
    assert bytes(record.view or b"") == b"x" * LARGE


def test_with_bytes_the_buffer_is_free_when_the_batch_is() -> None:
    data = received(built([plain(5 * LARGE)] * 2))
    buffer = cast("ReceiveBuffer", data.obj)
    read = records(data, views=False)
    assert {type(read_range.value) for read_range in read} == {bytes}
    data.release()
    assert not buffer.is_viewed


@pytest.mark.parametrize("records_of_it", [[LARGE], [400 * KIB, 5], [10, 10 * KIB]])
def test_a_changed_byte_of_a_value_is_found(records_of_it: list[int]) -> None:
    data = received(built([(None, bytes(size), []) for size in records_of_it]))
    data[-10] ^= 1
    for one in batches(data):
        with pytest.raises(CorruptBatch, match="checksum"):
            one.decode("t", 0, 7, 0)


@settings(deadline=None, max_examples=150)
@given(st.integers(61, 61 + 40), st.integers(0, 255), st.integers(0, 2), st.booleans())
def test_a_batch_that_its_producer_wrote_wrong_reads_the_same_however_it_is_read(
    at: int, byte: int, number: int, views: bool
) -> None:
    sizes = ([LARGE], [LARGE, 10], [300 * KIB, 300 * KIB])[number]
    damaged = bytearray(built([(b"key", bytes(size), [("n", b"v")]) for size in sizes]))
    # Half of them in the header of the first record, half after its value.
    damaged[at if at < 81 else -(at - 80)] = byte
    data = sealed(bytes(damaged))

    def outcome(source: bytes | memoryview, views: bool) -> object:
        try:
            return contents(records(source, views=views))
        except CorruptBatch as error:
            return type(error), str(error)

    assert outcome(received(data), views) == outcome(data, views=False)


def test_a_count_that_lies_does_not_have_millions_of_records_walked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = bytearray(built([(None, bytes(LARGE), [])]))
    body = b"\x0e\0\0\0\1\1\0\0" * (LARGE // 8)
    damaged = sealed(bytes(data[:61]) + body)
    walked: list[int] = []
    from asyncrevoke.client.protocol import single_records

    original = single_records._key_end

    def counted(data: bytes | memoryview, body: int) -> int:
        walked.append(body)
        return original(data, body)

    monkeypatch.setattr(single_records, "_key_end", counted)
    with pytest.raises(ValueError, match="too many"):
        single_records.without_values(memoryview(damaged), 1)
    assert len(walked) == 1
