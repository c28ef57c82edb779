"""Decompresses record batches, after checking how large they may become.

A batch of a few kilobytes may decompress to gigabytes. So the frames are walked first: each block
declares its size, or its format limits it. gzip declares its size in its last four bytes only,
which may be wrong; decompression stops at that size. The codecs are aiokafka's: see
``dependencies/parser.py`` for when they are imported.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Final

from asyncrevoke.client.protocol.content_limits import PartCount

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BATCH_HEADER_SIZE: Final = 61
COUNT_AT: Final = BATCH_HEADER_SIZE - 4
"""Where a record batch has the number of its records, an int32."""

_ATTRIBUTES_AT: Final = 21
COMPRESSION: Final = 0x07
_GZIP: Final = 1
_GZIP_WINDOW: Final = 31  # with its header and checksum
# zlib copies the rest of a piece after each member: small pieces limit what many members cost.
_GZIP_PIECE: Final = 4096
# Bytes that gzip data may decompress to whatever size it declares.
_SMALL: Final = 1024 * 1024
_U32: Final = struct.Struct("<I")
# Frames with these magic numbers have no data; lz4 and zstd allow them anywhere.
_SKIPPABLE: Final = range(0x184D2A50, 0x184D2A60)
_LZ4: Final = 0x184D2204
_LZ4_BLOCKS: Final = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}
_LZ4_LARGEST_RATIO: Final = 255
_ZSTD: Final = 0xFD2FB528
_ZSTD_BLOCK: Final = 1 << 17
# JVM producers write a chain of blocks (xerial): a header, then each block after its length. The
# header is this name, the version of the framing, and the lowest version whose readers can read it.
_CHAIN: Final = b"\x82SNAPPY\0"
_VERSIONS: Final = struct.Struct(">ii")
_CHAIN_HEADER_SIZE: Final = len(_CHAIN) + _VERSIONS.size
_READ_VERSION: Final = 1
_BLOCK_SIZE: Final = struct.Struct(">i")
# The element with the highest ratio copies 64 bytes and takes 3.
_LARGEST_RATIO: Final = 22


def declared_size(data: bytes, start: int) -> int:
    """The decompressed size of the snappy data at ``start``. Raises ValueError if it is not valid
    or has too many blocks.

    The decompressor allocates the declared size of a block at once: one of 4 GiB in a block of a
    few bytes would end the process.
    """
    return sum(_block_size(data, first, end) for first, end in _blocks(data, start))


def unpack_snappy(data: memoryview) -> bytes:
    """The decompressed data, after ``declared_size`` has checked it. Raises what the codec raises
    for invalid data."""
    from aiokafka.codec import snappy_decode

    return b"".join(snappy_decode(data[first:end]) for first, end in _blocks(data, 0))


def _unpack_lz4(data: memoryview) -> bytes:
    from aiokafka.codec import lz4_decode

    decoded: bytes = lz4_decode(data)
    return decoded


def _unpack_zstd(data: memoryview) -> bytes:
    from aiokafka.codec import zstd_decode

    decoded: bytes = zstd_decode(data)
    return decoded


def _blocks(data: bytes | memoryview, start: int) -> Iterator[tuple[int, int]]:
    """Where each block begins and ends: one without a header, or those of all chains."""
    end = len(data)
    if data[start : start + len(_CHAIN)] != _CHAIN or start + _CHAIN_HEADER_SIZE > end:
        yield start, end
        return
    position = start
    parts = PartCount(end)
    while position < end:
        parts.add()
        # Chains may follow one another.
        if data[position : position + len(_CHAIN)] == _CHAIN:
            position = _after_header(data, position)
            continue
        if position + _BLOCK_SIZE.size > end:
            raise ValueError("the snappy data is cut short")
        size = _BLOCK_SIZE.unpack_from(data, position)[0]
        position += _BLOCK_SIZE.size
        if not 0 < size <= end - position:
            raise ValueError(f"it is not snappy data: a block has a length of {size} bytes")
        # The codec would decompress a chain within a block, whose sizes are not checked.
        if data[position : position + len(_CHAIN)] == _CHAIN:
            raise ValueError("it is not snappy data: a block begins with the name of a chain")
        yield position, position + size
        position += size


def _after_header(data: bytes | memoryview, position: int) -> int:
    end = position + _CHAIN_HEADER_SIZE
    if end > len(data):
        raise ValueError("the snappy data is cut short")
    version, lowest = _VERSIONS.unpack_from(data, position + len(_CHAIN))
    if lowest > _READ_VERSION:
        raise ValueError(
            f"its snappy framing has version {version}, which readers of version {lowest} and later"
            f" can read, and this one reads version {_READ_VERSION}"
        )
    return end


def _block_size(data: bytes, start: int, end: int) -> int:
    """The size at the start of a block, seven bits in each byte."""
    declared = 0
    for number, byte in enumerate(data[start : min(start + 5, end)]):
        declared |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            if declared > (end - start) * _LARGEST_RATIO:
                raise ValueError(f"a snappy block of {end - start} bytes declares {declared}")
            return declared
    raise ValueError("it is not snappy data: a block declares no size")


class TooLarge(ValueError):  # noqa: N818 - it names what was read
    """A batch that decompresses to more bytes than allowed."""


def compression(batch: bytes | memoryview) -> int:
    """The codec of a whole record batch: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
    return batch[_ATTRIBUTES_AT + 1] & COMPRESSION


def unpacked_size(batch: bytes | memoryview) -> int:
    """The most bytes that the records of a batch may decompress to, by the declared sizes.

    For data that is not valid it is the size of the batch. A declared size of gzip may be wrong.
    """
    kind = compression(batch)
    if kind == _GZIP and len(batch) > BATCH_HEADER_SIZE:
        (declared,) = _U32.unpack_from(batch, len(batch) - 4)
        return max(len(batch), int(declared))
    codec = _CODECS.get(kind)
    if codec is None:
        return len(batch)
    try:
        return codec[0](bytes(batch), BATCH_HEADER_SIZE)
    except ValueError:
        return len(batch)


def unpack(batch: bytes, limit: int) -> bytes:
    """The batch without compression; its checksum is still that of the compressed batch.

    Raises ``TooLarge`` if the records have more than ``limit`` bytes, and ValueError or what a
    codec raises for invalid data.
    """
    kind = compression(batch)
    if not kind:
        return batch
    if kind == _GZIP:
        declared = max(unpacked_size(batch), _SMALL)
        records = _gunzip(memoryview(batch)[BATCH_HEADER_SIZE:], min(limit, declared))
    else:
        codec = _CODECS.get(kind)
        if codec is None:
            raise ValueError(f"compression {kind} is unknown")
        largest, decode = codec
        _check(largest(batch, BATCH_HEADER_SIZE), limit)
        records = decode(memoryview(batch)[BATCH_HEADER_SIZE:])
    high, low = batch[_ATTRIBUTES_AT], batch[_ATTRIBUTES_AT + 1] & ~COMPRESSION
    return b"".join(
        (
            batch[:_ATTRIBUTES_AT],
            bytes((high, low)),
            batch[_ATTRIBUTES_AT + 2 : BATCH_HEADER_SIZE],
            records,
        )
    )


def _check(size: int, limit: int) -> None:
    if size > limit:
        raise TooLarge(f"it may decompress to {size} bytes, and the limit is {limit}")


def _gunzip(data: memoryview, limit: int) -> bytes:
    """Decompress all members. Raises ``TooLarge`` beyond ``limit`` bytes."""
    parts: list[bytes] = []
    left = limit
    member = None
    for start in range(0, len(data), _GZIP_PIECE):
        piece = bytes(data[start : start + _GZIP_PIECE])
        while piece:
            if member is None:
                # Members may be padded with zeros.
                piece = piece.lstrip(b"\0")
                if not piece:
                    break
                member = zlib.decompressobj(_GZIP_WINDOW)
            part = member.decompress(piece, left + 1)
            if len(part) > left:
                raise TooLarge(f"it decompresses to more than the limit of {limit} bytes")
            if part:
                parts.append(part)
                left -= len(part)
            piece = member.unused_data or member.unconsumed_tail
            if member.eof:
                member = None
    if member is not None:
        raise ValueError("the gzip data is cut short")
    return b"".join(parts)


def _lz4_size(batch: bytes, start: int) -> int:
    """The most bytes that the frames can hold: their headers declare the largest block size."""
    size, position, end = 0, start, len(batch)
    parts = PartCount(end)
    try:
        while position < end:
            parts.add()
            position, magic = _frame(batch, position)
            if magic in _SKIPPABLE:
                continue
            if magic != _LZ4:
                raise ValueError("it is not lz4 data")
            flags, block = batch[position], _LZ4_BLOCKS.get(batch[position + 1] >> 4 & 7, 0)
            position += 3 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
            while length := _U32.unpack_from(batch, position)[0]:
                parts.add()
                packed = length & 0x7FFFFFFF
                size += packed if length != packed else min(block, packed * _LZ4_LARGEST_RATIO)
                position += 4 + packed + (4 if flags & 0x10 else 0)
            position += 4 + (4 if flags & 0x04 else 0)
    except (struct.error, IndexError):
        raise ValueError("the lz4 data is cut short") from None
    return size


def _zstd_size(batch: bytes, start: int) -> int:
    """The most bytes that the frames can hold: 128 KiB in each block (RFC 8878, 3.1.1.2)."""
    size, position, end = 0, start, len(batch)
    parts = PartCount(end)
    try:
        while position < end:
            parts.add()
            position, magic = _frame(batch, position)
            if magic in _SKIPPABLE:
                continue
            if magic != _ZSTD:
                raise ValueError("it is not zstd data")
            flags = batch[position]
            single = flags >> 5 & 1
            content = (single, 2, 4, 8)[flags >> 6]
            position += 1 + (1 - single) + (0, 1, 2, 4)[flags & 3] + content
            last = 0
            while not last:
                parts.add()
                block = int.from_bytes(batch[position : position + 3], "little")
                if position + 3 > end:
                    raise IndexError
                last, kind, length = block & 1, block >> 1 & 3, block >> 3
                size += _ZSTD_BLOCK if kind == 2 else length
                position += 3 + (1 if kind == 1 else length)
            position += 4 if flags & 4 else 0
    except (struct.error, IndexError):
        raise ValueError("the zstd data is cut short") from None
    return size


def _frame(batch: bytes, position: int) -> tuple[int, int]:
    """The position after the magic number (after the frame, if it is skippable), and the magic
    number."""
    magic: int = _U32.unpack_from(batch, position)[0]
    position += 4
    if magic in _SKIPPABLE:
        position += 4 + _U32.unpack_from(batch, position)[0]
    return position, magic


_CODECS: Final[dict[int, tuple[Callable[[bytes, int], int], Callable[[memoryview], bytes]]]] = {
    2: (declared_size, unpack_snappy),
    3: (_lz4_size, _unpack_lz4),
    4: (_zstd_size, _unpack_zstd),
}
