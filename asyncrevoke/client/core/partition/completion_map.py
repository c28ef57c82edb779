"""One completion map: encodes the completed records beyond the commit point as the metadata of a
commit.

A committed offset covers all records before it. Those completed beyond it are a list of *runs*, in
offsets from the committed one; offsets without a record count as completed::

    "ar1" kind base64url( varint(span) varint(leader epoch + 1) crc32 body )

The span ends the last run. Kind R alternates the lengths of incomplete and of completed runs as
varints; B has one bit per offset; r and b are the same, deflated. The shortest is written. Runs
that do not fit are cut off at the end.

The checksum covers the committed offset: metadata that a tool has copied to another offset is
ignored. The leader epoch is the highest of the delivered records: a record that a later leader
wrote was not completed.

A full stop at the end means nothing. It makes the metadata of a transaction differ from what was
committed before, if the transaction changes neither the offset nor the map.
"""

from __future__ import annotations

import binascii
import re
import struct
import zlib
from bisect import bisect_right
from itertools import accumulate, islice
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# The first offset of a run, and the offset after its last one.
Run: TypeAlias = tuple[int, int]

_VERSION = "ar1"
_STOP = "."
_PREFIX = len(_VERSION) + 1
# More characters than any broker stores.
LONGEST = 1 << 16
_WIDEST = 1 << 40
_MOST_BITS = 1 << 19
_MOST_LENGTHS = 1 << 18
# Alternating bits: no sequence that is not periodic has more runs in a character.
_RUNS_PER_CHARACTER = 3
_MOST_TRIALS = 6
# Shorter bodies are not deflated.
_DEFLATE_BEYOND = 256
_CRC = struct.Struct(">I")
_DONE = re.compile("1+")
_WRITTEN = re.compile(r"ar\d")
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_", b"+/")


class CompletionMap(NamedTuple):
    """Completed runs in order, with gaps between them; ``leader_epoch``: see the module."""

    runs: tuple[Run, ...]
    leader_epoch: int

    @property
    def offsets(self) -> int:
        """How many offsets are completed, those without a record included."""
        return sum(end - first for first, end in self.runs)

    @property
    def end(self) -> int:
        """The offset after the last completed one."""
        return self.runs[-1][1]

    def beyond(self, offset: int) -> CompletionMap | None:
        """The part from ``offset`` on, None if it is empty."""
        runs = tuple((max(first, offset), end) for first, end in self.runs if end > offset)
        return CompletionMap(runs, self.leader_epoch) if runs else None

    def before(self, offset: int) -> CompletionMap | None:
        """The part before ``offset``, None if it is empty."""
        runs = tuple((first, min(end, offset)) for first, end in self.runs if first < offset)
        return CompletionMap(runs, self.leader_epoch) if runs else None

    def cut(self, offset: int, leader_epoch: int) -> CompletionMap | None:
        """The part that a truncation at ``offset`` leaves, None if it is empty. ``leader_epoch`` is
        the last one that both logs have."""
        kept = self.before(offset)
        if kept is None:
            return None
        return CompletionMap(kept.runs, min(kept.leader_epoch, leader_epoch))


class EncodedMap(NamedTuple):
    """``metadata`` is empty if no run is encoded. ``cut_at`` is the first completed offset that did
    not fit, None if all did."""

    metadata: str
    cut_at: int | None


def encode(offset: int, runs: Iterable[Run], leader_epoch: int, limit: int) -> EncodedMap:
    """The metadata, of at most ``limit`` characters, for a commit of ``offset``."""
    most = _RUNS_PER_CHARACTER * limit
    known = list(islice(runs, most + 1))
    if not known:
        return EncodedMap("", None)
    considered = [run for run in known[:most] if run[1] - offset < _WIDEST]
    kind, body, count = _best(offset, considered, limit)
    cut_at = known[count][0] if count < len(known) else None
    if not count:
        return EncodedMap("", cut_at)
    head = _varint(considered[count - 1][1] - offset) + _varint(leader_epoch + 1)
    data = head + _CRC.pack(_checksum(offset, kind, head, body)) + body
    text = binascii.b2a_base64(data, newline=False).rstrip(b"=").translate(_TO_URL)
    return EncodedMap(_VERSION + kind + text.decode(), cut_at)


def lowest_offset_that_fits(offset: int, runs: Sequence[Run], limit: int) -> int:
    """The lowest commit offset, from ``offset`` on, beside which all ``runs`` beyond it fit, also
    if some of them are missing when the commit is made. Runs may touch."""
    if not runs:
        return offset
    end = runs[-1][1]
    room = _room(offset, end, limit)
    lengths = end
    left = room
    for number in reversed(range(len(runs))):
        before = runs[number - 1][1] if number else offset
        first, stop = runs[number]
        left -= len(_varint(first - before)) + len(_varint(stop - first))
        if left < 0:
            break
        lengths = before
    bits = end - min(max(room, 0) * 8, _MOST_BITS)
    return max(offset, min(lengths, bits))


def is_written_map(metadata: str) -> bool:
    """Whether a member has written this as a completion map, perhaps in a later version."""
    return _WRITTEN.match(metadata) is not None


def without_stop(metadata: str) -> str:
    """The metadata without a full stop at the end, which means nothing."""
    return metadata.removesuffix(_STOP)


def other_metadata(metadata: str) -> str:
    """Other metadata that means the same: with a full stop at the end, or without it."""
    return metadata[:-1] if metadata.endswith(_STOP) else metadata + _STOP


def decode(offset: int, metadata: str) -> CompletionMap | None:
    """The runs beyond a committed offset, None if ``metadata`` (any string) is not a map for it."""
    metadata = without_stop(metadata)
    if not metadata.startswith(_VERSION) or not _PREFIX < len(metadata) <= LONGEST:
        return None
    try:
        runs, leader_epoch = _decode(offset, metadata)
    except (ValueError, zlib.error):
        return None
    return CompletionMap(tuple(runs), leader_epoch) if runs else None


def merge_adjacent(runs: Iterable[Run]) -> Iterator[Run]:
    """Join runs that touch or overlap; ``runs`` are in order."""
    current: Run | None = None
    for first, end in runs:
        if current is None:
            current = first, end
        elif first <= current[1]:
            current = current[0], max(current[1], end)
        else:
            yield current
            current = first, end
    if current is not None:
        yield current


# --- writing -------------------------------------------------------------------------------------


def _best(offset: int, runs: Sequence[Run], limit: int) -> tuple[str, bytes, int]:
    """The kind, the body and the run count of the shortest encoding among those with most runs."""
    if not runs:
        return "R", b"", 0
    room = _room(offset, runs[-1][1], limit)
    if room <= 0:
        return "R", b"", 0
    lengths = _lengths(offset, runs)
    sizes = list(accumulate(map(len, lengths)))
    count = bisect_right(sizes, room)
    found = [("R", b"".join(lengths[:count]), count)]
    ends = [end - offset for _, end in runs]
    if sizes[-1] * 8 > ends[0]:
        count = bisect_right(ends, min(room * 8, _MOST_BITS))
        found.append(("B", _bits(offset, runs[:count]), count))
    if sizes[-1] > _DEFLATE_BEYOND:
        found.append(("r", *_deflated(b"".join(lengths), sizes, room)))
        count = bisect_right(ends, _MOST_BITS)
        if count:
            sizes = [-(-end // 8) for end in ends[:count]]
            found.append(("b", *_deflated(_bits(offset, runs[:count]), sizes, room)))
    return max(found, key=lambda candidate: (candidate[2], -len(candidate[1])))


def _room(offset: int, end: int, limit: int) -> int:
    """How many bytes the body of a map up to ``end`` may have."""
    head = len(_varint(end - offset)) + len(_varint(1 << 31)) + _CRC.size
    return (limit - _PREFIX) * 3 // 4 - head


def _lengths(offset: int, runs: Sequence[Run]) -> list[bytes]:
    written: list[bytes] = []
    at = offset
    for first, end in runs:
        gap, length = first - at, end - first
        if gap < 128 and length < 128:
            written.append(bytes((gap, length)))
        else:
            written.append(_varint(gap) + _varint(length))
        at = end
    return written


def _bits(offset: int, runs: Sequence[Run]) -> bytes:
    """The first bit is the lowest one of the first byte."""
    if not runs:
        return b""
    span = runs[-1][1] - offset
    marks = bytearray(b"0") * span
    for first, end in runs:
        marks[first - offset : end - offset] = b"1" * (end - first)
    marks.reverse()
    return int(bytes(marks), 2).to_bytes(-(-span // 8), "little")


def _deflated(whole: bytes, sizes: Sequence[int], room: int) -> tuple[bytes, int]:
    """The runs that fit; ``sizes[n]`` is where run ``n`` ends in ``whole``."""
    trial = len(sizes)
    for _ in range(_MOST_TRIALS):
        body = _deflate(whole[: sizes[trial - 1]])
        if len(body) <= room:
            return body, trial
        # Assume equal density, and take a little less so that the next trial fits.
        trial = trial * room // len(body) * 31 // 32
        if not trial:
            break
    return b"", 0


def _deflate(data: bytes) -> bytes:
    deflate = zlib.compressobj(wbits=-15)
    return deflate.compress(data) + deflate.flush()


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 127:
        written.append(number & 127 | 128)
        number >>= 7
    written.append(number)
    return bytes(written)


def _checksum(offset: int, kind: str, head: bytes, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(b"%d %s" % (offset, kind.encode()) + head))


# --- reading -------------------------------------------------------------------------------------


def _decode(offset: int, metadata: str) -> tuple[list[Run], int]:
    kind, text = metadata[_PREFIX - 1], metadata[_PREFIX:].encode("ascii").translate(_FROM_URL)
    data = binascii.a2b_base64(text + b"=" * (-len(text) % 4), strict_mode=True)
    span, at = _read_varint(data, 0)
    epoch, at = _read_varint(data, at)
    head, body = data[:at], data[at + _CRC.size :]
    if data[at : at + _CRC.size] != _CRC.pack(_checksum(offset, kind, head, body)):
        raise ValueError("the checksum does not match")
    if not 0 < span <= _WIDEST:
        raise ValueError(f"a span of {span}")
    if kind in "rb":
        inflate = zlib.decompressobj(wbits=-15)
        body = inflate.decompress(body, _MOST_LENGTHS)
        if not inflate.eof or inflate.unused_data:
            raise ValueError("the deflated body has the wrong length")
    if kind in "Rr":
        return _runs_of_lengths(offset, span, body), epoch - 1
    if kind in "Bb":
        return _runs_of_bits(offset, span, body), epoch - 1
    raise ValueError(f"no kind is {kind!r}")


def _runs_of_lengths(offset: int, span: int, body: bytes) -> list[Run]:
    runs: list[Run] = []
    reached = at = 0
    while at < len(body):
        gap, at = _read_varint(body, at)
        length, at = _read_varint(body, at)
        if not length or not (gap or not runs):
            raise ValueError("an empty run")
        runs.append((offset + reached + gap, offset + reached + gap + length))
        reached += gap + length
    if reached != span:
        raise ValueError(f"runs up to {reached} in a span of {span}")
    return runs


def _runs_of_bits(offset: int, span: int, body: bytes) -> list[Run]:
    if span > _MOST_BITS or len(body) != -(-span // 8):
        raise ValueError(f"{len(body)} bytes of bits for a span of {span}")
    # Bits beyond the span belong to runs that were cut off.
    marks = format(int.from_bytes(body, "little"), "b").zfill(span)[::-1][:span]
    if not marks.endswith("1"):
        raise ValueError("the span ends with an incomplete offset")
    return [(offset + run.start(), offset + run.end()) for run in _DONE.finditer(marks)]


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 63, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
    raise ValueError("a number without an end")
