"""Records that were encoded together, and become one record batch."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from aiokafka.codec import gzip_encode, lz4_encode, snappy_encode, zstd_encode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Base offset, length, leader epoch, magic, CRC, attributes, last offset delta, first and last
# timestamp, producer id, producer epoch, base sequence, number of records.
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
# The length counts what comes after it.
_NOT_COUNTED: Final = 12
_MAGIC: Final = 2
_UNKNOWN: Final = -1
# As numbered in the attributes of a batch. Of the levels of zlib and lz4 those that cost little:
# lz4's default in aiokafka takes eight times as long for a fifth less.
_CODECS: Final[Mapping[int, Callable[[bytes], bytes]]] = {
    1: partial(gzip_encode, compresslevel=6),
    2: snappy_encode,
    3: partial(lz4_encode, level=1),
    4: zstd_encode,
}


@dataclass(frozen=True, slots=True)
class EncodedRecords:
    """Records in message format 2, without the header of their batch: at least one.

    ``content`` has ``count`` records, whose offset deltas count from 0 and whose timestamp deltas
    refer to ``first_timestamp``. Timestamps are in milliseconds since the epoch.
    """

    count: int
    first_timestamp: int
    max_timestamp: int
    content: bytes | memoryview

    def build(self, compression: int) -> bytearray:
        """The record batch, without producer id, sequence and checksum.

        It is not compressed if that would not make it smaller.
        """
        content = self.content
        if compression:
            # Not all codecs take a memoryview.
            compressed = _CODECS[compression](bytes(content))
            if len(compressed) < len(content):
                content = compressed
            else:
                compression = 0
        header = _HEADER.pack(
            0,
            _HEADER.size - _NOT_COUNTED + len(content),
            _UNKNOWN,
            _MAGIC,
            0,
            compression,
            self.count - 1,
            self.first_timestamp,
            self.max_timestamp,
            _UNKNOWN,
            _UNKNOWN,
            _UNKNOWN,
            self.count,
        )
        return bytearray(b"".join((header, content)))
