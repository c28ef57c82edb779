"""Encoded records that become one record batch."""

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
# The bytes before and in the length field, which it does not count.
_NOT_COUNTED: Final = 12
_MAGIC: Final = 2
_UNKNOWN: Final = -1
# By the number in the attributes of a batch. Levels of gzip and lz4 that cost little time: lz4's
# default in aiokafka takes eight times as long for a fifth fewer bytes.
_CODECS: Final[Mapping[int, Callable[[bytes], bytes]]] = {
    1: partial(gzip_encode, compresslevel=6),
    2: snappy_encode,
    3: partial(lz4_encode, level=1),
    4: zstd_encode,
}


@dataclass(frozen=True, slots=True)
class EncodedRecords:
    """One or more records in message format 2, without the header of their batch.

    ``content`` has ``count`` records. Their offset deltas count from 0, and their timestamp deltas
    refer to ``first_timestamp``. Timestamps are in milliseconds since the epoch.
    """

    count: int
    first_timestamp: int
    max_timestamp: int
    content: bytes | memoryview

    def build(self, compression: int) -> bytearray:
        """Build the record batch, without producer id, sequence and checksum.

        It is compressed only if that makes it smaller.
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
