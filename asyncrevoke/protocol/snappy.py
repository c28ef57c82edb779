"""Checks the declared size of snappy data before it is decompressed.

The decompressor allocates the declared size of a block at once. A declared size of 4 GiB in a block
of a few bytes would end the process.
"""

from __future__ import annotations

import struct
from typing import Final

from asyncrevoke.protocol.content_limits import PartCount

# JVM producers write a chain of blocks (xerial): a header, then each block after its length.
_CHAIN: Final = b"\x82SNAPPY\0"
_CHAIN_HEADER_SIZE: Final = 16
_BLOCK_SIZE: Final = struct.Struct(">i")
# The element with the highest ratio copies 64 bytes and takes 3.
_LARGEST_RATIO: Final = 22


def declared_size(data: bytes, start: int) -> int | None:
    """The decompressed size of the snappy data at ``start``; None if the data is too short for
    it. Raises ValueError for too many blocks."""
    end = len(data)
    if end - start <= _CHAIN_HEADER_SIZE or not data.startswith(_CHAIN, start):
        return _block_size(data, start, end)
    position = start + _CHAIN_HEADER_SIZE
    total = 0
    parts = PartCount(end)
    while position < end:
        parts.add()
        if position + _BLOCK_SIZE.size > end:
            return None
        size = _BLOCK_SIZE.unpack_from(data, position)[0]
        position += _BLOCK_SIZE.size
        if not 0 < size <= end - position:
            return None
        content = _block_size(data, position, position + size)
        if content is None:
            return None
        total += content
        position += size
    return total


def _block_size(data: bytes, start: int, end: int) -> int | None:
    """The size at the start of a block, seven bits in each byte."""
    declared = 0
    for number, byte in enumerate(data[start : min(start + 5, end)]):
        declared |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            return declared if declared <= (end - start) * _LARGEST_RATIO else None
    return None
