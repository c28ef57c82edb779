"""The journals of one run as rows that a test can change, and the topic that it read."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from unit.journal.sealed_again import seal_rows
from unit.journal.written_journal import TOPIC, JournalledTopic, Log, facts

from asyncrevoke.journal.format.columns import TYPES, ColumnArrays, RowBatch
from asyncrevoke.journal.format.frames import SegmentHeader, frames, header_frame
from asyncrevoke.journal.format.schema import TERMINAL, RowKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from asyncrevoke.journal.format.schema import Content

Row: TypeAlias = dict[str, Any]
GROUP = "billing"
# Small, so that a bit that has changed leaves most of the rows.
_ROWS_OF_BATCH = 8


@dataclass
class Session:
    """One session: its rows in order, and how it is written."""

    name: str
    rows: list[Row] = field(default_factory=list[Row])
    # Numbers of rows that are not written.
    missing: range = range(0)
    as_parquet: bool = False
    # Which byte of its log is changed, as a part of all bytes.
    flipped: float | None = None

    @property
    def ended(self) -> bool:
        """Whether it has an END row."""
        return bool(self.rows[-1]["kind"] == RowKind.END)

    def attempts(self, partition: int | None = None) -> list[Row]:
        """The calls that completed a record."""
        return [
            row
            for row in self.rows
            if row["kind"] == RowKind.ATTEMPT
            and row["outcome"] in TERMINAL
            and partition in (None, row["partition"])
        ]

    def commits(self, partition: int) -> list[Row]:
        """The accepted commits of a partition."""
        return [
            row
            for row in self.rows
            if row["kind"] == RowKind.COMMIT
            and row["outcome"] == "ok"
            and row["partition"] == partition
        ]

    def add(self, row: Row) -> None:
        """Add a row after all rows that are not later."""
        at = next(
            (n for n, each in enumerate(self.rows) if each["at_us"] > row["at_us"]),
            len(self.rows),
        )
        self.rows.insert(at, row)
        if self.rows[-2]["kind"] == RowKind.END and at == len(self.rows) - 1:
            self.rows[-1], self.rows[-2] = self.rows[-2], self.rows[-1]
            self.rows[-1]["at_us"] = row["at_us"]

    def sort(self) -> None:
        """Order the rows by time."""
        first, *rest = self.rows
        rest.sort(key=lambda row: (row["kind"] == RowKind.END, row["at_us"]))
        self.rows = [first, *rest]

    def write(self, folder: Path) -> None:
        """Write one segment."""
        own = folder / self.name
        own.mkdir(parents=True)
        if self.rows[-1]["kind"] == RowKind.END:
            self.rows[-1]["facts"] = json.dumps({"rows": len(self.rows)})
        numbers = [n for n in range(len(self.rows)) if n not in self.missing]
        if self.as_parquet:
            rows = [
                {**self.rows[n], "seq": n, "session_id": self.name, "group": GROUP} for n in numbers
            ]
            seal_rows(own / "000001.parquet", rows)
            return
        data = bytearray(self._log(numbers))
        if self.flipped is not None:
            place = int(self.flipped * len(data))
            data[place] ^= 1 << place % 8
        (own / "000001.log").write_bytes(data)

    def _log(self, numbers: Sequence[int]) -> bytes:
        parts = [header_frame(SegmentHeader(self.name, GROUP, 1), 0).data]
        for first in range(0, len(numbers), _ROWS_OF_BATCH):
            some = numbers[first : first + _ROWS_OF_BATCH]
            assert some[-1] - some[0] == len(some) - 1, "rows of a log are cut by batches"
            batch = RowBatch(some[0], len(some), _columns([self.rows[n] for n in some]))
            parts += [frame.data for frame in frames(batch)]
        return b"".join(parts)


def _columns(rows: Sequence[Row]) -> ColumnArrays:
    found: dict[str, Any] = {}
    for name in TYPES:
        values = [row.get(name) for row in rows]
        if any(value is not None for value in values):
            found[name] = (values, [1] * len(values))
    return ColumnArrays({}, found)


@dataclass
class JournalRun:
    """The sessions of one run, the log of each partition, and what the group has committed."""

    sessions: dict[str, Session]
    logs: dict[int, Log]
    committed: dict[int, int]
    content: Content | None

    def copy(self) -> JournalRun:
        """One that can be changed."""
        return copy.deepcopy(self)

    def done(self) -> dict[tuple[int, int], int]:
        """When each record was first completed."""
        found: dict[tuple[int, int], int] = {}
        for session in self.sessions.values():
            for row in session.attempts():
                place = row["partition"], row["offset"]
                found[place] = min(found.get(place, row["at_us"]), row["at_us"])
        return found

    def attempts(self, partition: int, offset: int) -> Iterator[tuple[Session, Row]]:
        """All calls for a record, and what was written before them."""
        for session in self.sessions.values():
            for row in session.rows:
                if (row.get("partition"), row.get("offset")) == (partition, offset) and row[
                    "kind"
                ] in (RowKind.ATTEMPT, RowKind.START):
                    yield session, row

    def covered(self, partition: int, offset: int) -> int | None:
        """When a commit beyond this record was first accepted."""
        return min(
            (
                row["at_us"]
                for session in self.sessions.values()
                for row in session.commits(partition)
                if row["offset"] > offset
            ),
            default=None,
        )

    def write(self, folder: Path) -> None:
        """Write all sessions."""
        for session in self.sessions.values():
            session.write(folder)


def topic_of(runs: Sequence[JournalRun]) -> JournalledTopic:
    """The topic that has the partitions of all of them."""
    topic = JournalledTopic()
    topic.logs = {part: log for run in runs for part, log in run.logs.items()}
    return topic


def beginning(at: int, *, strict: bool, content: Content | None) -> Row:
    """A BEGIN row."""
    known = facts(strict=strict, content=content)
    return {"kind": RowKind.BEGIN, "at_us": at, "facts": json.dumps(known)}


def row(kind: RowKind, at: int, partition: int, offset: int | None = None, **more: Any) -> Row:
    """A row about a partition."""
    return {
        "kind": kind,
        "at_us": at,
        "topic": TOPIC,
        "partition": partition,
        "offset": offset,
        **more,
    }
