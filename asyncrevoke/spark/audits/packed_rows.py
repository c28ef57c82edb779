"""Rows of a journal, and records of a topic, in blobs that Spark moves to the tasks of an audit.

To move rows one by one would take Spark longer than the audit takes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from urllib.parse import unquote

import numpy as np

from asyncrevoke.audit.topic.record_hashes import RECORDS
from asyncrevoke.journal.errors import DamagedJournalError
from asyncrevoke.journal.format.arrow import RecordBatch, Table, pa
from asyncrevoke.journal.format.schema import CallOutcome, RowKind
from asyncrevoke.journal.segments import SEALED, read_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from asyncrevoke.client.columns.arrow import ArrowRecordBatch

BLOBS: Final = "task INT, name STRING, rows BINARY"
"""The columns of blobs: for the task of this number, rows of the table of this name."""

ATTEMPTS: Final = {
    "session": "INT",
    "part": "INT",
    "off": "BIGINT",
    "key_hash": "BIGINT",
    "record_hash": "BIGINT",
    "attempt": "INT",
    "s": "BIGINT",
    "f": "BIGINT",
    "outcome": "INT",
}
"""The columns of ``attempts``. ``session`` and ``outcome`` are numbers: the position of the session
in a list, and of the outcome in ``OUTCOMES``."""

JOURNAL: Final = {
    "session": "INT",
    "seq": "BIGINT",
    "kind": "STRING",
    "at_us": "BIGINT",
    "started_us": "BIGINT",
    "generation": "INT",
    "part": "INT",
    "off": "BIGINT",
    "key_hash": "BIGINT",
    "outcome": "STRING",
    "facts": "STRING",
    "last_offset": "BIGINT",
    "records": "INT",
    "checksum": "BIGINT",
}
"""The columns of ``journal``: rows that are not of attempts."""

TABLES: Final = {"attempts": ATTEMPTS, "journal": JOURNAL, "packed": RECORDS}
"""The columns of each table. ``packed`` has records of the topic."""

NEEDED: Final = (
    *("session_id", "seq", "kind", "at_us", "started_us", "group", "generation", "topic"),
    *("partition", "offset", "key_hash", "record_hash", "attempt", "outcome", "facts"),
    *("last_offset", "records", "checksum"),
)
"""The columns of a journal that an audit needs."""

# The rows of a blob, about, and those that a task holds at most.
_ENOUGH: Final = 65_536
_MOST: Final = 1_000_000

_OF_JOURNAL: Final = {
    "part": "partition",
    "off": "offset",
    "s": "started_us",
    "f": "at_us",
}
OUTCOMES: Final = [outcome.value for outcome in CallOutcome]
"""The outcomes by their numbers."""
_TYPES: Final = {"INT": pa.int32(), "BIGINT": pa.int64(), "STRING": pa.string()}


class PackRows(NamedTuple):
    """A task that packs the rows of one topic and group. ``sessions`` are those of the group. Rows
    of a partition are for the task with the number of the partition modulo ``tasks``."""

    topic: str
    group: str | None
    sessions: Sequence[str]
    tasks: int

    def of_files(self, batches: Iterable[ArrowRecordBatch]) -> Iterator[ArrowRecordBatch]:
        """Pack the rows of each segment, whose file is in the columns ``path`` and ``content``.
        Raises DamagedJournalError if a file has changed since it was checked."""
        blobs = _Blobs()
        for batch in batches:
            contents: Any = batch.column("content")
            for at, path in enumerate(batch.column("path").to_pylist()):
                name, found = unquote(path), list[RecordBatch]()
                content = read_file(name, contents[at].as_py(), found.append, NEEDED)
                if name.endswith(SEALED) and content.damaged is not None:
                    raise DamagedJournalError(f"{name} changed during the audit: {content.damaged}")
                for rows in found:
                    self._pack(rows, blobs)
                    yield from blobs.full()
        yield from blobs.rest()

    def of_rows(self, batches: Iterable[ArrowRecordBatch]) -> Iterator[ArrowRecordBatch]:
        """Pack rows with the columns ``NEEDED``."""
        blobs = _Blobs()
        for batch in batches:
            self._pack(batch, blobs)
            yield from blobs.full()
        yield from blobs.rest()

    def _pack(self, batch: Any, blobs: _Blobs) -> None:  # noqa: ANN401 - pyarrow's
        parts = _numbers(batch.column("partition"), -1)
        wanted = (positions(batch.column("topic"), [self.topic]) == 0) & (parts >= 0)
        wanted &= (
            ~np.asarray(batch.column("group").is_valid())
            if self.group is None
            else positions(batch.column("group"), [self.group]) == 0
        )
        attempts = positions(batch.column("kind"), [RowKind.ATTEMPT.value]) == 0
        # Once for all tasks of the batch.
        sessions = positions(batch.column("session_id"), self.sessions)
        outcomes = positions(batch.column("outcome"), OUTCOMES)
        codes = {
            "attempts": {"session": sessions, "outcome": outcomes},
            "journal": {"session": sessions},
        }
        for name, which in (("attempts", wanted & attempts), ("journal", wanted & ~attempts)):
            for task, rows in _by_task(np.flatnonzero(which), parts, self.tasks):
                columns = [
                    pa.array(codes[name][column][rows])
                    if column in codes[name]
                    else _taken(batch.column(_OF_JOURNAL.get(column, column)), _TYPES[kind], rows)
                    for column, kind in TABLES[name].items()
                ]
                blobs.add(task, name, pa.table(columns, schema=schema_of(name)))


def _taken(column: Any, kind: Any, rows: NDArray[np.int64]) -> Any:  # noqa: ANN401 - pyarrow's
    """The values of a column in these rows, as this type."""
    if column.null_count == len(column):
        return pa.nulls(len(rows), kind)
    if not column.null_count and kind != pa.string():
        return pa.array(column.to_numpy()[rows])
    taken = column.take(pa.array(rows))
    return taken if taken.type == kind else taken.cast(kind)


def schema_of(name: str) -> Any:  # noqa: ANN401 - pyarrow's
    """The Arrow schema of this table of ``TABLES``."""
    return pa.schema([(column, _TYPES[kind]) for column, kind in TABLES[name].items()])


class PackRecords(NamedTuple):
    """A task that packs the hashes of a topic's records: the columns ``RECORDS``."""

    tasks: int

    def run(self, batches: Iterable[ArrowRecordBatch]) -> Iterator[ArrowRecordBatch]:
        """Pack these records."""
        blobs = _Blobs()
        for batch in batches:
            parts = _numbers(cast("Any", batch.column("part")), -1)
            for task, rows in _by_task(np.arange(len(parts)), parts, self.tasks):
                taken: Any = pa.Table.from_batches([batch.take(pa.array(rows))])
                blobs.add(task, "packed", taken)
            yield from blobs.full()
        yield from blobs.rest()


def positions(texts: Any, known: Sequence[str]) -> NDArray[np.int32]:  # noqa: ANN401 - pyarrow's
    """The position of each text in ``known``; -1 for others and for null."""
    coded = texts if pa.types.is_dictionary(texts.type) else texts.dictionary_encode()
    places = {text: place for place, text in enumerate(known)}
    found = [places.get(text, -1) for text in coded.dictionary.to_pylist()]
    by_code: NDArray[np.int32] = np.array([*found, -1], np.int32)
    places_of_rows: NDArray[np.int32] = by_code[_numbers(coded.indices, len(found))]
    return places_of_rows


def _numbers(column: Any, null: int) -> NDArray[Any]:  # noqa: ANN401 - pyarrow's
    filled = column.fill_null(null) if column.null_count else column
    return cast("NDArray[Any]", filled.to_numpy())


def _by_task(
    rows: NDArray[np.int64], parts: NDArray[Any], tasks: int
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """These row numbers by the task that audits their partition."""
    if not len(rows):
        return
    numbers = (parts[rows] % tasks).astype(np.int16 if tasks < 2**15 else np.int32)
    rows = rows[np.argsort(numbers, kind="stable")]
    counts = np.bincount(numbers, minlength=1)
    ends = np.cumsum(counts)
    for task in np.flatnonzero(counts).tolist():
        yield task, rows[ends[task] - counts[task] : ends[task]]


class _Blobs:
    """Collects tables by task and name, and makes blobs of those that are large enough."""

    def __init__(self) -> None:
        self._tables: dict[tuple[int, str], list[Table]] = defaultdict(list)
        self._rows: dict[tuple[int, str], int] = defaultdict(int)
        self._total = 0

    def add(self, task: int, name: str, rows: Table) -> None:
        """Add rows of a table for a task."""
        self._tables[task, name].append(rows)
        self._rows[task, name] += rows.num_rows
        self._total += rows.num_rows

    def full(self) -> Iterator[ArrowRecordBatch]:
        """The blobs of the tables that have enough rows, or of all if too many are collected."""
        if self._total > _MOST:
            yield from self.rest()
        for key in [key for key, rows in self._rows.items() if rows >= _ENOUGH]:
            yield self._blob(*key)

    def rest(self) -> Iterator[ArrowRecordBatch]:
        """The blobs of all other rows."""
        for key in list(self._rows):
            yield self._blob(*key)

    def _blob(self, task: int, name: str) -> ArrowRecordBatch:
        self._total -= self._rows.pop((task, name))
        whole = pa.concat_tables(self._tables.pop((task, name))).combine_chunks()
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_stream(sink, whole.schema, options=options) as stream:
            stream.write_table(whole)
        columns = {"task": [task], "name": [name], "rows": [sink.getvalue().to_pybytes()]}
        kinds = pa.schema([("task", pa.int32()), ("name", pa.string()), ("rows", pa.binary())])
        return cast("ArrowRecordBatch", pa.RecordBatch.from_pydict(columns, kinds))


def unpacked(blob: Any) -> Table:  # noqa: ANN401 - pyarrow's
    """The table in a blob."""
    return pa.ipc.open_stream(blob).read_all()
