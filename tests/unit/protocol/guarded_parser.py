"""Reads cut batches from memory behind which nothing may be read: a program of its own, which a
read beyond the end kills by SIGSEGV."""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import struct
import sys
from typing import TYPE_CHECKING

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from wire.frames.corrupt_records import fetched, seal

from asyncrevoke.client.protocol import single_records
from asyncrevoke.client.protocol.records import CorruptBatch, decode_batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiokafka.record._protocols import DefaultRecordBatchProtocol

_PAGES = 4
_LENGTH_AT = 8
_HEADER = 61


class GuardedMemory:
    """A few pages, after which comes one that cannot be read."""

    def __init__(self) -> None:
        size = _PAGES * mmap.PAGESIZE
        self._pages = mmap.mmap(-1, size + mmap.PAGESIZE)
        self._end = size
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))
        libc = ctypes.CDLL(None, use_errno=True)
        guard = ctypes.c_void_p(address + size)
        if libc.mprotect(guard, ctypes.c_size_t(mmap.PAGESIZE), 0):
            raise OSError(ctypes.get_errno(), "mprotect")

    def hold(self, data: bytes | memoryview) -> memoryview:
        """The same data, where its object ends at the guard: a bytes object with its zero byte."""
        whole = data.obj if isinstance(data, memoryview) else data
        content = bytes(whole) + b"\0"
        start = self._end - len(content)
        self._pages[start : self._end] = content
        return memoryview(self._pages)[start : start + len(data)]


def whole_batches() -> Iterator[bytes]:
    """Batches in which numbers of two bytes stand wherever a batch may be cut."""
    short: list[tuple[str, bytes | None]] = [("", None)] * 65
    several: list[tuple[str, bytes | None]] = [("n" * 70, b"v" * 70), ("name", b"\xff")]
    for headers in (several, short):
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 100_000)
        builder.append(0, 1000, b"k" * 70, b"v" * 70, headers)
        yield bytes(builder.build())


def cut_batches() -> Iterator[bytes]:
    """Each of them cut wherever its records may be cut; also where a record says that it ends
    there, and with what a number may go on with."""
    for whole in whole_batches():
        for end in range(_HEADER, len(whole)):
            for last in (b"", b"\x81", b"\x82", b"\xfe\xff"):
                yield whole[:end] + last


def sealed(data: bytes) -> bytes:
    """With the length and the checksum of what it is."""
    changed = bytearray(data)
    struct.pack_into(">i", changed, _LENGTH_AT, len(changed) - _LENGTH_AT - 4)
    return seal(changed)


def main() -> None:
    faulthandler.enable()
    memory = GuardedMemory()

    def guarded(data: bytes | memoryview) -> DefaultRecordBatchProtocol:
        return DefaultRecordBatch(memory.hold(data))

    setattr(single_records, "batch_class", lambda: guarded)  # noqa: B010 - a type, to mypy
    rejected = 0
    for data in cut_batches():
        (batch,) = decode_batches(fetched(sealed(data)), read_committed=False)
        try:
            batch.decode("topic", 0, 1, 0)
        except CorruptBatch:
            rejected += 1
    for data in whole_batches():
        (batch,) = decode_batches(fetched(data), read_committed=False)
        assert len(batch.decode("topic", 0, 1, 0)) == 1
    sys.stdout.write(f"{rejected} rejected\n")


if __name__ == "__main__":
    main()
