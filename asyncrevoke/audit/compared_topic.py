"""Compares the journal in a database with the topic, whose records it reads once or twice."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Final, Protocol

from asyncrevoke.audit.comparison import Comparison
from asyncrevoke.audit.offsets import ALL_USED, Bounds, Range, UnusedHashes
from asyncrevoke.audit.rules.views import MERGED
from asyncrevoke.audit.sql.text import Text, columns, compose
from asyncrevoke.audit.topic.batch_reader import BATCHES
from asyncrevoke.audit.topic.record_hashes import RECORDS
from asyncrevoke.journal.format.arrow import RecordBatch, pa

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from asyncrevoke.audit.audited_group import AuditedGroup
    from asyncrevoke.audit.results.audit_result import PartialAudit
    from asyncrevoke.audit.sql.database import AuditDatabase

# Seconds after which a query is interrupted that had not started at the last attempt.
_INTERRUPT_AGAIN: Final = 0.05
# The number of records that are inserted at once.
_ENOUGH: Final = 200_000


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
        unused: UnusedHashes = ALL_USED,
    ) -> None:
        """Pass all records in these ranges to ``take``, in batches of ``part, off, timestamp_us,
        key_hash, record_hash``, and the record batches that have an offset in these ranges to
        ``take_headers``, with the columns ``batch_headers.BATCHES``. The hashes of ``unused`` may
        be null."""


async def compare(
    database: AuditDatabase, source: AuditedTopic, group: AuditedGroup, *, keys: bool = True
) -> PartialAudit:
    """Compare the partitions of ``source`` with the table ``journal``. ``keys``: the records of the
    source have hashes of keys."""
    database.put("source", RECORDS, [])
    counted = dict.fromkeys(("bucket", "records", "mixed", "total"), "BIGINT")
    database.put("read_fingerprints", {"part": "INT", **counted}, [])
    comparison = Comparison(
        database,
        group,
        source.bounds,
        compacted=source.compacted,
        keys=keys,
        batches=source.has_batches,
    )
    headers: list[RecordBatch] = []
    take_headers = headers.append if comparison.batches() else None
    windows = ranges = comparison.windows()
    read = 0
    two_tiers = comparison.in_two_tiers(windows)
    if two_tiers:
        read, ranges = await differing(database, comparison, source, take_headers)
    wanted, unused = comparison.compare(ranges), comparison.unused_hashes()
    found = Chunks(database, "source")
    # In two tiers, all windows were read, so the headers of all batches are known.
    async with nullcontext() if two_tiers else _rules_of_journal(database, comparison):
        await source.read(wanted, found.take, None if two_tiers else take_headers, unused)
        found.put()
    if take_headers is not None:
        _put_headers(database, headers)
    if not two_tiers:
        ((read,),) = database.rows("SELECT count(*) FROM source")
    return comparison.result(ranges, read, two_tiers=two_tiers)


def _put_headers(database: AuditDatabase, headers: Sequence[RecordBatch]) -> None:
    database.put("batches", BATCHES, [])
    if headers:
        query = compose("SELECT {names} FROM chunk", names=columns(BATCHES))
        database.insert("batches", pa.Table.from_batches(headers), query)


async def differing(
    database: AuditDatabase,
    comparison: Comparison,
    source: AuditedTopic,
    take_headers: Callable[[RecordBatch], None] | None = None,
) -> tuple[int, list[Range]]:
    """The number of records of which fingerprints were read, and the ranges in which they differ
    from the journal's. ``take_headers`` gets the headers of all record batches."""
    windows = comparison.windows()
    found = Chunks(database, "read_fingerprints", comparison.fingerprints("chunk"))
    hashless = comparison.hashless_partitions
    async with _rules_of_journal(database, comparison):
        await source.read(windows, found.take, take_headers, UnusedHashes(hashless, hashless))
        found.put()
    database.define("source_fingerprints", MERGED)
    return comparison.differing(windows)


@asynccontextmanager
async def _rules_of_journal(
    database: AuditDatabase, comparison: Comparison
) -> AsyncGenerator[None]:
    """Apply the rules that need no records, in a thread, while the caller reads the topic."""
    applied = asyncio.ensure_future(asyncio.to_thread(comparison.apply_rules_of_journal))
    try:
        yield
    except BaseException:
        while not applied.done():
            database.interrupt()
            await asyncio.wait([applied], timeout=_INTERRUPT_AGAIN)
        applied.exception()  # the error of the interrupted query
        raise
    await applied


class Chunks:
    """Collects records and inserts them into a table in large chunks."""

    def __init__(
        self,
        database: AuditDatabase,
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
