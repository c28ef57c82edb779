"""Files that commands read, and that another program may have written or damaged.

An input is a byte that chooses the kind of file, then its bytes: a log or a piece of a journal, the
snapshot of offsets in a journal, the journal of a replay, the plan of a replay on Spark, and the
offsets of a Spark query. What is promised: each is read, described as damaged, or rejected with an
error of this library, and nothing else is raised; and a journal of a replay that is rejected keeps
its bytes.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import msgspec
from wire.frames.response_frames import damage

from asyncrevoke.dead_letters.errors import DeadLettersError
from asyncrevoke.dead_letters.replay_journal import ReplayJournal
from asyncrevoke.journal.format.columns import ColumnArrays, RowBatch
from asyncrevoke.journal.format.frames import SegmentHeader, frame, frames, header_frame
from asyncrevoke.journal.segments import read_blob
from asyncrevoke.journal.topic.offsets_snapshot import parse_snapshot
from asyncrevoke.replays.errors import ReplayError
from asyncrevoke.spark.errors import HandoverError
from asyncrevoke.spark.handovers.group_handover import parse_offsets
from asyncrevoke.spark.reading.offsets import OffsetRange
from asyncrevoke.spark.replays.run import _stored_plan

if TYPE_CHECKING:
    import random

_SESSION = "20260101T000000Z-0123abcd"
_DEEP = (900, 1_100, 3_000, 100_000)
_NUMBERS: tuple[object, ...] = (
    0,
    1,
    -1,
    2**31,
    2**63 - 1,
    2**63,
    10**30,
    1.5,
    "1",
    None,
    True,
    [],
    {},
)


class StoredFiles:
    """Damaged and forged files."""

    name: ClassVar[str] = "stored_files"

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._kinds = (self._log, self._snapshot, self._replay_journal, self._plan, self._offsets)

    def generate(self, random: random.Random) -> bytes:
        """A legal file with a forged number or a nested part, or damaged."""
        kind = random.randrange(len(self._kinds))
        data = self._legal(kind, random)
        if random.random() < 0.3:
            data = damage(data, random)
        return bytes((kind,)) + data

    def _legal(self, kind: int, random: random.Random) -> bytes:
        number = random.choice(_NUMBERS)
        part = random.choice((0, 1, number))
        if kind == 0:
            return self._made_log(random)
        if kind == 1:
            offsets = {"g": {"orders": {str(part): number}}}
            return self._nested({"at_us": 5, "groups": offsets}, random)
        if kind == 2:
            lines: list[dict[str, object]] = [
                {"line": "replay", "version": 1, "dead_letters": "dlq"},
                {"line": "sending", "partition": 0, "offsets": [1, number]},
                {
                    "line": random.choice(("sent", "not sent", "replay")),
                    "partition": part,
                    "offset": random.choice((1, number)),
                    "to_topic": "orders",
                    "to_partition": 0,
                    "to_offset": 7,
                },
            ]
            return b"".join(self._nested(line, random, 0.1) + b"\n" for line in lines)
        if kind == 3:
            planned = OffsetRange("orders", 0, 1, 9)._asdict() | {"partition": part}
            return self._nested({"target": "app:consumer", "ranges": [planned]}, random)
        return self._nested({"orders": {str(part): number}}, random)

    def _made_log(self, random: random.Random) -> bytes:
        log = header_frame(SegmentHeader(_SESSION, "billing", 1), 0).data
        rows = random.choice((1, 2, 50))
        columns = ColumnArrays({}, {"kind": (["ATTEMPT"], [rows]), "error": (["no"], [rows])})
        for each in frames(RowBatch(0, rows, columns)):
            log += each.data
        how = random.randrange(4)
        if how == 0:
            payload = b"\x81\xa1x" + b"\x91" * random.choice(_DEEP) + b"\x01"
            log += frame(rows, random.choice((0, 1)), payload).data
        elif how == 1:
            payload = damage(msgspec.msgpack.encode(columns), random)
            log += frame(rows, random.choice((0, rows, 2**16)), payload).data
        return log

    def _nested(self, value: dict[str, object], random: random.Random, share: float = 0.3) -> bytes:
        data = json.dumps(value).encode()
        if random.random() > share:
            return data
        depth = random.choice(_DEEP)
        opening, closing = random.choice(((b"[", b"]"), (b'{"a":', b"}")))
        return b'{"x":' + opening * depth + b"1" + closing * depth + b"," + data[1:]

    def check(self, data: bytes) -> None:
        """Read it."""
        if data:
            self._kinds[data[0] % len(self._kinds)](data[1:])

    def _log(self, data: bytes) -> None:
        content = read_blob(data)
        read = content.damaged is None and content.torn is None
        self.counts["logs read" if read else "logs damaged"] += 1

    def _snapshot(self, data: bytes) -> None:
        found = parse_snapshot(data, "g", "orders")
        self.counts["snapshots"] += found is not None
        offsets: dict[int, int] = {} if found is None else dict(found.offsets)
        for part, offset in offsets.items():
            assert 0 <= part < 2**31
            assert 0 <= offset < 2**62

    def _replay_journal(self, data: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "journal"
            path.write_bytes(data)
            try:
                with ReplayJournal(path, "dlq") as journal:
                    assert journal.highest(0) < 2**63
                    self.counts["journals of replays"] += 1
            except DeadLettersError:
                assert path.read_bytes() == data
                self.counts["rejected journals of replays"] += 1

    def _plan(self, data: bytes) -> None:
        try:
            _, ranges = _stored_plan([data.decode("utf-8", "replace")], "/runs/one")
        except ReplayError:
            self.counts["rejected plans"] += 1
            return
        assert all(isinstance(offset_range.partition, int) for offset_range in ranges)
        self.counts["plans"] += 1

    def _offsets(self, data: bytes) -> None:
        try:
            found = parse_offsets(data.decode("utf-8", "replace"), None, "offsets/0")
        except HandoverError:
            self.counts["rejected offsets"] += 1
            return
        assert all(isinstance(offset, int) for offset in found.offsets.values())
        self.counts["offsets"] += 1
