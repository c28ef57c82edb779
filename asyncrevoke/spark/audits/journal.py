"""Reads a journal with Spark: sealed segments and logs, from any storage that Spark can read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import unquote

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from asyncrevoke.audit.sql.text import compose, literal
from asyncrevoke.journal.format.facts import facts_of
from asyncrevoke.journal.format.rows import SCHEMA as ROWS
from asyncrevoke.journal.format.schema import COLUMNS, RowKind
from asyncrevoke.journal.reading import SessionEnds, SessionState, repeated_rows
from asyncrevoke.journal.segments import (
    DAMAGED,
    damaged_row,
    problem_of_piece,
    read_piece,
    rows_of_log,
    sessions,
)
from asyncrevoke.journal.session_id import is_session_id, not_a_session_id
from asyncrevoke.runtime.hooks.event_log import EventLog
from asyncrevoke.spark.arrow import map_in_arrow
from asyncrevoke.spark.audits.database import frame_of, run_query, small_frame
from asyncrevoke.spark.audits.segments import check_files, find_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from asyncrevoke.errors import ConfigError
    from asyncrevoke.spark.arrow import ArrowRecordBatch
    from asyncrevoke.spark.audits.segments import CheckedFiles, JournalFiles

_TYPES = {"string": "STRING", "long": "BIGINT", "int": "INT"}
SCHEMA = ", ".join(f"`{column.name}` {_TYPES[column.type]}" for column in COLUMNS)
"""The columns of a journal."""

# The column names of the rules.
_NAMES = {"session_id": "session", "partition": "part", "offset": "off"}


def checked_journal(
    spark: SparkSession,
    journal: str | os.PathLike[str] | DataFrame,
    keep: Callable[[DataFrame], DataFrame] = lambda frame: frame,
) -> tuple[DataFrame, Overview]:
    """The rows of a journal, and its sessions with the damage that was found.

    ``journal`` is a folder, of which rows in damaged files are left out, or a DataFrame of rows.
    The rows are lazy. The sessions take one pass over all files and one over all rows. ``keep``
    persists a DataFrame. Raises ConfigError if the folder has no journal.
    """
    if not isinstance(journal, (str, os.PathLike)):
        return journal, overview(spark, journal, frozenset())
    files = find_files(spark, journal)
    checked = check_files(spark, files)
    rows = rows_of_files(spark, files.without(checked.damaged), keep)
    return rows, with_checks(overview(spark, rows, live_sessions(journal)), checked)


def rows_of_files(
    spark: SparkSession,
    files: JournalFiles,
    keep: Callable[[DataFrame], DataFrame] = lambda frame: frame,
) -> DataFrame:
    """All rows of these segments. Lazy.

    Reads an unsealed log up to its last complete frame. A damaged log has a row of the kind
    ``DAMAGED`` that describes the damage. Logs are decoded in Python, so ``keep`` persists their
    DataFrame.
    """
    frames: list[DataFrame] = []
    if files.sealed:
        frames.append(spark.read.schema(SCHEMA).parquet(*files.sealed))
    if files.logs:
        blobs = spark.read.format("binaryFile").load(list(files.logs))
        rows = map_in_arrow(blobs.select("path", "content"), rows_of_logs, SCHEMA)
        frames.append(keep(rows))
    if not frames:
        return frame_of(spark, ROWS.empty_table())
    return frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])


def blobs_frame(frame: DataFrame, column: str = "value") -> DataFrame:
    """The rows of a journal, from the values that ``KafkaSink`` has written to a topic. Lazy.

    Checks each value as ``asyncrevoke journal collect`` does. A value that is damaged, or larger
    than any that ``KafkaSink`` writes, has no rows, and the task logs a warning. If such a value
    names its session, a row of the kind ``DAMAGED`` describes the damage: an audit of the rows is
    then INCONCLUSIVE, and ``journal_views`` raises an error.
    """
    values = frame.select(F.col(column).alias("value")).where("value IS NOT NULL")
    return map_in_arrow(values, rows_of_pieces, SCHEMA)


def rows_of_pieces(batches: Iterable[ArrowRecordBatch]) -> Iterator[ArrowRecordBatch]:
    """A task: the rows of a journal in the column ``value``. The values are untrusted."""
    for batch in batches:
        for blob in batch.column("value").to_pylist():
            piece = read_piece(blob)
            problem = problem_of_piece(piece)
            if problem is None:
                yield from piece.batches
                continue
            EventLog().warning("journal value damaged; skipping its rows", problem=problem)
            if piece.about is not None and is_session_id(piece.about.session):
                yield damaged_row(piece.about.session, f"a value of its topic: {problem}")


def rows_of_logs(batches: Iterable[ArrowRecordBatch]) -> Iterator[ArrowRecordBatch]:
    """A task: the rows of the column ``content``, each value of which is a whole log. See
    :func:`~asyncrevoke.journal.segments.rows_of_log`."""
    for batch in batches:
        paths, logs = batch.column("path").to_pylist(), batch.column("content").to_pylist()
        for path, log in zip(paths, logs, strict=True):
            yield from rows_of_log(log, unquote(path).split("/")[-2])


def live_sessions(path: str | os.PathLike[str]) -> frozenset[str]:
    """The sessions that a consumer is writing now. Empty if the folder is not on this machine."""
    folder = Path(str(path).removeprefix("file://"))
    if not folder.is_dir():
        return frozenset()
    return frozenset(session.folder.name for session in sessions(folder) if session.live)


def with_checks(known: Overview, checked: CheckedFiles) -> Overview:
    """Add the damage of files to the sessions, and the sessions that have no readable row."""
    states = {state.name: state for state in known.sessions}
    for chain in checked.chains.values():
        if chain.name not in states and not chain.damaged:
            continue
        nothing = SessionState(chain.name, {}, 0, 0, 0, None, None, False, False)
        state = states.get(chain.name, nothing)
        of_files = chain.damage(state.facts)
        # The chain names the files, which the rows of a damaged log do not.
        of_rows = [text for text in state.damaged if not any(t.endswith(text) for t in of_files)]
        states[chain.name] = state._replace(damaged=(*of_files, *of_rows))
    return known._replace(sessions=tuple(states[name] for name in sorted(states)))


class Overview(NamedTuple):
    """The sessions of a journal, their (topic, group) pairs, and the facts of each pair's TOPIC
    rows."""

    sessions: tuple[SessionState, ...]
    topics: Mapping[tuple[str, str | None], frozenset[str]]


def overview(spark: SparkSession, journal: DataFrame, live: frozenset[str]) -> Overview:
    """Compute the overview in one pass over all rows."""
    tables = {"journal": journal}
    query = compose(
        """
        SELECT session_id, topic, `group`, count(seq) AS n, min(seq) AS first, max(seq) AS last,
               min(at_us) AS began, max(at_us) AS ended_us,
               max(CASE WHEN kind = {begin} THEN facts END) AS facts,
               bool_or(kind = {begin}) AS has_begin, bool_or(kind = {end}) AS ended,
               max(CASE WHEN kind = {end} THEN facts END) AS end_facts,
               collect_set(CASE WHEN kind = {damaged} THEN facts END) AS damaged,
               collect_set(CASE WHEN kind = {topic} THEN facts END) AS orders
        FROM journal GROUP BY session_id, topic, `group` ORDER BY session_id
        """,
        begin=literal(RowKind.BEGIN),
        damaged=literal(DAMAGED),
        end=literal(RowKind.END),
        topic=literal(RowKind.TOPIC),
    )
    rows = run_query(spark, query, tables).collect()
    for row in rows:
        if not is_session_id(row["session_id"]):
            raise _unknown_session(journal, row["session_id"])
    of_session: dict[str, list[Any]] = {}
    topics: dict[tuple[str, str | None], frozenset[str]] = {}
    for row in rows:
        of_session.setdefault(row["session_id"], []).append(row)
    for row in rows:
        # A damaged log may not name its group.
        is_damaged = any(each["damaged"] for each in of_session[row["session_id"]])
        if row["topic"] is not None and (row["group"] is not None or not is_damaged):
            name = row["topic"], row["group"]
            topics[name] = topics.get(name, frozenset()) | frozenset(row["orders"])
    read = [_state(name, every, live) for name, every in of_session.items()]
    # Sessions with missing or repeated row numbers.
    uneven = {state.name for state, ends, last in read if ends.rows != last + 1}
    missing = _missing(spark, tables, uneven) if uneven else {}
    repeated = _repeated(spark, tables, uneven) if uneven else {}
    states: list[SessionState] = []
    for state, ends, _ in read:
        gaps = missing.get(state.name, ())
        damaged = (*state.damaged, *repeated.get(state.name, ()), *ends.damage(gaps))
        states.append(state._replace(missing=gaps, damaged=damaged))
    return Overview(tuple(states), topics)


def _state(
    name: str, rows: list[Any], live: frozenset[str]
) -> tuple[SessionState, SessionEnds, int]:
    """The state without missing and repeated rows, the first and last row, and the highest row
    number."""
    damaged = tuple(sorted(text for row in rows for text in row["damaged"]))
    rows = [row for row in rows if row["n"]]
    if not rows:
        # No row of the session can be read.
        state = SessionState(name, {}, 0, 0, 0, None, None, False, name in live, damaged=damaged)
        return state, SessionEnds(False, {}, None, 0), -1
    count = sum(row["n"] for row in rows)
    last = max(row["last"] for row in rows)
    facts = facts_of(next((row["facts"] for row in rows if row["facts"]), None))
    end_facts = next((row["end_facts"] for row in rows if row["end_facts"]), None)
    ended = any(row["ended"] for row in rows)
    ends = SessionEnds(any(row["has_begin"] for row in rows), facts, end_facts, count)
    state = SessionState(
        name,
        facts,
        count,
        0,
        0,
        min(row["began"] for row in rows),
        max(row["ended_us"] for row in rows),
        ended,
        name in live and not ended,
        damaged=damaged,
    )
    return state, ends, last


def _missing(
    spark: SparkSession, tables: Mapping[str, DataFrame], names: set[str]
) -> dict[str, tuple[tuple[int, int], ...]]:
    incomplete = small_frame(spark, {"name": "STRING"}, [(name,) for name in sorted(names)])
    rows = run_query(
        spark,
        """
        SELECT session_id, before + 1 AS first, seq - 1 AS last
        FROM (SELECT session_id, seq, coalesce(
                         lag(seq) OVER (PARTITION BY session_id ORDER BY seq), -1) AS before
              FROM journal JOIN incomplete ON incomplete.name = journal.session_id)
        WHERE seq > before + 1 ORDER BY session_id, seq
        """,
        {**tables, "incomplete": incomplete},
    ).collect()
    found: dict[str, tuple[tuple[int, int], ...]] = {}
    for name, first, last in cast("list[tuple[str, int, int]]", rows):
        found[name] = (*found.get(name, ()), (first, last))
    return found


def _repeated(
    spark: SparkSession, tables: Mapping[str, DataFrame], names: set[str]
) -> dict[str, list[str]]:
    uneven = small_frame(spark, {"name": "STRING"}, [(name,) for name in sorted(names)])
    rows = run_query(
        spark,
        """
        SELECT session_id, sum(n - 1) AS repeated, min(seq) AS first
        FROM (SELECT session_id, seq, count(*) AS n
              FROM journal JOIN uneven ON uneven.name = journal.session_id
              WHERE seq IS NOT NULL GROUP BY session_id, seq HAVING count(*) > 1)
        GROUP BY session_id
        """,
        {**tables, "uneven": uneven},
    ).collect()
    found = cast("list[tuple[str, int, int]]", rows)
    return {name: [repeated_rows(count, first)] for name, count, first in found}


def _unknown_session(journal: DataFrame, name: str | None) -> ConfigError:
    """The error for rows with an invalid session id. It names the file if Spark knows it."""
    found = journal.where(F.col("session_id").eqNullSafe(F.lit(name)))
    row = found.select(F.input_file_name()).limit(1).collect()
    file = unquote(row[0][0]) if row and row[0][0] else "the journal"
    return not_a_session_id(name, file)


def with_rule_names(journal: DataFrame) -> DataFrame:
    """The journal with the column names of the rules."""
    return journal.withColumnsRenamed(_NAMES)
