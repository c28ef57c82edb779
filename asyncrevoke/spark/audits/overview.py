"""The sessions and topics of a journal, from summaries of its rows that tasks make."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from asyncrevoke.journal.format.arrow import RecordBatch, pa
from asyncrevoke.journal.format.schema import RowKind, facts_of
from asyncrevoke.journal.reading import SessionEnds, SessionState, merged_ranges, repeated_rows
from asyncrevoke.journal.segments import DAMAGED
from asyncrevoke.journal.session_id import is_session_id, not_a_session_id

if TYPE_CHECKING:
    from numpy.typing import NDArray


SUMMARIZED = ("session_id", "seq", "kind", "at_us", "topic", "group", "facts")
"""The columns that a summary needs."""

_NAMED = ("session_id", "topic", "group")
_LAST = 2**63 - 1
_FEW = (RowKind.BEGIN.value, RowKind.END.value, RowKind.TOPIC.value, DAMAGED)


class Run(NamedTuple):
    """Rows of a session whose numbers follow each other. ``last_us`` is the latest time."""

    first: int
    last: int
    last_us: int


class SomeRows(NamedTuple):
    """Rows of one session, topic and group. ``rows`` counts those with a number; ``said`` has the
    kind and facts of its BEGIN, END, TOPIC and DAMAGED rows."""

    session: str | None
    topic: str | None
    group: str | None
    rows: int
    began_us: int | None
    last_us: int | None
    said: list[tuple[str, str | None]]


class Summary(NamedTuple):
    """What some rows of a journal say about its sessions and topics."""

    rows: list[SomeRows]
    runs: list[tuple[str, list[Run]]]


class Overview(NamedTuple):
    """The sessions of a journal, their (topic, group) pairs, and the facts of each pair's TOPIC
    rows. ``without_rows`` are the ids of sessions of which there are files, but no rows."""

    sessions: tuple[SessionState, ...]
    topics: Mapping[tuple[str, str | None], frozenset[str]]
    without_rows: frozenset[str] = frozenset()


def summary_of(batch: RecordBatch) -> Summary:
    """The summary of these rows, which have the columns ``SUMMARIZED``."""
    rows: Any = batch
    coded = {name: _coded(rows.column(name)) for name in (*_NAMED, "kind")}
    numbered = np.asarray(rows.column("seq").is_valid())
    numbers = rows.column("seq").fill_null(0).to_numpy()
    times = rows.column("at_us").fill_null(0).to_numpy()
    # The number of a row's session, topic and group.
    group = np.zeros(rows.num_rows, np.int64)
    for name in _NAMED:
        codes, texts = coded[name]
        group = group * len(texts) + codes
    said = _said_in(rows, group, *coded["kind"])
    order = np.argsort(group, kind="stable")
    begins = np.flatnonzero(np.diff(group[order], prepend=-1))
    found: list[SomeRows] = []
    of_session: dict[str, list[NDArray[np.int64]]] = defaultdict(list)
    for some in np.split(order, begins[1:]) if len(order) else ():
        session, topic, name = (coded[name_of][1][coded[name_of][0][some[0]]] for name_of in _NAMED)
        valid = some[numbered[some]]
        span = times[valid].min(initial=_LAST), times[valid].max(initial=-1)
        lines = said.get(int(group[some[0]]), [])
        began, ended = (None, None) if not len(valid) else map(int, span)
        found.append(SomeRows(session, topic, name, len(valid), began, ended, lines))
        if session is not None and len(valid):
            of_session[session].append(valid)
    runs: list[tuple[str, list[Run]]] = []
    for session, pieces in of_session.items():
        which = np.sort(np.concatenate(pieces))
        runs.append((session, _runs_in(numbers[which], times[which])))
    return Summary(found, runs)


def _coded(column: Any) -> tuple[NDArray[np.int32], list[str | None]]:  # noqa: ANN401 - pyarrow's
    """The texts of a column as positions in the list of distinct ones."""
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    texts = coded.dictionary.to_pylist()
    return coded.indices.fill_null(len(texts)).to_numpy(), [*texts, None]


def _said_in(
    rows: Any,  # noqa: ANN401 - pyarrow's
    group: NDArray[np.int64],
    codes: NDArray[np.int32],
    kinds: Sequence[str | None],
) -> dict[int, list[tuple[str, str | None]]]:
    """The kind and the facts of the BEGIN, END, TOPIC and DAMAGED rows, by their group."""
    few = np.array([code for code, kind in enumerate(kinds) if kind in _FEW], codes.dtype)
    facts = rows.column("facts")
    said: dict[int, list[tuple[str, str | None]]] = defaultdict(list)
    rows_of_few: NDArray[np.int64] = np.flatnonzero(np.isin(codes, few))
    for row in rows_of_few.tolist():
        kind = str(kinds[int(codes[row])])
        said[int(group[row])].append((kind, facts[row].as_py()))
    return said


def _runs_in(numbers: NDArray[np.int64], times: NDArray[np.int64]) -> list[Run]:
    """The runs of these row numbers. A repeated number begins another run."""
    if (np.diff(numbers) <= 0).any():
        order = np.argsort(numbers, kind="stable")
        numbers, times = numbers[order], times[order]
    begins = np.concatenate(([0], np.flatnonzero(np.diff(numbers) != 1) + 1))
    latest = np.maximum.reduceat(times, begins)
    ends = np.concatenate((begins[1:], [len(numbers)])) - 1
    found = zip(numbers[begins].tolist(), numbers[ends].tolist(), latest.tolist(), strict=True)
    return [Run(*candidate) for candidate in found]


def overview_of(summaries: Iterable[Summary], live: frozenset[str]) -> Overview:
    """The overview of a journal with these summaries. ``live`` are the sessions that a consumer is
    writing now. Raises ConfigError for an invalid session id."""
    of_session: dict[str, list[SomeRows]] = defaultdict(list)
    runs: dict[str, list[Run]] = defaultdict(list)
    for summary in summaries:
        for rows in summary.rows:
            if rows.session is None or not is_session_id(rows.session):
                raise not_a_session_id(rows.session, "the journal")
            of_session[rows.session].append(rows)
        for session, some in summary.runs:
            runs[session] += some
    states = tuple(
        _state(name, of_session[name], runs[name], live=name in live) for name in sorted(of_session)
    )
    return Overview(states, _topics(of_session))


def _topics(
    of_session: Mapping[str, Sequence[SomeRows]],
) -> dict[tuple[str, str | None], frozenset[str]]:
    topics: dict[tuple[str, str | None], frozenset[str]] = {}
    for every in of_session.values():
        # A damaged log may not name its group.
        is_damaged = bool(_said(every, DAMAGED))
        for rows in every:
            if rows.topic is not None and (rows.group is not None or not is_damaged):
                name = rows.topic, rows.group
                topics[name] = topics.get(name, frozenset()) | _said([rows], RowKind.TOPIC)
    return topics


def _said(rows: Sequence[SomeRows], kind: str) -> frozenset[str]:
    """The facts of the rows of this kind."""
    said = (pair for row in rows for pair in row.said)
    return frozenset(facts for name, facts in said if name == kind and facts is not None)


def _state(
    name: str, every: Sequence[SomeRows], runs: Sequence[Run], *, live: bool
) -> SessionState:
    damaged = sorted(_said(every, DAMAGED))
    numbered = [journal for journal in every if journal.rows]
    kinds = {kind for journal in every for kind, _ in journal.said}
    facts = facts_of(max(_said(every, RowKind.BEGIN), default=None))
    end_facts = max(_said(every, RowKind.END), default=None)
    count = sum(journal.rows for journal in every)
    missing, repeated = _compared(runs)
    ends = SessionEnds(RowKind.BEGIN in kinds, facts, end_facts, count)
    ended = RowKind.END in kinds
    before = [run.last_us for run in runs if missing and run.last < missing[0][0]]
    return SessionState(
        name,
        facts,
        count,
        0,
        0,
        min(
            (journal.began_us for journal in numbered if journal.began_us is not None), default=None
        ),
        max((journal.last_us for journal in numbered if journal.last_us is not None), default=None),
        ended,
        live and not ended,
        missing=missing,
        damaged=(*damaged, *repeated, *(ends.damage(missing) if numbered else ())),
        intact_us=max(before, default=None),
    )


def _compared(runs: Sequence[Run]) -> tuple[tuple[tuple[int, int], ...], list[str]]:
    """The ranges of missing row numbers, and a sentence if row numbers occur more than once."""
    missing: list[tuple[int, int]] = []
    last, count, repeated = -1, 0, -1
    for run in sorted(runs):
        if run.first > last + 1:
            missing.append((last + 1, run.first - 1))
        elif run.first <= last:
            repeated = run.first if repeated < 0 else repeated
            count += min(run.last, last) - run.first + 1
        last = max(last, run.last)
    sentences = [repeated_rows(count, repeated)] if count else []
    return merged_ranges(missing), sentences
