"""Runs an audit on one machine, with DuckDB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from asyncrevoke.audit.comparison import (
    AuditResult,
    AuditSettings,
    Comparison,
    group_of,
    handler_order_of,
    sessions_of_group,
)
from asyncrevoke.audit.local_database import LocalDatabase
from asyncrevoke.audit.rules.views import MERGED
from asyncrevoke.audit.sql.text import compose, joined
from asyncrevoke.audit.topic.batch_headers import BATCHES
from asyncrevoke.journal.format.arrow import Table, pa

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from asyncrevoke.audit.comparison import Bounds, Range
    from asyncrevoke.audit.group_offsets import AuditedGroupOffsets
    from asyncrevoke.audit.sql.text import Text
    from asyncrevoke.journal.format.arrow import RecordBatch
    from asyncrevoke.journal.reading import JournalContent, SessionState

# The number of records that are inserted at once.
_ENOUGH = 200_000
# With fewer bytes, DuckDB cannot move tables to its temporary folder.
_LEAST = 128 * 2**20
# The column names of the rules.
_NAMES = {"session_id": "session", "partition": "part", "offset": "off"}
# Numbers of sessions take less memory than names, and are compared faster.
_AUDITED_ROWS = """
    SELECT every_row.* REPLACE (CAST(session AS session_name) AS session)
    FROM every_row JOIN audited ON audited.topic = every_row.topic
        AND audited.of_group IS NOT DISTINCT FROM every_row."group"
"""


class AuditedTopic(Protocol):
    """The topic that a journal is compared with. Implemented by
    :class:`asyncrevoke.audit.topic.topic.Topic`."""

    @property
    def bounds(self) -> Mapping[int, Bounds]:
        """The bounds of each partition's log."""
        ...

    @property
    def compacted(self) -> bool:
        """Whether the topic is compacted."""
        ...

    @property
    def has_batches(self) -> bool:
        """Whether :meth:`read` can return the headers of record batches."""
        ...

    async def read(
        self,
        ranges: Sequence[Range],
        take: Callable[[RecordBatch], None],
        take_headers: Callable[[RecordBatch], None] | None = None,
    ) -> None:
        """Pass all records in these ranges to ``take``, in batches of ``part, off, timestamp_us,
        key_hash, record_hash``, and the record batches that have an offset in these ranges to
        ``take_headers``, with the columns ``batch_headers.BATCHES``."""


async def audit(
    content: JournalContent,
    source: AuditedTopic,
    topic: str,
    *,
    group: str | None = None,
    group_offsets: AuditedGroupOffsets | None = None,
    settings: AuditSettings | None = None,
    memory_limit: int | None = None,
) -> AuditResult:
    """Compare what a journal says about a topic with the topic.

    ``group`` is required if consumers of several groups share the journal. ``group_offsets`` are
    the committed offsets of the group before ``content`` was read; without them, the audit finds a
    member without a journal only if another member continued after it. ``memory_limit``: bytes for
    the journal's rows and the comparison together; the rest goes to a temporary folder. By default,
    the rows and 80 % of the machine's memory. Raises ConfigError, also if the limit is too low.
    """
    settings = settings or AuditSettings()
    group, sessions = group_and_sessions(content, topic, group)
    left = None if memory_limit is None else max(memory_limit - content.table.nbytes, _LEAST)
    database = database_of(content.table, topic, group, left)
    try:
        facts = database.rows("SELECT DISTINCT facts FROM journal WHERE kind = 'TOPIC'")
        comparison = Comparison(
            database,
            topic,
            source.bounds,
            sessions,
            handler_order_of((text for (text,) in facts), sessions),
            settings,
            compacted=source.compacted,
            batches=source.has_batches,
            group_offsets=group_offsets,
        )
        return await _compared(comparison, sessions, source, group, database)
    finally:
        database.close()


async def _compared(
    comparison: Comparison,
    sessions: tuple[SessionState, ...],
    source: AuditedTopic,
    group: str | None,
    database: LocalDatabase,
) -> AuditResult:
    headers: list[RecordBatch] = []
    take_headers = headers.append if comparison.batches() else None
    windows = ranges = comparison.windows()
    read = 0
    two_tiers = comparison.in_two_tiers(windows)
    if two_tiers:
        read, ranges = await differing(database, comparison, source, take_headers)
    found = _Chunks(database, "source")
    # All windows are read once, so the headers of all batches are known.
    await source.read(comparison.compare(ranges), found.take, None if two_tiers else take_headers)
    found.put()
    if take_headers is not None:
        _put_headers(database, headers)
    if not two_tiers:
        ((read,),) = database.rows("SELECT count(*) FROM source")
    return comparison.result(group, sessions, ranges, read, two_tiers=two_tiers)


def _put_headers(database: LocalDatabase, headers: Sequence[RecordBatch]) -> None:
    database.put("batches", BATCHES, [])
    if headers:
        names = joined(", ", map(database.dialect.identifier, BATCHES))
        query = compose("SELECT {names} FROM chunk", names=names)
        database.insert("batches", pa.Table.from_batches(headers), query)


async def differing(
    database: LocalDatabase,
    comparison: Comparison,
    source: AuditedTopic,
    take_headers: Callable[[RecordBatch], None] | None = None,
) -> tuple[int, list[Range]]:
    """The number of records of which fingerprints were read, and the ranges in which they differ
    from the journal's. ``take_headers`` gets the headers of all record batches."""
    windows = comparison.windows()
    found = _Chunks(database, "read_fingerprints", comparison.fingerprints("chunk"))
    await source.read(windows, found.take, take_headers)
    found.put()
    database.define("source_fingerprints", MERGED)
    return comparison.differing(windows)


def group_and_sessions(
    content: JournalContent, topic: str, group: str | None
) -> tuple[str | None, tuple[SessionState, ...]]:
    """The group to audit, with its sessions. Raises ConfigError if none or several groups match."""
    named = content.table.select(["topic", "group"]).unify_dictionaries()
    known = named.group_by(["topic", "group"]).aggregate([])
    pairs = zip(known["topic"].to_pylist(), known["group"].to_pylist(), strict=True)
    chosen = group_of(pairs, topic, group)
    return chosen, sessions_of_group(content.sessions, chosen)


def database_of(
    journal: Table, topic: str, group: str | None, memory_limit: int | None = None
) -> LocalDatabase:
    """A database with a journal's rows of one topic and group, and no records of the topic. For
    ``memory_limit`` see :class:`LocalDatabase`."""
    database = LocalDatabase(memory_limit)
    names = [_NAMES.get(name, name) for name in journal.column_names]
    database.add("every_row", journal.rename_columns(names))
    database.put("audited", {"topic": "STRING", "of_group": "STRING"}, [(topic, group)])
    database.enumerate("session_name", "SELECT DISTINCT session FROM every_row ORDER BY session")
    database.view("journal", _AUDITED_ROWS)
    record = {"part": "INT", "off": "BIGINT"}
    known = dict.fromkeys(("timestamp_us", "key_hash", "record_hash"), "BIGINT")
    database.put("source", {**record, **known}, [])
    counted = dict.fromkeys(("bucket", "records", "mixed", "total"), "BIGINT")
    database.put("read_fingerprints", {"part": "INT", **counted}, [])
    return database


class _Chunks:
    """Collects records and inserts them into a table in large chunks."""

    def __init__(
        self,
        database: LocalDatabase,
        name: str,
        query: Text = "SELECT part, off, timestamp_us, key_hash, record_hash FROM chunk",
    ) -> None:
        self._database = database
        self._name = name
        self._query: Text = query
        self._batches: list[RecordBatch] = []
        self._rows = 0

    def take(self, records: RecordBatch) -> None:
        """Add records."""
        self._batches.append(records)
        self._rows += records.num_rows
        if self._rows >= _ENOUGH:
            self.put()

    def put(self) -> None:
        """Insert the collected records."""
        if self._batches:
            chunk = pa.Table.from_batches(self._batches)
            self._database.insert(self._name, chunk, self._query)
        self._batches, self._rows = [], 0
