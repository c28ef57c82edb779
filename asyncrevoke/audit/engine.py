"""The local engine: an audit on one machine, by DuckDB."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from asyncrevoke.audit.comparison import (
    Audited,
    Comparison,
    Settings,
    group_of,
    of_group,
    orders_of,
)
from asyncrevoke.audit.dialect import DuckDialect
from asyncrevoke.journal.arrow import Table, pa, pc

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from asyncrevoke.audit.comparison import Bounds, Range
    from asyncrevoke.journal.reading import JournalContent

# Records that are put into a table at once.
_ENOUGH = 200_000
_WORD = re.compile(r"\w+")
# What the rules call it.
_NAMES = {"session_id": "session", "partition": "part", "offset": "off"}


class Source(Protocol):
    """The topic."""

    @property
    def bounds(self) -> Mapping[int, Bounds]:
        """Of each partition."""
        ...

    @property
    def compacted(self) -> bool:
        """Whether records vanish from the middle of the log."""
        ...

    async def read(self, ranges: Sequence[Range], take: Callable[[Table], None]) -> None:
        """Give all records in these ranges to ``take``: tables of ``part, off, timestamp_us,
        key_hash, record_hash``."""
        ...


async def audit(
    content: JournalContent,
    source: Source,
    topic: str,
    *,
    group: str | None = None,
    settings: Settings | None = None,
) -> Audited:
    """Compare what a journal says of a topic with the topic.

    ``group`` is needed if consumers of several groups share the journal. Raises ConfigError.
    """
    settings = settings or Settings()
    content, group = of_one_group(content, topic, group)
    facts = content.table.filter(pc.equal(content.table["kind"], "TOPIC"))["facts"].to_pylist()
    orders = orders_of(facts, content.sessions)
    database = LocalDatabase(content.table)
    comparison = Comparison(
        database,
        topic,
        source.bounds,
        content.sessions,
        orders,
        settings,
        compacted=source.compacted,
    )
    windows = ranges = comparison.windows()
    read = 0
    two_tiers = comparison.in_two_tiers(windows)
    if two_tiers:
        read, ranges = await differing(database, comparison, source)
    found = _Chunks(database, "source")
    await source.read(comparison.compare(ranges), found.take)
    found.put()
    if not two_tiers:
        ((read,),) = database.rows("SELECT count(*) FROM source")
    return comparison.audited(group, content.sessions, ranges, read, two_tiers=two_tiers)


async def differing(
    database: LocalDatabase, comparison: Comparison, source: Source
) -> tuple[int, list[Range]]:
    """How many records were read for fingerprints, and where those of the journal differ."""
    windows = comparison.windows()
    found = _Chunks(database, "read_fingerprints", comparison.fingerprints("chunk"))
    await source.read(windows, found.take)
    found.put()
    database.define(
        "source_fingerprints",
        "SELECT part, bucket, CAST(sum(records) AS BIGINT) AS records, bit_xor(mixed) AS mixed,"
        " CAST(sum(total) AS BIGINT) AS total FROM read_fingerprints GROUP BY part, bucket",
    )
    return comparison.differing(windows)


def of_one_group(
    content: JournalContent, topic: str, group: str | None
) -> tuple[JournalContent, str | None]:
    """The part of a journal that is about one group and one topic. Raises ConfigError."""
    table = content.table
    known = table.select(["topic", "group"]).group_by(["topic", "group"]).aggregate([])
    pairs = zip(known["topic"].to_pylist(), known["group"].to_pylist(), strict=True)
    chosen = group_of(pairs, topic, group)
    of_chosen = pc.is_null(table["group"]) if chosen is None else pc.equal(table["group"], chosen)
    about = table.filter(pc.and_(pc.equal(table["topic"], topic), of_chosen))
    return content._replace(table=about, sessions=of_group(content.sessions, chosen)), chosen


class LocalDatabase:
    """DuckDB, in memory."""

    def __init__(self, journal: Table) -> None:
        self.dialect = DuckDialect()
        self._db: Any = import_module("duckdb").connect()
        names = [_NAMES.get(name, name) for name in journal.column_names]
        self._db.register("journal", journal.rename_columns(names))
        self._queries: dict[str, str] = {}
        record = {"part": "INT", "off": "BIGINT"}
        known = dict.fromkeys(("timestamp_us", "key_hash", "record_hash"), "BIGINT")
        self.put("source", {**record, **known}, [])
        counted = dict.fromkeys(("bucket", "records", "mixed", "total"), "BIGINT")
        self.put("read_fingerprints", {"part": "INT", **counted}, [])

    def put(self, name: str, columns: Mapping[str, str], rows: Sequence[Sequence[object]]) -> None:
        """See :class:`~asyncrevoke.audit.comparison.Database`."""
        declared = ", ".join(f"{column} {kind}" for column, kind in columns.items())
        self._db.execute(f"CREATE TABLE {name} ({declared})")
        if rows:
            places = ", ".join("?" * len(columns))
            self._db.executemany(f"INSERT INTO {name} VALUES ({places})", [list(r) for r in rows])

    def define(self, name: str, query: str) -> None:
        """See :class:`~asyncrevoke.audit.comparison.Database`. It is made when it is asked for."""
        self._queries[name] = query

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """See :class:`~asyncrevoke.audit.comparison.Database`."""
        self._make(query)
        found: list[tuple[Any, ...]] = self._db.execute(query).fetchall()
        return found

    def _make(self, query: str) -> None:
        for name in _WORD.findall(query):
            if (needed := self._queries.pop(name, None)) is not None:
                self._make(needed)
                self._db.execute(f"CREATE TABLE {name} AS {needed}")

    def insert(self, name: str, chunk: Table, query: str) -> None:
        """Append what ``query`` gives of ``chunk``."""
        self._db.register("chunk", chunk)
        self._db.execute(f"INSERT INTO {name} {query}")
        self._db.unregister("chunk")


class _Chunks:
    """Records on their way into a table: many at a time, as each time costs."""

    def __init__(
        self,
        database: LocalDatabase,
        name: str,
        query: str = "SELECT part, off, timestamp_us, key_hash, record_hash FROM chunk",
    ) -> None:
        self._database = database
        self._name = name
        self._query = query
        self._tables: list[Table] = []
        self._rows = 0

    def take(self, records: Table) -> None:
        """Some more."""
        self._tables.append(records)
        self._rows += records.num_rows
        if self._rows >= _ENOUGH:
            self.put()

    def put(self) -> None:
        """All of them are there now."""
        if self._tables:
            chunk = pa.concat_tables(self._tables)
            self._database.insert(self._name, chunk, self._query)
        self._tables, self._rows = [], 0
