"""Reads all sessions of a journal, and finds missing and damaged rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.journal.chain import SegmentChain
from asyncrevoke.journal.errors import DamagedJournalError
from asyncrevoke.journal.format.arrow import RecordBatch, Table, pa, pc
from asyncrevoke.journal.format.rows import COMPACT_SCHEMA, RowMemory, with_texts
from asyncrevoke.journal.format.schema import Content, RowKind, facts_of
from asyncrevoke.journal.segments import (
    JournalSession,
    Segment,
    read,
    sessions,
    sessions_without_rows,
)
from asyncrevoke.journal.session_id import parse_session_id

if TYPE_CHECKING:
    from pathlib import Path


# Limit for ranges of missing row numbers. Further ranges are merged into the last one.
_MOST_RANGES = 10_000


class SessionState(NamedTuple):
    """The state of one session's log.

    ``facts`` are those of the BEGIN row, empty if it is missing. ``ended``: the END row exists.
    ``live``: a process is writing the log. ``torn`` describes an incomplete end of the log: rows
    that a killed process was writing, and that no commit covers. ``missing`` has ranges of row
    numbers, ``damaged`` a sentence for each damage of a file: rows of such a session were lost or
    changed. ``intact_us`` is the time of the last row before the first missing one.

    A session without rows, ``missing`` and ``damaged`` was killed before its BEGIN row was on disk,
    so it handled no record.
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
    intact_us: int | None = None

    @property
    def begun(self) -> bool:
        """Whether the session can have handled a record."""
        return bool(self.rows or self.missing or self.damaged)

    @property
    def strict(self) -> bool:
        """Whether each call of a handler has a START row that was on disk before the call."""
        return self.facts.get("strict") is True

    @property
    def content(self) -> Content | None:
        """What the journal stores about keys and values."""
        written = self.facts.get("content")
        return written if written in ("batches", "records") else None

    @property
    def gap(self) -> str | None:
        """Why rows are or may be missing; None if all rows exist."""
        if self.damaged:
            return self.damaged[0]
        if self.missing:
            first, last = self.missing[0]
            return f"rows {first} to {last} are missing"
        if not self.begun:
            return None
        if not self.facts:
            return "its beginning is missing"
        if not self.ended and not self.live and not self.strict:
            return (
                "it has no end: its process was killed, and the journal does not have calls that "
                "were running (with strict=True it would)"
            )
        return None


def check_damage(sessions: Sequence[SessionState]) -> None:
    """Raise DamagedJournalError if rows of a session were lost or changed."""
    damaged = [state for state in sessions if state.damaged]
    if damaged:
        more = f" ({len(damaged) - 1} more sessions are damaged)" if len(damaged) > 1 else ""
        raise DamagedJournalError(
            f"the journal of session {damaged[0].name} is damaged: {damaged[0].damaged[0]}{more}. "
            "Copy its files again from their origin, or leave the session out"
        )


class JournalContent(NamedTuple):
    """All rows, with the columns of ``schema.COLUMNS``, and the states of all sessions. Columns of
    texts are dictionaries. ``without_rows`` are the ids of sessions that have a folder without
    files of rows: their consumers did not start."""

    table: Table
    sessions: tuple[SessionState, ...]
    without_rows: frozenset[str] = frozenset()


def read_journal(path: Path, max_memory: int | None = None) -> JournalContent:
    """Read the folder of a journal, or of one session.

    Raises ConfigError if the folder has no journal, or the rows take more than ``max_memory`` bytes
    (default: half of the machine's memory).
    """
    if not path.is_dir():
        raise ConfigError(f"there is no folder {path}: use the path of Journal(path)")
    found = sessions(path)
    if not found:
        raise ConfigError(
            f"{path} has no journal: use the path of Journal(path), or of one session below it"
        )
    memory = RowMemory(max_memory)
    read = [_read_session(session, memory) for session in found]
    table = pa.concat_tables([rows for _, rows in read])
    states = tuple(state for state, _ in read)
    return JournalContent(table, states, sessions_without_rows(path))


def by_time(table: Table, last: int) -> Table:
    """The ``last`` rows in the order of time. Rows of one microsecond are ordered by session and
    number."""
    # Arrow cannot sort dictionaries.
    names = table["session_id"].unify_dictionaries().combine_chunks()
    ranks = pc.rank(names.dictionary).take(names.indices)
    keys = [("at_us", "ascending"), ("rank", "ascending"), ("seq", "ascending")]
    order = pa.table({"at_us": table["at_us"], "rank": ranks, "seq": table["seq"]})
    found = pc.sort_indices(order, sort_keys=keys)
    return table.take(found.slice(max(0, len(found) - last)))


def _read_session(session: JournalSession, memory: RowMemory) -> tuple[SessionState, Table]:
    # Checked before the segments are listed, so that the last rows of a writer that ends are read.
    live = session.live
    segments = session.segments()
    batches: list[RecordBatch] = []
    chain = SegmentChain(session.folder.name)
    for segment in segments:
        content = read(segment, memory)
        batches += content.batches
        chain.add(segment, content)
    parse_session_id(chain.name, session.folder)
    table = pa.Table.from_batches(batches, COMPACT_SCHEMA)
    # The last frame of a live session may be incomplete.
    state = _state(chain, segments, table, live, None if live else chain.torn)
    if state.damaged:
        named = [_named(batch, state) for batch in batches]
        table = pa.Table.from_batches(named, COMPACT_SCHEMA)
    return state, table


def _named(batch: RecordBatch, state: SessionState) -> RecordBatch:
    """The rows with their session id and group, if the header with these is damaged."""
    if batch.column("session_id").null_count < batch.num_rows:
        return batch
    group = state.facts.get("group")
    known = group if isinstance(group, str) else None
    return with_texts(batch, {"session_id": state.name, "group": known})


def _state(
    chain: SegmentChain, segments: Sequence[Segment], table: Table, live: bool, torn: str | None
) -> SessionState:
    begin = table.filter(pc.equal(table["kind"], RowKind.BEGIN.value))
    end = table.filter(pc.equal(table["kind"], RowKind.END.value))
    ended = end.num_rows > 0
    times = pc.min_max(table["at_us"]).as_py()
    facts = facts_of(begin["facts"][0].as_py()) if begin.num_rows else {}
    missing, repeated = _missing(table)
    ends = SessionEnds(
        begin.num_rows > 0, facts, end["facts"][0].as_py() if ended else None, table.num_rows
    )
    damaged = [*chain.damaged, *repeated, *ends.damage(missing)]
    return SessionState(
        chain.name,
        facts,
        table.num_rows,
        len(segments),
        sum(segment.sealed for segment in segments),
        times["min"],
        times["max"],
        ended,
        live and not ended,
        None if ended else torn,
        tuple(missing),
        tuple(damaged),
        _last_before(table, missing[0][0]) if missing else None,
    )


def _last_before(table: Table, row: int) -> int | None:
    """The time of the last row before the row of this number."""
    before = table.filter(pc.less(table["seq"], row))
    found: int | None = pc.max(before["at_us"]).as_py()
    return found


class SessionEnds(NamedTuple):
    """The facts of the first and last rows of a session, and its number of rows. ``end_facts`` is
    the JSON of the END row, None without one."""

    has_begin: bool
    facts: Mapping[str, object]
    end_facts: str | None
    rows: int

    def damage(self, missing: Sequence[tuple[int, int]]) -> list[str]:
        """A sentence for each contradiction. ``missing`` row numbers are not a contradiction."""
        found: list[str] = []
        if self.has_begin and not self.facts:
            found.append("its BEGIN row has no facts about the consumer")
        if self.end_facts is not None and not missing:
            rows = facts_of(self.end_facts).get("rows")
            if rows != self.rows:
                found.append(f"its END row declares {rows} rows, and it has {self.rows}")
        return found


def merged_ranges(found: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """These ranges of row numbers; if there are many, the last one covers the rest."""
    if len(found) <= _MOST_RANGES:
        return tuple(found)
    last = found[_MOST_RANGES - 1][0], found[-1][1]
    return (*found[: _MOST_RANGES - 1], last)


def repeated_rows(count: int, first: int) -> str:
    """The sentence about row numbers that occur more than once."""
    return f"{count} rows occur more than once, first row {first}"


def _missing(table: Table) -> tuple[list[tuple[int, int]], list[str]]:
    """The ranges of missing row numbers, and a sentence if row numbers occur more than once."""
    if not table.num_rows:
        return [], []
    numbers = pc.array_sort_indices(table["seq"])
    ordered = table["seq"].take(numbers).combine_chunks()
    found = [(0, ordered[0].as_py() - 1)] if ordered[0].as_py() else []
    steps = pc.subtract(ordered.slice(1), ordered.slice(0, len(ordered) - 1))
    gaps = pc.indices_nonzero(pc.greater(steps, 1))
    few = gaps.slice(0, _MOST_RANGES).to_pylist()
    found += [(ordered[i].as_py() + 1, ordered[i + 1].as_py() - 1) for i in few]
    if len(gaps) > _MOST_RANGES:
        found[-1] = (found[-1][0], ordered[gaps[-1].as_py() + 1].as_py() - 1)
    twice = pc.indices_nonzero(pc.less(steps, 1))
    if not len(twice):
        return found, []
    return found, [repeated_rows(len(twice), ordered[twice[0].as_py()].as_py())]
