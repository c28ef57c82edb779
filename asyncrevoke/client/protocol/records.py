"""Decodes fetched bytes to records: message format v2 (KIP-98), the only one since Kafka 4.0.

A partition's bytes are split into batches by their headers, which is cheap. The records of a batch
are checked against its CRC, decompressed and decoded (by aiokafka's parser) only when needed.
"""

from __future__ import annotations

import struct
from itertools import islice
from operator import attrgetter, lt
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, cast

from asyncrevoke.client.model import Record
from asyncrevoke.client.protocol.dependencies.checksum import is_intact
from asyncrevoke.client.protocol.receive_buffers import buffer_of
from asyncrevoke.client.protocol.record_maker import LARGE_VALUE, RecordMaker
from asyncrevoke.client.protocol.single_records import (
    TooManyObjects,
    parser,
    pieces,
    read_one_by_one,
    reason,
    without_values,
)
from asyncrevoke.client.protocol.unpacking import (
    COMPRESSION,
    TooLarge,
    compression,
    unpack,
    unpacked_size,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from asyncrevoke.client.protocol.messages import AbortedTransaction, FetchedPartition


class CorruptBatch(Exception):  # noqa: N818 - it names what was read
    """A record batch that fails its checksum, is inconsistent or cannot be decoded."""


class UnreadableBatch(CorruptBatch):
    """A record batch that cannot be decoded although its checksum is right: its producer wrote it
    so, and fetching it again gives the same bytes."""


class DecodeSingly(CorruptBatch):
    """These batches cannot be decoded together; some of them may be decoded by themselves."""

    def __init__(self, batches: Sequence[RecordBatch]) -> None:
        super().__init__("the record batches cannot be decoded together")
        self.batches = batches


class PartlyUnreadable(list[Record]):
    """The records of a batch; at least one is an ``UnreadableRecord``."""


class RecordBatch(Protocol):
    """A batch that is decoded on demand. Implemented by :class:`LogBatch`."""

    @property
    def base_offset(self) -> int:
        """Offset of the first record that the batch was written with."""
        ...

    @property
    def next_offset(self) -> int:
        """Offset after the last one in the batch, compacted records included."""
        ...

    @property
    def count(self) -> int:
        """Number of records; 0 for control batches and batches of an aborted transaction."""
        ...

    @property
    def size(self) -> int:
        """Bytes that it keeps in memory."""
        ...

    @property
    def viewed_size(self) -> int:
        """Bytes of it that are a view of the buffer of the response; 0 if it has a copy."""
        ...

    def copy(self) -> None:
        """Keep a copy instead of a view."""

    @property
    def unpacked_size(self) -> int:
        """The most bytes that its records may decompress to, by the sizes that it declares."""
        ...

    @property
    def leader_epoch(self) -> int:
        """Epoch of the leader that appended it (KIP-101), -1 if unknown."""
        ...

    @property
    def checksum(self) -> int:
        """CRC of its header; it covers the batch as it is in the log, without its offset."""
        ...

    def decode(
        self, topic: str, partition: int, tracker_id: int, from_offset: int
    ) -> Sequence[Record]:
        """The records from ``from_offset`` on, ascending. Raises ``CorruptBatch``.

        Returns ``PartlyUnreadable`` if some records cannot be decoded, and raises
        ``UnreadableBatch`` if none can; ``DecodeSingly`` by several batches. May be called in
        another thread, once at a time.
        """
        ...


class RecordDecoder(Protocol):
    """Splits a fetched partition into batches. Implemented by :func:`decode_batches`."""

    def __call__(self, fetched: FetchedPartition, read_committed: bool, /) -> Sequence[RecordBatch]:
        """The complete batches in order; a last one that is cut off is left out."""
        ...


# base offset, length, leader epoch, magic, CRC, attributes, last offset delta, first and last
# timestamp, producer id, producer epoch, base sequence, count
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_PREFIX: Final = struct.Struct(">qi")
_MAGIC_AT: Final = 16
_MAGIC: Final = 2
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_CONTROL_KEY: Final = struct.Struct(">hh")  # version, type
_ABORT: Final = 0
_LARGEST_OFFSET: Final = 2**63 - 1
# The most bytes that a compressed batch may decompress to.
LARGEST_UNPACKED: Final = 256 * 1024 * 1024
# Bytes that a record or a header counts, which limits how many a batch may have.
_OBJECT_SIZE: Final = 256
# Bytes that the parser decodes in one call; this takes milliseconds at worst.
_AT_ONCE: Final = 2**20 + 2**16
_SHORTEST_HEADER: Final = 2
# A record has at least seven bytes. A short one takes as long to decode as one of 32 bytes.
_SHORTEST_RECORD: Final = 7
_SHORT_RECORD: Final = 32
_HEADERS: Final = attrgetter("headers")
_NO_MEMORY: Final = "there is not enough memory to decode the record batch"


class LogBatch:
    """A batch as it is in the log."""

    _views: ClassVar = False
    __slots__ = (
        "_data",
        "_limit",
        "base_offset",
        "checksum",
        "count",
        "leader_epoch",
        "next_offset",
        "size",
        "viewed_size",
    )

    def __init__(
        self,
        data: bytes | memoryview,
        base_offset: int,
        next_offset: int,
        count: int,
        leader_epoch: int,
        checksum: int,
        limit: int,
    ) -> None:
        self._data = data
        self._limit = limit
        self.base_offset = base_offset
        self.next_offset = next_offset
        self.count = count
        self.size = len(data)
        self.viewed_size = 0 if buffer_of(data) is None else self.size
        self.leader_epoch = leader_epoch
        self.checksum = checksum

    def copy(self) -> None:
        """See ``RecordBatch``."""
        self._data, self.viewed_size = bytes(self._data), 0

    @property
    def unpacked_size(self) -> int:
        """See ``RecordBatch``."""
        if not self._data:
            return 0
        size = unpacked_size(self._data)
        return max(size, min(self.count, size // _SHORTEST_RECORD) * _SHORT_RECORD)

    def unpacked(self) -> bytes | memoryview:
        """Its bytes without compression. Raises ``CorruptBatch``."""
        if not is_intact(self._data):
            raise CorruptBatch("the checksum of the record batch is wrong")
        if self.count > self._limit // _OBJECT_SIZE:
            error = TooManyObjects(self._limit // _OBJECT_SIZE)
            raise UnreadableBatch(_rejection(error))
        try:
            if not compression(self._data):
                return self._data
            unpacked = unpack(bytes(self._data), self._limit)
        except TooLarge as error:
            raise UnreadableBatch(_rejection(error)) from error
        except MemoryError as error:
            raise CorruptBatch(_NO_MEMORY) from error
        except Exception as error:  # the codecs share no base class
            raise UnreadableBatch(f"the record batch cannot be decoded: {error}") from error
        self.size = len(unpacked)
        return unpacked

    def decode(self, topic: str, partition: int, tracker_id: int, from_offset: int) -> list[Record]:
        """The records from ``from_offset`` on."""
        return self.records(topic, partition, tracker_id, from_offset)

    def records(
        self, topic: str, partition: int, tracker_id: int, from_offset: int
    ) -> list[Record]:
        """What :meth:`decode` returns, whatever kind of batch this is."""
        if self.count == 0:
            return []
        unpacked = self.unpacked()
        maker = RecordMaker(topic, partition, tracker_id, self._views)
        try:
            records = None
            if maker.cuts_out(len(unpacked), self.count):
                records = self._large(memoryview(unpacked), maker)
            if records is None:
                records = self._small(bytes(unpacked), maker)
        except MemoryError as error:
            raise CorruptBatch(_NO_MEMORY) from error
        except TooManyObjects as error:
            raise UnreadableBatch(_rejection(error)) from error
        except Exception as error:
            detail = f"the record batch cannot be decoded: {reason(error)}"
            raise UnreadableBatch(detail) from error
        if from_offset > self.base_offset:
            wanted = [record for record in records if record.offset >= from_offset]
            return PartlyUnreadable(wanted) if isinstance(records, PartlyUnreadable) else wanted
        return records

    def _large(self, unpacked: memoryview, maker: RecordMaker) -> list[Record] | None:
        """Its records, whose values are large; None if not all can be decoded."""
        try:
            rest, values = without_values(unpacked, self.count)
            whole = cast("bytes | bytearray", unpacked.obj)
            return maker.with_values(self._all(rest, maker), values, whole)
        except TooManyObjects:
            raise
        except Exception:  # noqa: BLE001 - the parser has several
            return None

    def _small(self, unpacked: bytes, maker: RecordMaker) -> list[Record]:
        """Its records, with what the parser gives as their values."""
        try:
            return self._all(unpacked, maker)
        except TooManyObjects:
            raise
        except Exception:  # noqa: BLE001 - the parser has several; lengths that lie ask for memory
            return PartlyUnreadable(self._one_by_one(unpacked, maker))

    def _all(self, unpacked: bytes, maker: RecordMaker) -> list[Record]:
        """Its records, if all can be decoded."""
        records: list[Record]
        if len(unpacked) <= _AT_ONCE:
            records = maker.records(unpacked)
        else:
            records = []
            left = self._header_budget
            may_be_too_many = len(unpacked) // _SHORTEST_HEADER > left
            for piece in pieces(unpacked):
                part = maker.records(piece)
                if may_be_too_many:
                    left -= sum(map(len, map(_HEADERS, part)))
                    if left < 0:
                        raise TooManyObjects(self._limit // _OBJECT_SIZE)
                records += part
        self._check(records)
        return records

    def _one_by_one(self, unpacked: bytes, maker: RecordMaker) -> list[Record]:
        left = self._header_budget

        def parse(data: bytes) -> Record:
            nonlocal left
            (record,) = maker.records(data)
            left -= len(record.headers)
            if left < 0:
                raise TooManyObjects(self._limit // _OBJECT_SIZE)
            return record

        return read_one_by_one(
            unpacked, self.count, self.base_offset, self.next_offset, parse, maker.unreadable
        )

    @property
    def _header_budget(self) -> int:
        """How many headers all its records together may have."""
        return self._limit // _OBJECT_SIZE - self.count

    def _check(self, records: list[Record]) -> None:
        """A right checksum does not mean that the producer wrote consistent records."""
        if len(records) != self.count:
            raise CorruptBatch(f"the record batch holds {len(records)} of {self.count} records")
        offsets = [record.offset for record in records]
        if (
            offsets[0] < self.base_offset
            or offsets[-1] >= self.next_offset
            or not all(map(lt, offsets, islice(offsets, 1, None)))
        ):
            raise CorruptBatch("the offsets in the record batch are out of order")


class _ViewBatch(LogBatch):
    """Decodes to records whose values are memoryviews."""

    _views = True
    __slots__ = ()


class WholeBatch(LogBatch):
    """Decodes to one record, whose offset is the batch's last one and whose value are its bytes;
    they are not copied if the batch has no compression."""

    __slots__ = ()

    def decode(self, topic: str, partition: int, tracker_id: int, from_offset: int) -> list[Record]:
        """One record, unless ``from_offset`` is after the batch."""
        if self.count == 0 or from_offset >= self.next_offset:
            return []
        offset = self.next_offset - 1
        # A memoryview, too, serves as the value here.
        value = cast("bytes", self.unpacked())
        return [Record(topic, partition, offset, -1, 0, None, value, (), tracker_id)]


def limited(records: bytes | memoryview, most: int) -> bytes | memoryview:
    """What a broker may return for a partition if ``most`` bytes were requested: no more, or only
    the first batch (KIP-74)."""
    first = _PREFIX.size
    if len(records) >= first:
        first += max(_PREFIX.unpack_from(records)[1], 0)
    return records[: max(first, most)]


def decode_batches(
    fetched: FetchedPartition,
    read_committed: bool,
    *,
    limit: int = LARGEST_UNPACKED,
    whole: bool = False,
    views: bool = False,
) -> list[RecordBatch]:
    """Split the bytes of one partition into batches.

    With ``read_committed``, batches of aborted transactions have a count of 0, as control batches
    always have, so that the position moves past them. Batches before a corrupt one are returned
    without it. ``CorruptBatch`` is raised if the first one is corrupt, or if there are bytes but no
    complete batch: fetching again would return the same. A batch that may decompress to more than
    ``limit`` bytes counts as corrupt.

    With ``views`` the values of records are memoryviews; see :class:`RecordMaker`. With ``whole``,
    each batch decodes to a single record: the batch's last offset, and as its value the batch
    without compression. For a batch that was not compressed the value is a memoryview, which keeps
    the whole fetch response in memory.
    """
    kind = WholeBatch if whole else _ViewBatch if views else LogBatch
    data = memoryview(fetched.records)
    end = len(data)
    aborted = _AbortedProducers(fetched.aborted) if read_committed else None
    batches: list[RecordBatch] = []
    position = 0
    last = 0
    while end - position > _MAGIC_AT:
        base_offset, length = _PREFIX.unpack_from(data, position)
        stop = position + _PREFIX.size + length
        try:
            if length >= 0 and stop > end and data[position + _MAGIC_AT] == _MAGIC:
                break
            if base_offset < last:
                raise CorruptBatch(f"a batch at offset {base_offset} follows one up to {last}")
            batch = _batch(kind, data, position, stop, aborted, limit)
        except CorruptBatch:
            if batches:
                return batches
            raise
        batches.append(batch)
        position = stop
        last = batch.next_offset
    if end and not batches:
        raise CorruptBatch(f"{end} bytes hold no whole record batch")
    return batches


def _batch(
    kind: type[LogBatch],
    data: memoryview,
    position: int,
    stop: int,
    aborted: _AbortedProducers | None,
    limit: int,
) -> RecordBatch:
    magic = data[position + _MAGIC_AT]
    if magic != _MAGIC:
        raise CorruptBatch(
            f"message format v{magic} is not supported, only v2: let a broker of version 3 rewrite"
            " the topic, or copy it"
            if magic < _MAGIC
            else f"message format v{magic} is unknown"
        )
    if stop - position < _HEADER.size:
        raise CorruptBatch(f"a record batch of {stop - position} bytes is shorter than its header")
    (
        base_offset,
        _,
        leader_epoch,
        _,
        checksum,
        attributes,
        last_offset_delta,
        _,
        _,
        producer_id,
        _,
        _,
        count,
    ) = _HEADER.unpack_from(data, position)
    next_offset = base_offset + last_offset_delta + 1
    # Compaction may leave fewer records than offsets, nothing leaves more.
    if last_offset_delta < 0 or not 0 <= count <= last_offset_delta + 1:
        raise CorruptBatch(f"{count} records in {last_offset_delta + 1} offsets")
    if next_offset > _LARGEST_OFFSET:
        raise CorruptBatch(f"offset {next_offset} is too large")
    batch: bytes | memoryview = data[position:stop]
    control = attributes & _CONTROL
    if (
        control
        or not count
        or (aborted is not None and aborted.wrote(next_offset, producer_id, attributes))
    ):
        # It is never decoded, but its header moves the position: verify it here.
        if not is_intact(batch):
            raise CorruptBatch("the checksum of a record batch without records to return is wrong")
        if control and aborted is not None and count and _is_abort(bytes(batch)):
            aborted.end(producer_id)
        return LogBatch(b"", base_offset, next_offset, 0, leader_epoch, checksum, limit)
    if attributes & COMPRESSION or (
        kind is not WholeBatch and (stop - position < LARGE_VALUE or buffer_of(batch) is None)
    ):
        # A copy, so that waiting for it to be decoded does not keep the response in memory.
        batch = bytes(batch)
    return kind(batch, base_offset, next_offset, count, leader_epoch, checksum, limit)


class _AbortedProducers:
    """The producers whose transaction at the current offset was aborted (KIP-98)."""

    __slots__ = ("_active", "_coming")

    def __init__(self, transactions: Iterable[AbortedTransaction]) -> None:
        self._coming = sorted(transactions, key=lambda t: t.first_offset, reverse=True)
        self._active: set[int] = set()

    def wrote(self, next_offset: int, producer_id: int, attributes: int) -> bool:
        while self._coming and self._coming[-1].first_offset < next_offset:
            self._active.add(self._coming.pop().producer_id)
        return bool(attributes & _TRANSACTIONAL) and producer_id in self._active

    def end(self, producer_id: int) -> None:
        self._active.discard(producer_id)


def _rejection(error: TooLarge | TooManyObjects) -> str:
    return (
        f"a record batch is rejected: {error}; if the batch is valid, raise buffer_memory above a"
        f" quarter of what it needs, where each record and header counts {_OBJECT_SIZE} bytes"
    )


def _is_abort(data: bytes) -> bool:
    try:
        batch = parser(data)
        if batch.compression_type != 0:
            raise CorruptBatch("a control batch is compressed")
        key = next(iter(batch)).key or b""
        kind: int = _CONTROL_KEY.unpack_from(key)[1]
    except CorruptBatch:
        raise
    except Exception as error:  # likewise
        raise CorruptBatch(f"a control batch cannot be decoded: {error}") from error
    return kind == _ABORT
