"""Fetched bytes to records."""

from __future__ import annotations

import gzip
import random
import struct
import tracemalloc
import zlib
from typing import TYPE_CHECKING

import pytest
from aiokafka.codec import lz4_encode, snappy_encode, zstd_encode
from hypothesis import given
from hypothesis import strategies as st
from wire.frames.corrupt_records import batch, fetched, seal

from asyncrevoke.client.core.partition.record_buffer import LARGE_BATCH, RecordBuffer
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.messages import AbortedTransaction
from asyncrevoke.client.protocol.records import CorruptBatch, RecordBatch, decode_batches

if TYPE_CHECKING:
    from asyncrevoke.client.model import Record

ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"


def decode(records: bytes) -> list[RecordBatch]:
    return decode_batches(fetched(records), read_committed=False)


def read(batches: list[RecordBatch], from_offset: int = 0) -> list[Record]:
    return [record for one in batches for record in one.decode("t", 3, 7, from_offset)]


def marker(base_offset: int, producer_id: int, kind: bytes) -> bytes:
    return batch(
        1, base_offset=base_offset, producer_id=producer_id, control=True, key=kind, value=bytes(6)
    )


def test_a_batch_gives_its_records_with_all_their_fields() -> None:
    (one,) = decode(batch(2, base_offset=40))
    assert (one.base_offset, one.next_offset, one.count, one.leader_epoch) == (40, 42, 2, -1)
    first, second = one.decode("topic", 3, 7, 0)
    assert (first.topic, first.partition, first.offset, first.tracker_id) == ("topic", 3, 40, 7)
    assert (first.key, first.value, first.timestamp, first.timestamp_type) == (
        b"key",
        b"value",
        1000,
        0,
    )
    assert first.headers == ()
    assert second.headers == (("name", b"h"), ("none", None))


def test_null_keys_and_values_stay_null() -> None:
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1000)
    builder.append(0, 5, None, None, [])
    (record,) = read(decode(bytes(builder.build())))
    assert (record.key, record.value) == (None, None)


def test_the_leader_epoch_is_read() -> None:
    data = bytearray(batch(1))
    struct.pack_into(">i", data, 12, 9)  # not covered by the checksum
    assert decode(bytes(data))[0].leader_epoch == 9


def test_with_log_append_time_every_record_has_the_time_of_its_batch() -> None:
    data = bytearray(batch(2))
    data[22] |= 0x08
    struct.pack_into(">q", data, 35, 123456)  # the largest timestamp
    first, second = read(decode(seal(data)))
    assert (first.timestamp, first.timestamp_type) == (123456, 1)
    assert (second.timestamp, second.timestamp_type) == (123456, 1)


@pytest.mark.parametrize("compression", range(5), ids=["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_is_read(compression: int) -> None:
    value = b"0123456789" * 5000  # several snappy blocks
    records = read(decode(batch(20, compression=compression, value=value)))
    assert [record.offset for record in records] == list(range(20))
    assert all(record.value == value for record in records)


def test_offset_gaps_between_batches_are_kept() -> None:
    batches = decode(batch(2, base_offset=10) + batch(1, base_offset=50))
    assert [record.offset for record in read(batches)] == [10, 11, 50]


def test_offsets_removed_by_compaction_count_into_the_position() -> None:
    data = bytearray(batch(2, base_offset=10))
    struct.pack_into(">i", data, 23, 99)  # the last offset delta
    (one,) = decode(seal(data))
    assert (one.count, one.next_offset) == (2, 110)
    assert [record.offset for record in read([one])] == [10, 11]


def test_a_batch_that_compaction_emptied_gives_nothing_and_moves_the_position() -> None:
    data = bytearray(batch(1, base_offset=10)[:61])
    struct.pack_into(">i", data, 57, 0)
    (one,) = decode(seal(data))
    assert (one.count, one.next_offset) == (0, 11)
    assert read([one]) == []


def test_records_before_the_wanted_offset_are_left_out() -> None:
    assert [record.offset for record in read(decode(batch(5, base_offset=10)), 13)] == [13, 14]


@pytest.mark.parametrize("left", [1, 11, 12, 16, 17, 60, 61, 70])
def test_a_last_batch_that_is_cut_off_is_left_out(left: int) -> None:
    data = batch(1) + batch(1, base_offset=1)[:left]
    assert [one.base_offset for one in decode(data)] == [0]


def test_no_bytes_are_no_batches() -> None:
    assert decode(b"") == []


def test_bytes_without_a_whole_batch_are_an_error_since_a_retry_brings_the_same() -> None:
    with pytest.raises(CorruptBatch, match="no whole record batch"):
        decode(batch(3)[:-1])


def test_control_batches_hold_no_records_and_move_the_position() -> None:
    for read_committed in (False, True):
        batches = decode_batches(
            fetched(batch(1, producer_id=5) + marker(1, 5, COMMIT)), read_committed
        )
        assert [(one.count, one.next_offset) for one in batches] == [(1, 1), (0, 2)]
        assert batches[1].size == 0
        assert [record.offset for record in read(batches)] == [0]


def transactions() -> bytes:
    """Producer 5 aborts at 0..3, then commits 6..8; producer 9 commits throughout."""
    return b"".join(
        (
            batch(2, base_offset=0, producer_id=5),
            batch(1, base_offset=2, producer_id=9),
            batch(1, base_offset=3, producer_id=5),
            marker(4, 5, ABORT),
            marker(5, 9, COMMIT),
            batch(2, base_offset=6, producer_id=5),
            marker(8, 5, COMMIT),
            batch(1, base_offset=9),
        )
    )


def test_read_committed_leaves_out_aborted_transactions_only() -> None:
    aborted = AbortedTransaction(producer_id=5, first_offset=0)
    batches = decode_batches(fetched(transactions(), aborted), read_committed=True)
    assert [record.offset for record in read(batches)] == [2, 6, 7, 9]
    assert [one.next_offset for one in batches] == [2, 3, 4, 5, 6, 8, 9, 10]


def test_read_uncommitted_gives_aborted_records_too() -> None:
    aborted = AbortedTransaction(producer_id=5, first_offset=0)
    batches = decode_batches(fetched(transactions(), aborted), read_committed=False)
    assert [record.offset for record in read(batches)] == [0, 1, 2, 3, 6, 7, 9]


def test_a_second_abort_of_the_same_producer_begins_at_its_own_offset() -> None:
    data = b"".join(
        (
            batch(1, base_offset=0, producer_id=5),
            marker(1, 5, ABORT),
            batch(1, base_offset=2, producer_id=5),
            marker(3, 5, COMMIT),
            batch(1, base_offset=4, producer_id=5),
            marker(5, 5, ABORT),
        )
    )
    aborted = [AbortedTransaction(producer_id=5, first_offset=offset) for offset in (4, 0)]
    batches = decode_batches(fetched(data, *aborted), read_committed=True)
    assert [record.offset for record in read(batches)] == [2]


def test_records_outside_a_transaction_are_kept_for_every_producer() -> None:
    data = bytearray(batch(1, producer_id=5))
    data[22] &= ~0x10  # idempotent, not transactional
    aborted = AbortedTransaction(producer_id=5, first_offset=0)
    batches = decode_batches(fetched(seal(data), aborted), read_committed=True)
    assert [record.offset for record in read(batches)] == [0]


def test_a_wrong_checksum_is_an_error() -> None:
    data = bytearray(batch(3))
    data[-1] ^= 1
    (one,) = decode(bytes(data))
    with pytest.raises(CorruptBatch, match="checksum"):
        read([one])


def test_a_corrupt_batch_does_not_keep_the_ones_before_it() -> None:
    broken = bytearray(batch(1, base_offset=5))
    struct.pack_into(">i", broken, 23, -5)
    batches = decode(batch(2) + seal(broken) + batch(1, base_offset=9))
    assert [one.base_offset for one in batches] == [0]
    with pytest.raises(CorruptBatch, match="1 records in -4 offsets"):
        decode(seal(broken))


@pytest.mark.parametrize("magic", [0, 1])
def test_an_older_message_format_is_named(magic: int) -> None:
    data = bytearray(batch(1))
    data[16] = magic
    with pytest.raises(CorruptBatch, match=f"message format v{magic} is not supported, only v2"):
        decode(bytes(data))


def test_a_newer_message_format_is_named() -> None:
    data = bytearray(batch(1))
    data[16] = 3
    with pytest.raises(CorruptBatch, match="message format v3 is unknown"):
        decode(bytes(data))


@pytest.mark.parametrize("count", [-1, 6, 2**31 - 1])
def test_a_count_that_does_not_fit_the_offsets_is_an_error(count: int) -> None:
    data = bytearray(batch(5))
    struct.pack_into(">i", data, 57, count)
    with pytest.raises(CorruptBatch, match="5 offsets"):
        decode(seal(data))


@pytest.mark.parametrize("count", [4, 6])
def test_a_count_that_does_not_fit_the_records_is_an_error(count: int) -> None:
    data = bytearray(batch(5))
    struct.pack_into(">i", data, 23, 9)
    struct.pack_into(">i", data, 57, count)
    (one,) = decode(seal(data))
    with pytest.raises(CorruptBatch):
        read([one])


def test_offsets_out_of_order_within_a_batch_are_an_error() -> None:
    data = bytearray(batch(2))
    second = data.index(b"key") + 3 + 1 + 5 + 1  # after the first record's key, value, headers
    assert data[second + 3] == 2  # its offset delta, 1 as a zigzag varint
    data[second + 3] = 0
    (one,) = decode(seal(data))
    with pytest.raises(CorruptBatch, match="out of order"):
        read([one])


def test_batches_out_of_order_are_an_error() -> None:
    batches = decode(batch(2, base_offset=10) + batch(2, base_offset=11))
    assert [one.base_offset for one in batches] == [10]


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 48])
def test_a_length_shorter_than_the_header_is_an_error(length: int) -> None:
    data = bytearray(batch(1))
    struct.pack_into(">i", data, 8, length)
    with pytest.raises(CorruptBatch):
        decode(bytes(data))


def test_a_snappy_block_that_promises_gigabytes_is_an_error() -> None:
    data = bytearray(batch(1, compression=2))
    data[61:] = b"\xff\xff\xff\xff\x0f" + bytes(20)
    (one,) = decode(seal(data))
    with pytest.raises(CorruptBatch, match="snappy"):
        read([one])


CODECS = ["gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize("compression", range(1, 5), ids=CODECS)
def test_a_batch_that_unpacks_to_more_than_is_allowed_is_rejected_unopened(
    compression: int,
) -> None:
    bomb = batch(1, compression=compression, value=bytes(8 * 2**20))
    assert len(bomb) < 2**20
    (one,) = decode_batches(fetched(bomb), read_committed=False, limit=2**20)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatch, match="raise buffer_memory"):
            read([one])
        assert tracemalloc.get_traced_memory()[1] < 3 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("compression", range(1, 5), ids=CODECS)
def test_a_batch_below_the_limit_is_read_and_counts_what_it_unpacks_to(compression: int) -> None:
    value = random.Random(1).randbytes(1000) * 900
    (one,) = decode_batches(
        fetched(batch(1, compression=compression, value=value)), read_committed=False, limit=2**21
    )
    packed = one.size
    assert [record.value for record in read([one])] == [value]
    assert one.size > len(value) > packed


@pytest.mark.parametrize("compression", range(1, 5), ids=CODECS)
@given(data=st.binary(max_size=200), keep=st.integers(0, 60))
def test_changed_compressed_data_is_corrupt_or_has_all_records(
    compression: int, data: bytes, keep: int
) -> None:
    whole = batch(3, compression=compression)
    (one,) = decode(seal(whole[: 61 + keep] + data))
    try:
        found = read([one])
    except CorruptBatch:
        return
    assert len(found) == 3


@pytest.mark.parametrize("compression", range(1, 5), ids=CODECS)
@pytest.mark.parametrize("kept", [0, 8], ids=["nothing is kept", "the beginning is kept"])
def test_what_is_no_compressed_data_is_corrupt(compression: int, kept: int) -> None:
    whole = batch(3, compression=compression)
    (one,) = decode(seal(whole[: 61 + kept] + b"\xff" * 40))
    with pytest.raises(CorruptBatch):
        read([one])


def test_an_unknown_compression_is_an_error() -> None:
    data = bytearray(batch(1))
    data[22] |= 7
    (one,) = decode(seal(data))
    with pytest.raises(CorruptBatch, match="cannot be decoded"):
        read([one])


def test_a_whole_batch_is_what_was_fetched_without_a_copy() -> None:
    data = bytearray(batch(2, base_offset=40))
    (one,) = decode_batches(fetched(memoryview(data)), read_committed=False, whole=True)
    (record,) = one.decode("topic", 3, 7, 0)
    value: object = record.value
    assert isinstance(value, memoryview)
    assert value.obj is data
    assert value == data
    assert record.offset == 41


def _spoiled(data: bytes, at: int, layout: str, value: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into(layout, changed, at, value)
    return bytes(changed)


@pytest.mark.parametrize(
    "corrupt",
    [
        pytest.param(_spoiled(batch(3), 21, ">h", 0x20), id="a control bit"),
        pytest.param(_spoiled(batch(3), 57, ">i", 0), id="a count of 0"),
        pytest.param(_spoiled(batch(3, producer_id=6), 43, ">q", 5), id="an aborted producer id"),
        pytest.param(
            _spoiled(_spoiled(batch(3), 57, ">i", 0), 23, ">i", 2**31 - 1), id="the last delta"
        ),
    ],
)
@pytest.mark.parametrize("read_committed", [False, True])
def test_no_offset_is_passed_on_the_word_of_a_header_without_its_checksum(
    corrupt: bytes, read_committed: bool
) -> None:
    aborted = AbortedTransaction(producer_id=5, first_offset=0)
    with pytest.raises(CorruptBatch, match="checksum"):
        read(decode_batches(fetched(corrupt, aborted), read_committed))


def _gzipped(*members: bytes) -> bytes:
    """A batch of one record, whose compressed data are these gzip members."""
    return seal(batch(1, compression=1)[:61] + b"".join(members))


def test_gzip_is_unpacked_no_further_than_its_size_field_says() -> None:
    honest = gzip.compress(bytes(32 * 2**20))
    lying = honest[:-4] + struct.pack("<I", 1000)
    (one,) = decode(_gzipped(lying))
    assert one.unpacked_size < 2**20
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatch, match="decompresses to more"):
            read([one])
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    finally:
        tracemalloc.stop()


def test_gzip_in_several_members_is_read() -> None:
    whole = batch(1, value=b"x" * 3000)[61:]
    data = _gzipped(gzip.compress(whole[:1000]), bytes(3), gzip.compress(whole[1000:]))
    assert [record.value for record in read(decode(data))] == [b"x" * 3000]


def test_empty_gzip_members_are_unpacked_in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    fed = 0
    make = zlib.decompressobj

    class Counted:
        def __init__(self, window: int) -> None:
            self._member = make(window)

        def __getattr__(self, name: str) -> object:
            return getattr(self._member, name)

        def decompress(self, data: bytes, most: int) -> bytes:
            nonlocal fed
            fed += len(data)
            return self._member.decompress(data, most)

    monkeypatch.setattr(zlib, "decompressobj", Counted)
    data = gzip.compress(b"") * 20_000
    with pytest.raises(CorruptBatch):
        read(decode(_gzipped(data)))
    # Each member may hand on what is left of its piece, not of all the data.
    assert fed < len(data) * 4096 / 20


EMPTY_PARTS = {
    2: (b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1), struct.pack(">i", 1) + b"\0"),
    3: (b"", lz4_encode(b"")),
    4: (b"", zstd_encode(b"")),
}


def _of_empty_parts(compression: int, size: int) -> bytes:
    begin, part = EMPTY_PARTS[compression]
    return seal(batch(1, compression=compression)[:61] + begin + part * (size // len(part)))


@pytest.mark.parametrize("compression", EMPTY_PARTS)
def test_data_of_too_many_empty_blocks_is_rejected_before_it_is_unpacked(compression: int) -> None:
    with pytest.raises(CorruptBatch, match="compressed frames and blocks"):
        read(decode(_of_empty_parts(compression, 2**20)))


@pytest.mark.parametrize("compression", EMPTY_PARTS)
def test_a_large_batch_that_declares_no_content_is_decoded_in_a_thread(compression: int) -> None:
    buffer = RecordBuffer(TopicPartition("t", 3), 7, 0)
    buffer.append(decode(_of_empty_parts(compression, LARGE_BATCH + 1)))
    assert buffer.awaits_decoding


def test_snappy_blocks_of_a_kilobyte_are_read() -> None:
    whole = batch(1, value=bytes(2**22))[61:]
    blocks = bytearray(EMPTY_PARTS[2][0])
    for start in range(0, len(whole), 1024):
        packed = snappy_encode(whole[start : start + 1024], xerial_compatible=False)
        blocks += struct.pack(">i", len(packed)) + packed
    data = seal(batch(1, compression=2)[:61] + bytes(blocks))
    assert [record.value for record in read(decode(data))] == [bytes(2**22)]


def _snappy_chain(version: int, lowest: int, *parts: bytes) -> bytes:
    blocks = (snappy_encode(part, xerial_compatible=False) for part in parts)
    framed = (struct.pack(">i", len(block)) + block for block in blocks)
    return b"\x82SNAPPY\0" + struct.pack(">ii", version, lowest) + b"".join(framed)


def _snappy(data: bytes) -> bytes:
    return seal(batch(1, compression=2)[:61] + data)


@pytest.mark.parametrize(("version", "lowest"), [(1, 1), (2, 1), (7, 1), (0, 0)])
def test_snappy_of_a_newer_framing_that_readers_of_version_1_can_read(
    version: int, lowest: int
) -> None:
    whole = batch(1, value=b"v" * 90)[61:]
    data = _snappy(_snappy_chain(version, lowest, whole[:50], whole[50:]))
    assert [record.value for record in read(decode(data))] == [b"v" * 90]


def test_snappy_of_a_framing_that_only_newer_readers_can_read_is_an_error() -> None:
    data = _snappy(_snappy_chain(3, 2, batch(1)[61:]))
    with pytest.raises(CorruptBatch, match="has version 3, which readers of version 2 and later"):
        read(decode(data))


def test_snappy_chains_that_follow_one_another_are_read() -> None:
    whole = batch(1, value=b"v" * 90)[61:]
    parts = (_snappy_chain(1, 1, whole[:50]), _snappy_chain(1, 1), _snappy_chain(2, 1, whole[50:]))
    assert [record.value for record in read(decode(_snappy(b"".join(parts))))] == [b"v" * 90]


def test_a_snappy_chain_in_a_block_is_not_decompressed() -> None:
    # The codec of aiokafka would decompress it, and its blocks may declare any size.
    inner = _snappy_chain(1, 1, bytes(2**22)) + bytes(1000)
    data = _snappy(_snappy_chain(1, 1) + struct.pack(">i", len(inner)) + inner)
    with pytest.raises(CorruptBatch, match="begins with the name of a chain"):
        read(decode(data))
