"""Record batches field by field, legal or not, with a checksum that is right."""

from __future__ import annotations

import gzip
import struct
from functools import partial
from typing import TYPE_CHECKING

from aiokafka.codec import lz4_encode, snappy_encode, zstd_encode
from crc32c import crc32c

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# A header's key and value; None is null.
Header = tuple[bytes | None, bytes | None]

_HEADER = struct.Struct(">qiibIhiqqqhii")
_ENCODERS: dict[int, Callable[[bytes], bytes]] = {
    1: partial(gzip.compress, compresslevel=1, mtime=0),
    2: snappy_encode,
    3: lz4_encode,
    4: zstd_encode,
}


# Of -64 to 63, one byte each; the negative ones by indexes from the end.
_SHORT_VARINTS = [bytes((2 * n,)) for n in range(64)] + [
    bytes((-2 * n - 1,)) for n in range(-64, 0)
]


def varint(number: int) -> bytes:
    """A signed number as zigzag varint, of 64 bits."""
    if -64 <= number < 64:
        return _SHORT_VARINTS[number]
    left = ((number << 1) ^ (number >> 63)) & (2**64 - 1)
    out = bytearray()
    while left >= 0x80:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(
    offset_delta: int = 0,
    *,
    key: bytes | None = b"key",
    value: bytes | None = b"value",
    headers: Sequence[Header] = (),
    header_count: int | None = None,
    after: bytes = b"",
    length: int | None = None,
    attributes: bytes = b"\0",
    timestamp_delta: int = 0,
) -> bytes:
    """A record; ``header_count`` and ``length`` may lie, ``after`` stands behind the headers."""
    body = b"".join(
        (
            attributes,
            varint(timestamp_delta),
            varint(offset_delta),
            sized(key),
            sized(value),
            varint(len(headers) if header_count is None else header_count),
            *(sized(part) for header in headers for part in header),
            after,
        )
    )
    return varint(len(body) if length is None else length) + body


def raw_batch(
    *records: bytes,
    base_offset: int = 0,
    count: int | None = None,
    last_offset_delta: int | None = None,
    codec: int = 0,
    attributes: int = 0,
    producer_id: int = -1,
    leader_epoch: int = 0,
) -> bytes:
    """A batch of these; ``codec``: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
    number = len(records) if count is None else count
    delta = number - 1 if last_offset_delta is None else last_offset_delta
    content = compressed(codec, b"".join(records))
    header = _HEADER.pack(
        base_offset,
        49 + len(content),
        leader_epoch,
        2,
        0,
        attributes | codec,
        delta,
        1000,
        1000,
        producer_id,
        0,
        0,
        number,
    )
    return sealed(header + content)


def compressed(codec: int, data: bytes) -> bytes:
    return _ENCODERS[codec](data) if codec in _ENCODERS else data


def sealed(data: bytes | bytearray) -> bytes:
    """The same with the checksum that is right for it."""
    changed = bytearray(data)
    struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


def header_bomb(headers: int = 30_000_000) -> bytes:
    """A few kilobytes of zstd: one record with so many empty headers."""
    return raw_batch(record(header_count=headers, after=bytes(2 * headers)), codec=4)
