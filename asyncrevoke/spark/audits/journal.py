"""Reads a journal with Spark: sealed segments and logs, from any storage that Spark can read."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import unquote

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from asyncrevoke.client import log_events
from asyncrevoke.client.runtime.hooks.event_log import EventLog
from asyncrevoke.journal.format.arrow import RecordBatch, pa
from asyncrevoke.journal.format.schema import COLUMNS
from asyncrevoke.journal.reading import SessionState, check_damage
from asyncrevoke.journal.segments import (
    damaged_row,
    problem_of_piece,
    read_piece,
    rows_of_log,
    sessions,
    sessions_without_rows,
)
from asyncrevoke.journal.session_id import is_session_id
from asyncrevoke.journal.views import VIEWS
from asyncrevoke.spark.arrow import map_in_arrow
from asyncrevoke.spark.audits.overview import SUMMARIZED, Overview, Summary, overview_of, summary_of
from asyncrevoke.spark.audits.packed_rows import BLOBS, NEEDED, PackRows
from asyncrevoke.spark.audits.segments import CheckedFiles, JournalFiles, check_files, find_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from asyncrevoke.client.columns.arrow import ArrowRecordBatch


_TYPES = {"string": "STRING", "long": "BIGINT", "int": "INT"}
SCHEMA = ", ".join(f"`{column.name}` {_TYPES[column.type]}" for column in COLUMNS)
"""The columns of a journal."""


class CheckedJournal(NamedTuple):
    """A journal whose damage is known. ``rows`` are lazy and without the rows of damaged files.
    ``files`` is None for a DataFrame of rows."""

    spark: SparkSession
    overview: Overview
    rows: DataFrame
    files: JournalFiles | None

    def packed(self, task: PackRows) -> DataFrame:
        """The rows of one topic and group in blobs. Lazy."""
        if self.files is None:
            return map_in_arrow(self.rows.select(*NEEDED), task.of_rows, BLOBS)
        names = [*self.files.sealed, *self.files.logs]
        if not names:
            return empty_frame(self.spark, BLOBS)
        files = self.spark.read.format("binaryFile").load(names)
        return map_in_arrow(files.select("path", "content"), task.of_files, BLOBS)


def empty_frame(spark: SparkSession, schema: str) -> DataFrame:
    """A DataFrame without rows."""
    return cast("DataFrame", cast("Any", spark).createDataFrame([], schema))


def checked_journal(
    spark: SparkSession, journal: str | os.PathLike[str] | DataFrame
) -> CheckedJournal:
    """Check a journal: a folder, or a DataFrame of rows.

    Takes one pass over all files or rows. Raises ConfigError if the folder has no journal.
    """
    if not isinstance(journal, (str, os.PathLike)):
        return CheckedJournal(spark, overview(journal), journal, None)
    found = find_files(spark, journal)
    checked = check_files(spark, found)
    known = with_checks(overview_of(checked.summaries, live_sessions(journal)), checked)
    # Spark reads no row of an empty file.
    folders = frozenset(PurePosixPath(name).parent.name for name in (*found.sealed, *found.logs))
    folders |= sessions_without_rows(local_folder(journal))
    known = known._replace(without_rows=folders - {state.name for state in known.sessions})
    files = found.without(checked.damaged)
    return CheckedJournal(spark, known, rows_of_files(spark, files), files)


def rows_of_files(spark: SparkSession, files: JournalFiles) -> DataFrame:
    """All rows of these segments. Lazy.

    Reads an unsealed log up to its last complete frame. A damaged log has a row of the kind
    ``DAMAGED`` that describes the damage.
    """
    frames: list[DataFrame] = []
    if files.sealed:
        frames.append(spark.read.schema(SCHEMA).parquet(*files.sealed))
    if files.logs:
        blobs = spark.read.format("binaryFile").load(list(files.logs))
        frames.append(map_in_arrow(blobs.select("path", "content"), rows_of_logs, SCHEMA))
    if not frames:
        return empty_frame(spark, SCHEMA)
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
            log_events.JOURNAL_VALUE_DAMAGED.write_to(EventLog(), problem=problem)
            if piece.about is not None and is_session_id(piece.about.session):
                yield damaged_row(piece.about.session, f"a value of its topic: {problem}")


def rows_of_logs(batches: Iterable[ArrowRecordBatch]) -> Iterator[ArrowRecordBatch]:
    """A task: the rows of the column ``content``, each value of which is a whole log. See
    :func:`~asyncrevoke.journal.segments.rows_of_log`."""
    for batch in batches:
        paths, logs = batch.column("path").to_pylist(), batch.column("content").to_pylist()
        for path, log in zip(paths, logs, strict=True):
            yield from rows_of_log(log, unquote(path).split("/")[-2])


def local_folder(path: str | os.PathLike[str]) -> Path:
    """The folder, which may not be on this machine."""
    return Path(str(path).removeprefix("file://"))


def live_sessions(path: str | os.PathLike[str]) -> frozenset[str]:
    """The sessions that a consumer is writing now. Empty if the folder is not on this machine."""
    folder = local_folder(path)
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
        of_files = chain.damaged
        # The chain names the files, which the rows of a damaged log do not.
        of_rows = [text for text in state.damaged if not any(t.endswith(text) for t in of_files)]
        states[chain.name] = state._replace(damaged=(*of_files, *of_rows))
    return known._replace(sessions=tuple(states[name] for name in sorted(states)))


def overview(journal: DataFrame) -> Overview:
    """The overview of a DataFrame of rows. Takes one pass over them."""
    needed = journal.select(*SUMMARIZED)
    rows = map_in_arrow(needed, summarize_each, "summary BINARY").collect()
    found = cast("list[tuple[bytes]]", rows)
    summaries = (msgspec.msgpack.decode(made, type=Summary) for (made,) in found)
    return overview_of(summaries, frozenset())


def summarize_each(batches: Iterable[ArrowRecordBatch]) -> Iterator[ArrowRecordBatch]:
    """A task: the summary of each batch of a journal's rows."""
    for batch in batches:
        made = msgspec.msgpack.encode(summary_of(cast("RecordBatch", batch)))
        yield cast("ArrowRecordBatch", pa.RecordBatch.from_pydict({"summary": [made]}))


def journal_views(spark: SparkSession, journal: str | os.PathLike[str] | DataFrame) -> None:
    """Create the temporary views ``journal``, ``ownership``, ``rebalances``, ``handler_durations``
    and ``stalls`` of a journal's folder, or of a DataFrame of its rows. Replaces existing views.

    Reads the journal once to check its files and row numbers, and raises DamagedJournalError if
    they are damaged. Each query then reads the folder or DataFrame as it is at the time of the
    query. Raises ConfigError if the folder has no journal.
    """
    checked = checked_journal(spark, journal)
    check_damage(checked.overview.sessions)
    checked.rows.createOrReplaceTempView("journal")
    run = cast("Callable[[str], DataFrame]", cast("Any", spark).sql)  # half typed
    for name, query in VIEWS.items():
        written = query.replace('"', "`").replace("timestamp(", "timestamp_micros(")
        run(written).createOrReplaceTempView(name)
