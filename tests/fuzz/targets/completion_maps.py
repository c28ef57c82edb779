"""The metadata of commits, which any member of the group, and any tool, may have written.

An input is the committed offset, then the metadata. What is promised: it is a map or none; runs are
in order, apart and beyond the offset; a map that is written again says the same; and a tracker and
a buffer that begin with it deliver each record that it does not name.
"""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from typing import TYPE_CHECKING, ClassVar

from unit.core.partition.test_record_buffer import dense
from wire.frames.response_frames import damage

from asyncrevoke.client.core.partition.completion_map import (
    CompletionMap,
    _checksum,
    _varint,
    decode,
    encode,
)
from asyncrevoke.client.core.partition.offset_tracker import OffsetTracker
from asyncrevoke.client.core.partition.record_buffer import RecordBuffer
from asyncrevoke.client.model import TopicPartition

if TYPE_CHECKING:
    import random

    from asyncrevoke.client.core.partition.completion_map import Run

import binascii

_OFFSET = struct.Struct(">q")
_PARTITION = TopicPartition("orders", 0)
_RECORDS = 64
_NUMBERS = (0, 1, 2, 127, 128, 2**14, 2**31, 2**40, 2**40 + 1, 2**62, 2**63 - 1, 2**70)


class CompletionMaps:
    """What a commit may hold beside its offset."""

    name: ClassVar[str] = "completion_maps"

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def generate(self, random: random.Random) -> bytes:
        """A map, or one with a right checksum and wrong content, or either of them damaged."""
        offset = random.choice((0, 1, 1000, 2**40, 2**63 - 1))
        how = random.randrange(10)
        if how < 5:
            text = encode(offset, self._runs(random, offset), random.choice((-1, 0, 9)), 3000)
            metadata = text.metadata.encode()
        else:
            metadata = self._forged(random, offset)
        if how in (0, 5):
            metadata = damage(metadata, random)
        if how == 1:
            offset += 1 if offset < 2**63 - 1 else -1
        return _OFFSET.pack(offset) + metadata

    def _runs(self, random: random.Random, offset: int) -> list[Run]:
        runs: list[Run] = []
        at = offset
        for _ in range(random.choice((1, 2, 5, 40, 400))):
            first = at + random.choice((0 if not runs else 1, 1, 2, 9, 300, 2**20))
            at = first + random.choice((1, 1, 3, 60, 2**20))
            runs.append((first, at))
        return runs

    def _forged(self, random: random.Random, offset: int) -> bytes:
        kind = random.choice("RBrb?")
        span = random.choice((*_NUMBERS, random.randrange(300)))
        head = _varint(span) + _varint(random.choice(_NUMBERS))
        lengths = b"".join(
            _varint(random.choice((*_NUMBERS, 1, 1, 1))) for _ in range(random.randrange(9))
        )
        bits = random.choice((bytes(span // 8 % 70_000), b"\xff" * (-(-span // 8) % 70_000)))
        body = random.choice((lengths, bits, random.randbytes(20)))
        if kind in "rb":
            deflate = zlib.compressobj(wbits=-15)
            body = deflate.compress(body * random.choice((1, 1, 1000))) + deflate.flush()
            body += random.choice((b"", b"", b"x"))
        check = struct.pack(">I", _checksum(offset, kind, head, body))
        data = binascii.b2a_base64(head + check + body, newline=False).rstrip(b"=")
        return b"ar1" + kind.encode() + data.translate(bytes.maketrans(b"+/", b"-_"))

    def check(self, data: bytes) -> None:
        """Read it, and begin with it."""
        if len(data) < _OFFSET.size:
            return
        (offset,) = _OFFSET.unpack_from(data)
        if offset < 0:
            return
        metadata = data[_OFFSET.size :].decode("utf-8", "surrogateescape")
        found = decode(offset, metadata)
        if found is None:
            self.counts["none"] += 1
            return
        self.counts["maps"] += 1
        at = offset - 1
        for number, (first, end) in enumerate(found.runs):
            assert first > at if number else first >= offset
            assert end > first
            at = end
        again = encode(offset, found.runs, found.leader_epoch, len(metadata) + 16)
        assert again.cut_at is None or decode(offset, again.metadata) is not None
        self._begin(offset, found)

    def _begin(self, offset: int, found: CompletionMap) -> None:
        if offset + _RECORDS > 2**63 - 1:
            return
        buffer = RecordBuffer(_PARTITION, 1, offset, found)
        tracker = OffsetTracker(1, offset, -1, found)
        buffer.append([dense(offset, _RECORDS)])
        finished = {
            each
            for first, end in found.runs
            for each in range(max(first, offset), min(end, offset + _RECORDS))
        }
        left = [each for each in range(offset, offset + _RECORDS) if each not in finished]
        taken = buffer.take(_RECORDS)
        if found.leader_epoch >= 0:
            assert [each.offset for each in taken] == left
        tracker.deliver(taken, buffer.position, buffer.leader_epoch)
        for each in reversed(taken):
            tracker.complete(each.offset)
        assert offset <= tracker.commit_point
        assert tracker.width <= 4096 + _RECORDS
