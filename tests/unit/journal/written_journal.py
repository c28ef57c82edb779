"""A journal made by hand: a clean run of two members, and what a test changes of it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from unit.journal.sealed_again import seal_rows

from asyncrevoke.audit.audited_group import AuditSettings
from asyncrevoke.audit.local_engine import audit
from asyncrevoke.audit.offsets import ALL_USED, Bounds, Range, UnusedHashes
from asyncrevoke.audit.topic.batch_reader import BATCHES
from asyncrevoke.client.model import Record
from asyncrevoke.journal.format.arrow import pa
from asyncrevoke.journal.format.hashing import key_hash, key_hashes, record_hashes
from asyncrevoke.journal.format.schema import CallOutcome, RowKind
from asyncrevoke.journal.reading import read_journal
from asyncrevoke.journal.recording.encoding import rows_of
from asyncrevoke.journal.recording.entries import (
    Attempts,
    Entry,
    Fact,
    Fetched,
    ReceivedBatches,
    Results,
    Starts,
)
from asyncrevoke.journal.recording.log_file import LogFile
from asyncrevoke.journal.segments import JournalSession, read

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from asyncrevoke.audit.results.audit_result import AuditResult
    from asyncrevoke.journal.format.schema import Content

TOPIC = "orders"
RECORDS = 100
START = 1_800_000_000_000_000
MS = 1000
STEP = 10 * MS


# The sessions of a clean run.
A = "20270115T080000Z-0000000a"
B = "20270115T080000Z-0000000b"


def session_id(name: str, number: int = 0) -> str:
    """That of member ``"a"`` or ``"b"`` in the run with this number."""
    return f"20270115T08{number // 60:02}{number % 60:02}Z-0000000{name}"


def of_run(sessions: Sequence[str], number: int) -> bool:
    """Whether the first of these is of the run with this number."""
    return bool(sessions) and sessions[0][:-1] == session_id("", number)


def record(offset: int, value: bytes | None = None, partition: int = 0) -> Record:
    """One of five keys."""
    key = b"key-%d" % (offset % 5)
    return Record(TOPIC, partition, offset, START // 1000, 0, key, value or b"value-%d" % offset)


class Log(NamedTuple):
    """One partition of a topic; ``missing`` offsets are holes."""

    missing: frozenset[int] = frozenset()
    lo: int = 0
    hi: int = RECORDS

    def records(self, partition: int) -> list[Record]:
        """What it holds."""
        offsets = range(self.lo, self.hi)
        return [record(o, partition=partition) for o in offsets if o not in self.missing]

    def batches(self, partition: int) -> list[Fetched]:
        """The same in batches of two offsets, as they come."""
        return [
            Fetched(TOPIC, partition, first, first + 1, count, 1000 + first, 0)
            for first in range(self.lo, self.hi, 2)
            if (count := len({first, first + 1} - self.missing))
        ]


class JournalledTopic:
    """The topic that they read, in memory."""

    compacted = False
    has_batches = True

    def __init__(self, *missing: int, lo: int = 0, hi: int = RECORDS) -> None:
        self.logs = {0: Log(frozenset(missing), lo, hi)}
        self.asked: list[Range] = []
        # Whether compaction has written into headers.
        self.rewritten = 0

    @property
    def bounds(self) -> dict[int, Bounds]:
        """Where each log starts and ends."""
        return {number: Bounds(log.lo, log.hi) for number, log in self.logs.items()}

    def batches(self, ranges: Sequence[Range], take: Callable[[Any], None]) -> None:
        for offset_range in ranges:
            rows = [
                (b.partition, b.first, b.last + 1, b.records, b.checksum, self.rewritten)
                for b in self.logs[offset_range.partition].batches(offset_range.partition)
                if b.first < offset_range.hi and b.last >= offset_range.lo
            ]
            columns = zip(*rows, strict=True) if rows else [()] * len(BATCHES)
            take(pa.RecordBatch.from_pydict(dict(zip(BATCHES, map(list, columns), strict=True))))

    async def read(
        self,
        ranges: Sequence[Range],
        take: Callable[[Any], None],
        take_headers: Callable[[Any], None] | None = None,
        unused: UnusedHashes = ALL_USED,
    ) -> None:
        self.asked += ranges
        if take_headers is not None:
            self.batches(ranges, take_headers)
        for offset_range in ranges:
            records = self.logs[offset_range.partition].records(offset_range.partition)
            found = [r for r in records if offset_range.lo <= r.offset < offset_range.hi]
            keys, values = [r.key for r in found], [r.value for r in found]
            hashes = pa.array(record_hashes(keys, values, key_hashes(keys)), pa.uint64())
            of_keys = [None if key is None else key_hash(key) for key in keys]
            if offset_range.partition in unused.of_records:
                hashes = pa.nulls(len(found), pa.uint64())
                if offset_range.partition in unused.of_keys:
                    of_keys = [None] * len(found)
            take(
                pa.RecordBatch.from_pydict(
                    {
                        "part": pa.array([r.partition for r in found], pa.int32()),
                        "off": pa.array([r.offset for r in found], pa.int64()),
                        "timestamp_us": pa.array([r.timestamp * 1000 for r in found], pa.int64()),
                        "key_hash": pa.array(of_keys, pa.uint64()).view(pa.int64()),
                        "record_hash": hashes.view(pa.int64()),
                    }
                )
            )


class JournalMember:
    """One session; ``rows`` may be changed before it is written."""

    def __init__(
        self,
        name: str,
        first: int,
        last: int,
        *,
        strict: bool = False,
        content: Content | None = "records",
        partition: int = 0,
        number: int = 0,
    ) -> None:
        self.name = name
        self.partition = partition
        self.folder = session_id(name, number)
        self.strict = strict
        self.content: Content | None = content
        begin, end = START + first * STEP - MS, START + last * STEP + STEP
        self.begin: list[Fact] = [
            Fact(RowKind.BEGIN, begin),
            Fact(RowKind.ASSIGN, begin, TOPIC, partition, first, name, 1 + (first > 0)),
            Fact(RowKind.TOPIC, begin, TOPIC, facts='{"handler": "bill", "order_by": "key"}'),
        ]
        self.attempts = {
            offset: Attempts([self.record(offset)], at(offset), at(offset) + 5 * MS)
            for offset in range(first, last)
        }
        self.more: list[Attempts | Starts | Results | Fact] = []
        # What came when it began: all that the topic had.
        self.fetched = [b._replace(came=begin) for b in Log().batches(partition)]
        self.commits = [self.commit(last, end - 3 * MS)]
        self.end: list[Fact] = [
            Fact(RowKind.REVOKE_BEGIN, end - 4 * MS, TOPIC, partition, None, name, 1 + (first > 0)),
            Fact(RowKind.RELEASED, end - 2 * MS, TOPIC, partition, None, name, 1 + (first > 0)),
            Fact(RowKind.END, end - 2 * MS),
        ]

    def record(self, offset: int, value: bytes | None = None) -> Record:
        """Of its partition."""
        return record(offset, value, self.partition)

    def attempt(self, offset: int, started: int, ended: int) -> Attempts:
        """One more, that went well."""
        return Attempts([self.record(offset)], started, ended)

    def commit(self, offset: int, when: int, generation: int | None = None) -> Fact:
        own = 1 if self.name == "a" else 2
        return self.fact(RowKind.COMMIT, when, offset, generation or own)._replace(
            outcome=CallOutcome.OK
        )

    def fact(self, kind: RowKind, when: int, offset: int | None, generation: int) -> Fact:
        """One more."""
        return Fact(kind, when, TOPIC, self.partition, offset, self.name, generation)

    def rows(self) -> list[Entry]:
        middle = sorted(
            [*self.attempts.values(), *self.more, *self.commits, *self.end[:-1]],
            key=lambda entry: entry.at,
        )
        known = self.begin[0]._replace(
            facts=json.dumps(facts(strict=self.strict, content=self.content))
        )
        notes = (
            [ReceivedBatches(self.fetched, self.begin[0].at)]
            if self.content == "batches" and self.fetched
            else []
        )
        return [known, *self.begin[1:], *notes, *middle, *self.end[-1:]]

    def write(self, folder: Path) -> None:
        session = JournalSession(folder / self.folder)
        session.folder.mkdir(parents=True)
        log = LogFile(
            session,
            "billing",
            segment_bytes=2**20,
            segment_seconds=60,
            hashed=self.content == "records",
        )
        log.take(numbered(self.rows()))
        log.close()


def facts(*, strict: bool = False, content: Content | None = "records") -> dict[str, object]:
    """Of a BEGIN."""
    return {
        "group": "billing",
        "isolation_level": "read_committed",
        "commit_mode": "processed",
        "order_by": "key",
        "null_keys": "ordered",
        "revoke_budget": 2.0,
        "strict": strict,
        "content": content,
    }


def at(offset: int) -> int:
    """When its handler is called."""
    return START + offset * STEP


def numbered(entries: Sequence[Entry]) -> deque[Any]:
    """A queue, as a log takes it."""
    from collections import deque

    queue: deque[Any] = deque()
    seq = 0
    for entry in entries:
        queue.append((seq, entry))
        seq += rows_of(entry)
    return queue


def clean_run(partition: int = 0, number: int = 0) -> tuple[JournalMember, JournalMember]:
    """Two members, one after the other."""
    return (
        JournalMember("a", 0, 50, partition=partition, number=number),
        JournalMember("b", 50, RECORDS, partition=partition, number=number),
    )


def audited(
    folder: Path,
    *members: JournalMember,
    topic: JournalledTopic | None = None,
    settings: AuditSettings | None = None,
) -> AuditResult:
    """Write them, and audit."""
    for member in members:
        member.write(folder)
    return asyncio.run(
        audit(
            read_journal(folder),
            topic or JournalledTopic(),
            TOPIC,
            settings=settings or AuditSettings(),
        )
    )


def found(result: AuditResult) -> list[tuple[str, int | None, int | None]]:
    """What was found, and where."""
    return [(str(a.kind), a.offset_lo, a.offset_hi) for a in result.anomalies]


def lost_rows(session: Path, first: int, last: int) -> None:
    """Seal a session's log, without these rows."""
    (segment,) = JournalSession(session).segments()
    content = read(segment)
    rows = pa.Table.from_batches(content.batches).to_pylist()
    kept = [row for n, row in enumerate(rows) if not first <= n <= last]
    seal_rows(segment.path.with_suffix(".parquet"), kept, content.about)
    segment.path.unlink()
