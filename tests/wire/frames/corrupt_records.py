"""Decodes corrupt record batches, in a process of its own: ``corrupt_records.py SEED COUNT``.

Most get a new checksum after they were damaged, since otherwise the checksum would be all that is
tested.
"""

from __future__ import annotations

import random
import resource
import struct
import sys
import time

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from wire.frames.response_frames import MEMORY_LIMIT, SLOWEST_DECODE, damage

from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.messages import AbortedTransaction, ErrorCode, FetchedPartition
from asyncrevoke.client.protocol.records import CorruptBatch, decode_batches

HEADER_SIZE = 61
COMPRESSIONS = range(5)


def batch(
    count: int,
    *,
    base_offset: int = 0,
    compression: int = 0,
    producer_id: int = -1,
    control: bool = False,
    value: bytes = b"value",
    key: bytes | None = b"key",
) -> bytes:
    """A batch as aiokafka's producer makes it, moved to ``base_offset``."""
    builder = DefaultRecordBatchBuilder(
        2, compression, 1 if producer_id >= 0 else 0, producer_id, 0, 0, 2**30
    )
    for number in range(count):
        headers: list[tuple[str, bytes | None]] = [("name", b"h"), ("none", None)]
        builder.append(number, 1000 + number, key, value, headers if number % 2 else [])
    data = bytearray(builder.build())
    struct.pack_into(">q", data, 0, base_offset)
    if control:
        data[22] |= 0x20  # the low byte of the attributes
    return seal(data)


def seal(data: bytes | bytearray) -> bytes:
    """With a length and a checksum that are right for what is there."""
    sealed = bytearray(data)
    if len(sealed) < HEADER_SIZE:
        return bytes(sealed)
    struct.pack_into(">i", sealed, 8, len(sealed) - 12)
    sealed[16] = 2
    # aiokafka tells whether a checksum is right, and not which would be: its table is in there.
    struct.pack_into(">I", sealed, 17, crc32c(bytes(sealed[21:])))
    return bytes(sealed)


def _table() -> list[int]:
    table: list[int] = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _table()


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli)."""
    value = 0xFFFFFFFF
    for byte in data:
        value = (value >> 8) ^ _TABLE[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


def fetched(records: bytes | memoryview, *aborted: AbortedTransaction) -> FetchedPartition:
    return FetchedPartition(
        partition=TopicPartition("t", 0), error=ErrorCode.none, records=records, aborted=aborted
    )


def main(seed: int, count: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    rng = random.Random(seed)
    valid = [
        batch(size, compression=compression, producer_id=producer_id, control=control)
        for size in (1, 5)
        for compression in COMPRESSIONS
        for producer_id, control in ((-1, False), (5, False), (5, True))
    ]
    assert DefaultRecordBatch(valid[0]).validate_crc()
    outcomes = {"decoded": 0, "rejected": 0}
    for number in range(count):
        data = bytearray(rng.choice(valid))
        part = rng.choice((0, 57, HEADER_SIZE))  # all of it, from the count, the records
        corrupt = bytes(data[:part]) + damage(bytes(data[part:]), rng)
        if number % 4:
            corrupt = seal(corrupt)
        started = time.perf_counter()
        try:
            aborted = AbortedTransaction(producer_id=5, first_offset=0)
            for split in decode_batches(fetched(corrupt, aborted), read_committed=number % 2 == 0):
                offsets = [r.offset for r in split.decode("t", 0, 1, 0)]
                assert offsets == sorted(set(offsets))
                assert all(0 <= offset < split.next_offset for offset in offsets)
            outcomes["decoded"] += 1
        except CorruptBatch as error:
            if isinstance(error.__cause__, MemoryError):
                raise
            outcomes["rejected"] += 1
        except BaseException:
            sys.stderr.write(f"{corrupt.hex()}\n")
            raise
        if time.perf_counter() - started > SLOWEST_DECODE:
            raise RuntimeError(f"took too long: {corrupt.hex()}")
    sys.stdout.write(f"{outcomes['decoded']} {outcomes['rejected']}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
