"""The task that audits some partitions of a topic, with DuckDB."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import msgspec

from asyncrevoke.audit.audited_group import AuditedGroup
from asyncrevoke.audit.compared_topic import compare
from asyncrevoke.audit.rules.views import DONE
from asyncrevoke.audit.sql.database import AuditDatabase
from asyncrevoke.audit.sql.text import Text, compose
from asyncrevoke.audit.topic.record_hashes import RECORDS
from asyncrevoke.journal.format.arrow import Table, pa, pc
from asyncrevoke.spark.audits.packed_rows import ATTEMPTS, JOURNAL, OUTCOMES, unpacked
from asyncrevoke.spark.audits.sources import TopicReader, with_marks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from asyncrevoke.client.columns.arrow import ArrowRecordBatch

AUDITED: Final = "audited BINARY"
"""The column of the results: a :class:`PartialAudit` each, in MessagePack."""

# In place of the numbers in the tables of packed rows.
_COLUMNS: Final = {
    "attempts": {
        **ATTEMPTS,
        "session": "session_name",
        "outcome": "outcome_name",
        "done": "BOOLEAN",
    },
    "journal": {**JOURNAL, "session": "session_name"},
    "packed": RECORDS,
}


class PartitionTask(NamedTuple):
    """Audits the partitions whose number modulo ``tasks`` is one of those in the column ``task``.

    ``memory_limit``: bytes for the comparison; the rest goes to a temporary folder.
    """

    group: AuditedGroup
    source: TopicReader
    tasks: int
    memory_limit: int

    def run(self, batches: Iterable[ArrowRecordBatch]) -> Iterator[ArrowRecordBatch]:
        """Audit the rows of these blobs."""
        database = AuditDatabase(self.memory_limit, threads=1)
        try:
            numbers = self._fill(database, batches)
            bounds = {
                part: bound
                for part, bound in self.source.bounds.items()
                if part % self.tasks in numbers
            }
            if bounds:
                topic = self.source.opened(database, bounds)
                found = asyncio.run(compare(database, topic, self.group, keys=self.source.has_keys))
                made = pa.RecordBatch.from_pydict({"audited": [msgspec.msgpack.encode(found)]})
                yield cast("ArrowRecordBatch", made)
        finally:
            database.close()

    def _fill(self, database: AuditDatabase, batches: Iterable[ArrowRecordBatch]) -> set[int]:
        """Insert the rows of all blobs. Returns the numbers of their tasks."""
        names = [state.name for state in self.group.sessions]
        database.enumerate_texts("session_name", names)
        database.enumerate_texts("outcome_name", OUTCOMES)
        for table, columns in _COLUMNS.items():
            database.put(table, columns, [])
        numbers: set[int] = set()
        for batch in batches:
            tasks, tables = batch.column("task").to_pylist(), batch.column("name").to_pylist()
            numbers.update(tasks)
            blobs: Any = batch.column("rows")
            for table, blob in zip(tables, blobs, strict=True):
                if table is not None:
                    rows = self._texts(table, unpacked(blob.as_buffer()), names)
                    database.insert(table, rows, _INSERTED[table])
        return numbers

    def _texts(self, table: str, rows: Any, names: Sequence[str]) -> Table:  # noqa: ANN401
        """The rows with texts in place of numbers."""
        if table == "packed":
            return rows
        rows = with_texts(rows, "session", names)
        if table == "attempts":
            rows = with_texts(rows, "outcome", OUTCOMES)
            if not self.source.has_content:
                rows = with_marks(rows)
        return rows


def with_texts(rows: Any, name: str, texts: Sequence[str]) -> Table:  # noqa: ANN401 - pyarrow's
    """The rows with these texts in place of their positions in a column."""
    positions = rows[name].combine_chunks()
    known = pc.if_else(pc.greater_equal(positions, 0), positions, None)
    column = pa.DictionaryArray.from_arrays(known, pa.array(texts, pa.string()))
    return rows.set_column(rows.schema.get_field_index(name), name, column)


_INSERTED: Final[dict[str, Text]] = {
    "attempts": compose(
        "SELECT * REPLACE (CAST(session AS session_name) AS session,"
        " CAST(outcome AS outcome_name) AS outcome), outcome IN ({done}) AS done FROM chunk",
        done=DONE,
    ),
    "journal": "SELECT * REPLACE (CAST(session AS session_name) AS session) FROM chunk",
    "packed": "SELECT * FROM chunk",
}
