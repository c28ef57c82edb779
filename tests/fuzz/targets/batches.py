"""The record batches of a partition: format v2 of every codec, older formats, control batches.

An input is a byte of flags (``_Flags``), the offset to read from, and what a fetch brought. What is
promised: it is split and decoded, or rejected with ``CorruptBatch``, nothing else; offsets grow and
lie within their batches; what is passed without being decoded has a right checksum; aiokafka's
parser in Python reads what is accepted with the same values; a response in a ``ReceiveBuffer``,
whose values are memoryviews or are cut out, has the same records; and a buffer that is drained of
it ends behind it, or raises ``CorruptRecordError`` at an offset from which it can go on.
"""

from __future__ import annotations

import gzip
import struct
from collections import Counter
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Protocol, cast
from unittest import mock

import msgspec
from aiokafka.codec import lz4_encode, snappy_encode, zstd_encode
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from crc32c import crc32c
from wire.frames.raw_batches import Header, header_bomb, raw_batch, record, sealed, varint
from wire.frames.response_frames import damage

from asyncrevoke.client.core.partition.record_buffer import RecordBuffer
from asyncrevoke.client.errors import CorruptRecordError, UnreadableRecordError
from asyncrevoke.client.model import Record, TopicPartition, UnreadableRecord
from asyncrevoke.client.protocol import record_maker
from asyncrevoke.client.protocol.content_limits import MAX_RECORD_HEADERS
from asyncrevoke.client.protocol.messages import AbortedTransaction, ErrorCode, FetchedPartition
from asyncrevoke.client.protocol.receive_buffers import ReceiveBuffer
from asyncrevoke.client.protocol.records import CorruptBatch, RecordBatch, decode_batches
from asyncrevoke.client.protocol.unpacking import unpack

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Generator, Sequence

_PREFIX = struct.Struct(">Bq")
_READ_COMMITTED = 1
_WHOLE = 2
_LOW_LIMIT = 4
_PARTITION = TopicPartition("t", 0)
_ABORTED = 5
_ABORT, _COMMIT = b"\0\0\0\0", b"\0\0\0\1"
_HEADER_SIZE = 61
_LIMITS = {0: 64 * 2**20, _LOW_LIMIT: 2**16}
_SNAPPY = 2
# How a chain of snappy blocks begins; two versions follow.
_CHAIN = b"\x82SNAPPY\0"
# A frame that has no data.
_SKIPPED = struct.pack("<II", 0x184D2A50, 0)
# By codec: empty parts, and how a part is made.
_EMPTY_PARTS: dict[int, tuple[tuple[bytes, ...], Callable[[bytes], bytes]]] = {
    _SNAPPY: (
        (struct.pack(">i", 1) + b"\0", struct.pack(">i", 0)),
        lambda data: _with_length(snappy_encode(data, xerial_compatible=False)),
    ),
    3: ((lz4_encode(b""), _SKIPPED), lz4_encode),
    4: ((zstd_encode(b""), _SKIPPED), zstd_encode),
}
# A batch that becomes more is decoded once, to measure what that takes.
_LARGEST_COMPARED = 2**20
_EMPTY = gzip.compress(b"")
_ZEROS = gzip.compress(bytes(2**25), 1)
_LIES = (-1, -2, 0, 1, 63, 64, 127, 2**31 - 1, 2**31, -(2**31), 2**62, -(2**63))
# In the header of a batch: where a field is, and its layout.
_FIELDS = (
    (0, ">q"),
    (8, ">i"),
    (12, ">i"),
    (16, ">b"),
    (17, ">I"),
    (21, ">h"),
    (23, ">i"),
    (27, ">q"),
    (35, ">q"),
    (43, ">q"),
    (51, ">h"),
    (53, ">i"),
    (57, ">i"),
)


class _Oracle(Protocol):
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


@cache
def _shortest_records(count: int) -> list[bytes]:
    return [record(delta, key=None, value=None) for delta in range(count)]


class Batches:
    """What a fetch brings for one partition."""

    name: ClassVar[str] = "batches"

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    # -- making inputs ----------------------------------------------------------------------------

    def generate(self, random: random.Random) -> bytes:
        """A few batches, whose records, headers, lengths or bytes may not be what they were."""
        offset = random.choice((0, 0, 7, 2**40, 2**63 - 20))
        first = offset
        parts: list[bytes] = []
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            data, offset = self._batch(random, min(offset, 2**63 - 1))
            parts.append(self._damaged(random, data))
        joined = b"".join(parts)
        if random.random() < 0.05:
            joined = joined[: random.randrange(len(joined) + 1)]
        flags = random.randrange(8)
        return _PREFIX.pack(flags, min(first + random.randrange(4), 2**63 - 1)) + joined

    def _batch(self, random: random.Random, base: int) -> tuple[bytes, int]:
        kind = random.randrange(2000)
        if kind == 0:
            return header_bomb(random.choice((MAX_RECORD_HEADERS + 1, 10**6))), base + 1
        if kind == 1:
            return self._bomb(random), base + 1
        if kind < 12:
            return self._of_empty_parts(random), base + 1
        if kind < 40:
            return self._legacy(random), base + 1
        if kind < 200:
            key = random.choice((_ABORT, _COMMIT, b"", b"\0\0\0\2", b"\0\1", random.randbytes(4)))
            marker = record(0, key=key, value=bytes(6))
            producer = random.choice((_ABORTED, 9))
            codec = random.choice((0, 0, 0, 4))
            return raw_batch(
                marker, base_offset=base, attributes=0x30, producer_id=producer, codec=codec
            ), base + 1
        count = random.choice((0, 1, 1, 2, 3, 8))
        step = random.choice((1, 1, 1, 5))
        records = [self._record(random, number * step) for number in range(count)]
        last = max((count - 1) * step, 0) + random.choice((0, 0, 0, 3))
        lies = random.random() < 0.1
        data = raw_batch(
            *records,
            base_offset=base,
            count=random.choice((0, 1, 63, -1, 2**31 - 1, count)) if lies else None,
            last_offset_delta=random.choice((last, 0, 2**31 - 1, -1)) if lies else last,
            codec=random.choice((0, 0, 1, 2, 3, 4)),
            attributes=random.choice((0, 0, 0x08, 0x10, 0x18, 0x40)),
            producer_id=random.choice((-1, _ABORTED, 9)),
            leader_epoch=random.choice((-1, 0, 7)),
        )
        return data, base + last + 1

    def _record(self, random: random.Random, delta: int) -> bytes:
        lies = random.random() < 0.06
        headers: list[Header] = [
            (random.choice((b"", b"name", "ä".encode(), b"\xff")), random.choice((None, b"", b"h")))
            for _ in range(random.choice((0, 0, 0, 1, 3)))
        ]
        if headers and random.random() > 0.1:
            headers = [(key if key != b"\xff" else b"x", value) for key, value in headers]
        return record(
            delta if random.random() > 0.02 else random.choice(_LIES),
            key=random.choice((None, b"", b"key", random.randbytes(9))),
            value=random.choice((None, b"", b"value", random.randbytes(random.randrange(200)))),
            headers=headers,
            header_count=random.choice(_LIES) if lies and random.random() < 0.5 else None,
            length=random.choice(_LIES) if lies and random.random() < 0.5 else None,
            after=random.choice((b"x", varint(random.choice(_LIES)))) if lies else b"",
            attributes=random.choice((b"\0", b"\0", b"\x7f", b"\x80\0")) if lies else b"\0",
            timestamp_delta=random.choice(_LIES) if lies else random.randrange(100),
        )

    def _bomb(self, random: random.Random) -> bytes:
        """Little that becomes much: zeros, many short records, gzip whose size field lies, or that
        has many members."""
        how = random.randrange(4)
        codec = random.choice((1, 2, 3, 4))
        if how == 0:
            return raw_batch(record(value=bytes(random.choice((2**16, 2**21, 2**23)))), codec=codec)
        if how == 1:
            return raw_batch(*_shortest_records(random.choice((300, 5000, 50_000))), codec=codec)
        data = bytearray(raw_batch(record(value=bytes(100)), codec=1)[:_HEADER_SIZE])
        if how == 2:
            size = random.choice((0, 1000, 2**20, 2**32 - 1))
            data += _ZEROS[:-4] + struct.pack("<I", size)
        else:
            data += b"".join(
                (
                    _EMPTY * random.choice((1, 100, 20_000)),
                    gzip.compress(record(), 1),
                    random.choice((b"", bytes(9), _EMPTY)),
                )
            )
        return _resealed(bytes(data))

    def _of_empty_parts(self, random: random.Random) -> bytes:
        """A record among empty blocks of a chain (snappy) or empty frames (lz4, zstd)."""
        codec = random.choice(tuple(_EMPTY_PARTS))
        parts, pack = _EMPTY_PARTS[codec]
        begin = b""
        if codec == _SNAPPY:
            begin = _CHAIN + struct.pack(">ii", *random.choices((0, 1, 2, 2**31 - 1, -1), k=2))
            parts = (*parts, begin)
        packed = random.choice((pack(record()), pack(record(value=bytes(2**16))), b""))
        before, after = random.choice(parts), random.choice(parts)
        data = raw_batch(record(), codec=codec)[:_HEADER_SIZE] + begin
        data += before * random.choice((0, 1, 100, 5000, 60_000)) + packed
        return _resealed(data + after * random.choice((0, 0, 1, 100, 5000)))

    def _legacy(self, random: random.Random) -> bytes:
        builder = LegacyRecordBatchBuilder(random.choice((0, 1)), random.choice((0, 1, 2)), 2**20)
        for number in range(random.choice((1, 3))):
            builder.append(number, timestamp=1000 + number, key=b"key", value=b"value")
        return bytes(builder.build())

    def _damaged(self, random: random.Random, data: bytes) -> bytes:
        how = random.randrange(20)
        if how < 8 or len(data) < _HEADER_SIZE:
            return data
        if how < 12:
            changed = bytearray(data)
            at, layout = random.choice(_FIELDS)
            size = struct.calcsize(layout)
            value = random.choice((0, 1, 2**31, random.getrandbits(64), *map(abs, _LIES)))
            changed[at : at + size] = (value % 2 ** (8 * size)).to_bytes(size, "big")
            data = bytes(changed)
        elif how < 17:
            part = random.choice((0, 57, _HEADER_SIZE))
            data = data[:part] + damage(data[part:], random)
        else:
            # The compressed data are cut, or something stands behind them.
            end = random.randrange(_HEADER_SIZE, len(data) + 1)
            data = data[:end] + random.choice((b"", bytes(9), data[_HEADER_SIZE:]))
        return _resealed(data) if random.random() < 0.8 else data

    # -- checking ---------------------------------------------------------------------------------

    def check(self, data: bytes) -> None:
        """Split, decode and drain it."""
        if len(data) < _PREFIX.size:
            return
        flags, wanted = _PREFIX.unpack_from(data)
        fetched = FetchedPartition(
            partition=_PARTITION,
            error=ErrorCode.none,
            records=data[_PREFIX.size :],
            aborted=(AbortedTransaction(producer_id=_ABORTED, first_offset=0),),
        )
        limit = _LIMITS[flags & _LOW_LIMIT]
        committed, whole = bool(flags & _READ_COMMITTED), bool(flags & _WHOLE)
        try:
            batches = decode_batches(fetched, committed, limit=limit, whole=whole)
        except CorruptBatch as error:
            self._rejected(error)
            return
        in_buffer = _in_buffer(fetched)
        cut = decode_batches(in_buffer, committed, limit=limit, whole=whole)
        viewed = decode_batches(in_buffer, committed, limit=limit, views=True)
        for batch, cut_out, view in zip(batches, cut, viewed, strict=True):
            self._check_cut_out(batch, cut_out, None if whole else view)
        position, reached = 0, 0
        for batch in batches:
            stop = position + 12 + int.from_bytes(fetched.records[position + 8 : position + 12])
            raw = bytes(fetched.records[position:stop])
            position = stop
            assert reached <= batch.base_offset < batch.next_offset < 2**63
            reached = batch.next_offset
            self._check_batch(batch, raw, whole, limit)
        if not whole:
            for unreadable in (False, True):
                self._drain(fetched, committed, limit, wanted, unreadable)

    def _rejected(self, error: CorruptBatch) -> None:
        self.counts["rejected"] += 1
        if isinstance(error.__cause__, MemoryError) or "enough memory" in str(error):
            raise error

    def _check_batch(self, batch: RecordBatch, raw: bytes, whole: bool, limit: int) -> None:
        if batch.count == 0:
            assert _is_intact(raw), "passed without a right checksum"
            self.counts["passed"] += 1
            return
        assert batch.unpacked_size >= 0
        try:
            records = batch.decode(*_PARTITION, 1, 0)
        except CorruptBatch as error:
            self._rejected(error)
            return
        assert _is_intact(raw), "decoded without a right checksum"
        if whole:
            (one,) = records
            assert one.offset == batch.next_offset - 1
            self.counts["decoded"] += 1
            return
        offsets = [each.offset for each in records]
        assert offsets == sorted(set(offsets))
        assert batch.base_offset <= offsets[0] <= offsets[-1] < batch.next_offset
        assert len(records) == batch.count
        unreadable = [each for each in records if isinstance(each, UnreadableRecord)]
        self.counts["decoded"] += 1
        self.counts["unreadable records"] += len(unreadable)
        assert all(each.next_offset == each.offset + 1 for each in unreadable)
        assert sum(len(each.headers) for each in records) + len(records) <= limit // 256
        if not unreadable:
            self._compare(raw, records, limit)
        middle = offsets[len(offsets) // 2]
        rest = [each.offset for each in batch.decode(*_PARTITION, 1, middle)]
        assert rest == [offset for offset in offsets if offset >= middle]

    def _check_cut_out(
        self, batch: RecordBatch, cut_out: RecordBatch, view: RecordBatch | None
    ) -> None:
        if batch.unpacked_size > _LARGEST_COMPARED:
            return
        plain = _decoded(batch)
        with _small_values_are_cut_out():
            assert _decoded(cut_out) == plain
            assert view is None or _decoded(view) == plain

    def _compare(self, raw: bytes, records: Sequence[Record], limit: int) -> None:
        parser = _DefaultRecordBatchPy(unpack(raw, limit))
        oracle = cast("list[_Oracle]", list(iter(parser)))
        assert [
            (o.offset, o.timestamp, o.timestamp_type, o.key, o.value, tuple(o.headers))
            for o in oracle
        ] == [(r.offset, r.timestamp, r.timestamp_type, r.key, r.value, r.headers) for r in records]

    def _drain(
        self, fetched: FetchedPartition, committed: bool, limit: int, wanted: int, unreadable: bool
    ) -> None:
        buffer = RecordBuffer(_PARTITION, 1, wanted)
        buffer.append(decode_batches(fetched, committed, limit=limit))
        at = wanted
        while buffer.buffered:
            if buffer.awaits_decoding:
                batch = buffer.start_background_decode()
                try:
                    decoded: Sequence[Record] | CorruptBatch = batch.decode(*_PARTITION, 1, at)
                except CorruptBatch as error:
                    decoded = error
                assert buffer.set_decoded(batch, decoded)
            taken = _taken(buffer, unreadable=unreadable)
            if isinstance(taken, UnreadableRecordError):
                assert not unreadable
                assert at <= buffer.position <= taken.offset < taken.next_offset
                # Who seeks past it does not meet it again.
                at = taken.next_offset
                buffer = RecordBuffer(_PARTITION, 1, at)
                buffer.append(decode_batches(fetched, committed, limit=limit))
                continue
            if isinstance(taken, CorruptRecordError):
                assert at <= buffer.position <= taken.offset
                return
            assert [each.offset for each in taken] == sorted({each.offset for each in taken})
            assert all(at <= each.offset < buffer.position for each in taken)
            assert not any(isinstance(each, UnreadableRecord) for each in taken[:-1])
            assert unreadable or not isinstance(taken[-1] if taken else None, UnreadableRecord)
            assert buffer.position >= at
            at = buffer.position
        assert buffer.position >= min(at, buffer.fetch_position)


def _in_buffer(fetched: FetchedPartition) -> FetchedPartition:
    """The same response, as a large one is received."""
    size = len(fetched.records)
    view = memoryview(ReceiveBuffer(size + 1))
    view[:size] = fetched.records
    return msgspec.structs.replace(fetched, records=view[:size].toreadonly())


@contextmanager
def _small_values_are_cut_out() -> Generator[None]:
    """As large ones are, which would take most of the time here."""
    with (
        mock.patch.object(record_maker, "LARGE_VALUE", 8),
        mock.patch.object(record_maker, "_CUT_OUT_FOR_BYTES", 8),
    ):
        yield


def _decoded(batch: RecordBatch) -> list[tuple[object, ...]] | type[CorruptBatch]:
    """What is to be the same however the values are taken out."""
    try:
        records = batch.decode(*_PARTITION, 1, 0)
    except CorruptBatch as error:
        return type(error)
    return [
        (
            isinstance(each, UnreadableRecord),
            each.offset,
            each.timestamp,
            each.timestamp_type,
            each.key,
            None if each.value is None else bytes(each.value),
            each.headers,
        )
        for each in records
    ]


def _taken(buffer: RecordBuffer, *, unreadable: bool) -> Sequence[Record] | CorruptRecordError:
    try:
        return buffer.take(3, unreadable=unreadable)
    except CorruptRecordError as error:
        return error


def _is_intact(raw: bytes) -> bool:
    return crc32c(raw[21:]) == int.from_bytes(raw[17:21])


def _with_length(block: bytes) -> bytes:
    return struct.pack(">i", len(block)) + block


def _resealed(data: bytes) -> bytes:
    """With a length and a checksum that are right for what is there."""
    if len(data) < _HEADER_SIZE:
        return data
    changed = bytearray(data)
    struct.pack_into(">i", changed, 8, len(changed) - 12)
    return sealed(changed)
