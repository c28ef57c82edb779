"""Checks the declared size of snappy data before it is decompressed, and decompresses it.

The decompressor allocates the declared size of a block at once. A declared size of 4 GiB in a block
of a few bytes would end the process.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from aiokafka.codec import snappy_decode

from asyncrevoke.client.protocol.content_limits import PartCount

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    or has too many blocks."""
    return sum(_block_size(data, first, end) for first, end in _blocks(data, start))


def unpack_snappy(data: memoryview) -> bytes:
    """The decompressed data, after ``declared_size`` has checked it. Raises what the codec raises
    for invalid data."""
    return b"".join(snappy_decode(data[first:end]) for first, end in _blocks(data, 0))


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
