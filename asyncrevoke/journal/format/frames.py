"""The log of a segment: a sequence of frames.

A frame is a head of 28 bytes and a payload. The head has a marker, the length of the payload, the
number of the first row, the number of rows, the CRC-32C of the payload, and the CRC-32C of the
preceding bytes of the head. So each change of a byte is detected. If a process is killed while it
writes, the last frame is shorter than its head says, and the frames before it are complete.

The payload of the first frame, which has no rows, is a :class:`SegmentHeader` with the digest
(SHA-256) of the log before it, so that segments form a chain. The payload of each other frame is a
batch of rows.
"""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

import msgspec

from asyncrevoke.client.protocol.dependencies.checksum import crc32c
from asyncrevoke.journal.format.columns import RowBatch, decoded, encoded, split
from asyncrevoke.journal.format.schema import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

MARKER: Final = b"arj\x02"
# Limits for writing. A batch of a single row may be longer.
_MOST_ROWS: Final = 16_384
_MOST_BYTES: Final = 400_000
# Limits for reading. A payload of this size decodes to a few tens of megabytes.
_LARGEST: Final = 2**20
_ROWS_OF_ANY: Final = 2**16
_LAST_ROW: Final = 2**62

_HEAD = struct.Struct("<4sIQII")
_CHECK = struct.Struct("<I")
_SIZE = _HEAD.size + _CHECK.size
_STEP = 4096


class SegmentHeader(msgspec.Struct, frozen=True):
    """The beginning of a log. ``previous`` is the digest of the log before it, None for the first
    segment."""

    session: str
    group: str | None
    segment: int
    previous: bytes | None = None
    version: int = VERSION


class Frame(NamedTuple):
    """The bytes of a frame, with the number of its first row and its number of rows."""

    first: int
    rows: int
    data: bytes


_decode_header = msgspec.msgpack.Decoder(SegmentHeader).decode


def header_frame(header: SegmentHeader, first: int) -> Frame:
    """The first frame of a log. ``first`` is the number of the log's first row."""
    return frame(first, 0, msgspec.msgpack.encode(header))


def frames(batch: RowBatch) -> Iterator[Frame]:
    """A batch as one frame, or as several frames of limited size."""
    if batch.rows <= _MOST_ROWS:
        payload = encoded(batch.columns)
        if len(payload) <= _MOST_BYTES or batch.rows == 1:
            yield frame(batch.first, batch.rows, payload)
            return
    for half in split(batch):
        yield from frames(half)


def frame(first: int, rows: int, payload: bytes) -> Frame:
    """The frame of an encoded batch of rows. ``first`` is the number of the first row."""
    head = _HEAD.pack(MARKER, len(payload), first, rows, crc32c(payload))
    return Frame(first, rows, b"".join((head, _CHECK.pack(crc32c(head)), payload)))


class FrameReader:
    """Reads the batches of a log, one at a time.

    After the last batch, ``header`` is the header of the log, None if it cannot be read, and
    ``digest`` that of all complete frames. ``torn`` says that the last frame is incomplete, as
    after a kill. ``damaged`` describes other damage.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self._at = 0
        self._rows = 0
        self.header: SegmentHeader | None = None
        # The expected number of the next row.
        self.next_row: int | None = None
        self.torn: str | None = None
        self.damaged: str | None = None

    @property
    def digest(self) -> bytes:
        """The SHA-256 of all complete frames."""
        return self._digest.digest()

    def batches(self) -> Iterator[RowBatch]:
        """All complete batches, in the order of the log."""
        while (found := self._next()) is not None:
            first, rows, payload = found
            try:
                if rows:
                    columns = decoded(payload, rows)
                else:
                    self._begin(_decode_header(payload), first)
                    continue
            except (ValueError, RecursionError) as error:
                self._damage(f"the batch at row {first} cannot be read: {error}")
                continue
            if self.header is None:
                self._damage("it does not begin with a header")
            elif first != self.next_row:
                self._damage(f"row {first} follows instead of row {self.next_row}")
            self.next_row = first + rows
            yield RowBatch(first, rows, columns)
        if self.header is None and self.torn is None and self.damaged is None:
            self.torn = "it is empty"

    def _begin(self, header: SegmentHeader, first: int) -> None:
        if self.header is not None:
            self._damage("it has two headers")
        elif header.version != VERSION:
            self._damage(f"it has version {header.version}, and only version {VERSION} can be read")
        self.header, self.next_row = header, first

    def _damage(self, what: str) -> None:
        self.damaged = self.damaged or what

    def _next(self) -> tuple[int, int, bytes] | None:
        """The next complete frame. Skips damaged frames."""
        while (head := self._file.read(_SIZE)) != b"":
            where = self._at
            if len(head) < _SIZE:
                self._end_is_torn()
                break
            marker, length, first, rows, check = _HEAD.unpack_from(head)
            (own,) = _CHECK.unpack_from(head, _HEAD.size)
            if marker != MARKER or own != crc32c(head[: _HEAD.size]):
                if self._is_empty_from(head):
                    self._end_is_torn()
                    break
                self._damage(f"the head of the batch at byte {where} has changed (CRC-32C)")
            elif length > _LARGEST or self._is_beyond(length, rows) or first > _LAST_ROW:
                self._damage(f"the batch at byte {where} is larger than a journal writes")
            else:
                payload = self._file.read(length)
                if len(payload) < length:
                    self._end_is_torn()
                    break
                if check == crc32c(payload):
                    self._digest.update(head)
                    self._digest.update(payload)
                    self._at = where + _SIZE + length
                    self._rows += rows
                    return first, rows, payload
                self._damage(
                    f"rows {first} to {first + max(rows, 1) - 1} were changed after they were "
                    f"written (CRC-32C of the batch at byte {where})"
                )
            if not self._seek_marker(where + 1):
                break
        return None

    def _is_beyond(self, length: int, rows: int) -> bool:
        """Whether a frame declares more rows than a journal writes. A row takes at least two bytes,
        unless all rows of a batch are equal."""
        so_far = self._rows + rows
        return rows > _ROWS_OF_ANY or so_far > self._at + length + _ROWS_OF_ANY

    def _end_is_torn(self) -> None:
        self.torn = f"its end is torn: the batch at byte {self._at} was being written"

    def _is_empty_from(self, head: bytes) -> bool:
        """Whether only zeros follow: allocated space that was never written."""
        while head:
            if head.count(0) != len(head):
                return False
            head = self._file.read(2**20)
        return True

    def _seek_marker(self, begin: int) -> bool:
        """Go to the next marker. False if there is none."""
        self._file.seek(begin)
        kept = b""
        while piece := self._file.read(_STEP):
            kept += piece
            found = kept.find(MARKER)
            if found >= 0:
                self._at = begin + found
                self._file.seek(self._at)
                return True
            begin += max(0, len(kept) - len(MARKER) + 1)
            kept = kept[-len(MARKER) + 1 :]
        return False
