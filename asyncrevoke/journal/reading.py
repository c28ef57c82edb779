"""A whole journal: its rows, and whether any are missing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from asyncrevoke.errors import ConfigError
from asyncrevoke.journal.arrow import RecordBatch, Table, pa, pc
from asyncrevoke.journal.encoding import SCHEMA
from asyncrevoke.journal.schema import Kind
from asyncrevoke.journal.segments import read, sessions

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from asyncrevoke.journal.schema import Content
    from asyncrevoke.journal.segments import Session


class SessionState(NamedTuple):
    """What is known of the log of one session.

    ``facts`` are those of its BEGIN, empty if that is missing. ``ended``: it has its END.
    ``live``: somebody writes it. ``torn`` says what cannot be read at its end: rows that were being
    written when its process died, and that no commit covers. ``missing`` are ranges of row numbers,
    and ``damaged`` sentences about files: of a session that has any, rows are missing that were
    there.
    """

    name: str
    facts: dict[str, Any]
    rows: int
    segments: int
    sealed: int
    began_us: int | None
    last_us: int | None
    ended: bool
    live: bool
    torn: str | None = None
    missing: tuple[tuple[int, int], ...] = ()
    damaged: tuple[str, ...] = ()

    @property
    def strict(self) -> bool:
        """Whether calls were written down before they were made."""
        return self.facts.get("strict") is True

    @property
    def content(self) -> Content | None:
        """What was written of keys and values, if the beginning says it: journals once had hashes
        or nothing."""
        said = self.facts.get("content", True)
        if said is True:
            return "records"
        return said if said in ("batches", "records") else None

    @property
    def gap(self) -> str | None:
        """Why rows are, or may be, missing."""
        if self.damaged:
            return self.damaged[0]
        if self.missing:
            first, last = self.missing[0]
            return f"rows {first} to {last} are missing"
        if not self.facts:
            return "its beginning is missing"
        if not self.ended and not self.live and not self.strict:
            return (
                "it has no end: its process was killed, and calls that ran then are not in the "
                "journal (strict=True would have them)"
            )
        return None


class JournalContent(NamedTuple):
    """All rows, with the columns of ``schema.COLUMNS``, and the state of each session."""

    table: Table
    sessions: tuple[SessionState, ...]


def read_journal(path: Path) -> JournalContent:
    """Read all of a journal's folder, or of one session's. Raises ConfigError if there is none."""
    if not path.is_dir():
        raise ConfigError(f"there is no folder {path}: give the path that Journal(path) was given")
    found = sessions(path)
    if not found:
        raise ConfigError(
            f"{path} holds no journal: give the path that Journal(path) was given, or that of one "
            "of the sessions in it"
        )
    tables: list[Table] = []
    states: list[SessionState] = []
    for session in found:
        state, table = _read_session(session)
        states.append(state)
        tables.append(table)
    return JournalContent(pa.concat_tables(tables), tuple(states))


def _read_session(session: Session) -> tuple[SessionState, Table]:
    # Looked at first: what is written until its end is read then.
    live = session.live
    segments = session.segments()
    batches: list[RecordBatch] = []
    torn: str | None = None
    damaged: list[str] = []
    expected = 1
    for segment in segments:
        if segment.number != expected:
            damaged.append(f"segment {expected:06} is missing")
        expected = segment.number + 1
        content = read(segment)
        batches += content.batches
        if content.torn is not None:
            if segment is segments[-1] and not segment.sealed:
                torn = content.torn
            else:
                damaged.append(f"segment {segment.path.name}: {content.torn}")
    table = pa.Table.from_batches(batches, SCHEMA)
    return _state(session, table, live, torn, damaged), table


def _state(
    session: Session, table: Table, live: bool, torn: str | None, damaged: list[str]
) -> SessionState:
    segments = session.segments()
    begin = table.filter(pc.equal(table["kind"], Kind.BEGIN.value))
    ended = pc.any(pc.equal(table["kind"], Kind.END.value)).as_py() is True
    times = pc.min_max(table["at_us"]).as_py()
    facts: dict[str, Any] = json.loads(begin["facts"][0].as_py()) if begin.num_rows else {}
    return SessionState(
        session.folder.name,
        facts,
        table.num_rows,
        len(segments),
        sum(segment.sealed for segment in segments),
        times["min"],
        times["max"],
        ended,
        live and not ended,
        # Of a live one, the end is being written.
        None if live or ended else torn,
        tuple(_missing(table)),
        tuple(damaged),
    )


def _missing(table: Table) -> Sequence[tuple[int, int]]:
    if not table.num_rows:
        return []
    numbers = pc.array_sort_indices(table["seq"])
    ordered = table["seq"].take(numbers).combine_chunks()
    found = [(0, ordered[0].as_py() - 1)] if ordered[0].as_py() else []
    steps = pc.subtract(ordered.slice(1), ordered.slice(0, len(ordered) - 1))
    gaps = pc.indices_nonzero(pc.greater(steps, 1)).to_pylist()
    found += [(ordered[i].as_py() + 1, ordered[i + 1].as_py() - 1) for i in gaps]
    return found
