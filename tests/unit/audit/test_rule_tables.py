"""The tables that decide which calls the rules compare record by record."""

from __future__ import annotations

from typing import TYPE_CHECKING, LiteralString

import pytest

from asyncrevoke.audit.rules.tables import RuleParameters, definitions
from asyncrevoke.audit.rules.views import views
from asyncrevoke.audit.sql.database import AuditDatabase
from asyncrevoke.audit.sql.text import compose
from asyncrevoke.audit.topic.record_hashes import RECORDS
from asyncrevoke.journal.format.schema import BUCKET

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


TERMS = RuleParameters(50_000, compacted=False, ordered=True, by_partition=False, nulls=True)
_JOURNAL = {
    "session": "STRING",
    "seq": "BIGINT",
    "kind": "STRING",
    "part": "INT",
    "off": "BIGINT",
    "key_hash": "BIGINT",
    "record_hash": "BIGINT",
    "attempt": "INT",
    "started_us": "BIGINT",
    "at_us": "BIGINT",
    "outcome": "STRING",
    "generation": "INT",
    "facts": "STRING",
}
_RANGES = {"part": "INT", "lo": "BIGINT", "hi": "BIGINT"}


_ATTEMPTS = {
    "session": "STRING",
    "part": "INT",
    "off": "BIGINT",
    "key_hash": "BIGINT",
    "record_hash": "BIGINT",
    "attempt": "INT",
    "s": "BIGINT",
    "f": "BIGINT",
    "outcome": "STRING",
    "done": "BOOLEAN",
}


def start(offset: int, at: int) -> tuple[object, ...]:
    return ("a", at, "START", 0, offset, 1, None, None, None, at, None, 1, None)


def attempt(offset: int, at: int, outcome: str = "ok") -> tuple[object, ...]:
    """A call that started at this time, and took 5 microseconds."""
    return ("a", 0, offset, 1, offset, 1, at, at + 5, outcome, outcome == "ok")


@pytest.fixture
def database() -> Iterator[AuditDatabase]:
    opened = AuditDatabase()
    yield opened
    opened.close()


def define(
    database: AuditDatabase,
    journal: Sequence[Sequence[object]],
    *,
    compared: Sequence[tuple[int, int, int]] = (),
    source: Sequence[Sequence[object]] = (),
    log: tuple[int, int, int] = (0, 0, 10 * BUCKET),
) -> None:
    """Define the tables of a journal of one partition; ``compared`` are its ranges."""
    calls = [row for row in journal if len(row) == len(_ATTEMPTS)]
    database.put("attempts", _ATTEMPTS, calls)
    database.put("journal", _JOURNAL, [row for row in journal if row not in calls])
    database.put("bounds", _RANGES, [log])
    database.put("ranges", _RANGES, compared)
    database.put("source", RECORDS, source)
    database.put("unaccounted", _RANGES, ())
    database.put("set_back", {"session": "STRING", **_RANGES, "at_us": "BIGINT"}, ())
    for tables in (views(10_000_000), definitions(TERMS)):
        for name, query in tables.items():
            database.define(name, query)


def rows_of(database: AuditDatabase, name: LiteralString) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    query = compose("SELECT * FROM {name}", name=name)
    database.pass_rows(query, 1000, lambda rows: found.extend(rows.to_pylist()))
    return found


def offsets_of(database: AuditDatabase, name: LiteralString) -> list[object]:
    return sorted(row["off"] for row in rows_of(database, name))  # type: ignore[type-var]


def test_calls_of_buckets_with_equal_fingerprints_are_not_compared_one_by_one(
    database: AuditDatabase,
) -> None:
    handled = (7, BUCKET + 7, 2 * BUCKET + 7)
    journal = [attempt(offset, offset) for offset in handled]
    define(database, journal, compared=[(0, BUCKET, 2 * BUCKET)])
    assert offsets_of(database, "uneven_calls") == [BUCKET + 7]


def test_calls_beyond_the_end_of_the_log_are_compared_one_by_one(database: AuditDatabase) -> None:
    journal = [attempt(offset, offset) for offset in (7, BUCKET + 7)]
    define(database, journal, log=(0, 0, BUCKET + 7))
    assert offsets_of(database, "uneven_calls") == [BUCKET + 7]


def test_compared_records_without_a_call_are_found(database: AuditDatabase) -> None:
    journal = [attempt(1, 1), attempt(3, 3)]
    source = [(0, offset, 0, 1, offset) for offset in (1, 2, 3)]
    define(database, journal, compared=[(0, 0, BUCKET)], source=source)
    assert offsets_of(database, "uneven_records") == [1, 2, 3]


@pytest.mark.parametrize(
    ("journal", "unended"),
    [
        ([start(1, 10), attempt(1, 10), start(2, 20), attempt(2, 20)], []),
        # A record that was handled twice.
        ([start(1, 10), attempt(1, 10, "error"), start(1, 30), attempt(1, 30)], []),
        # The journal has no rows for starts.
        ([attempt(1, 10), attempt(2, 20)], []),
        ([start(1, 10)], [1]),
        ([start(1, 10), attempt(1, 10), start(2, 20)], [1, 2]),
        # As many ends as starts, of other calls.
        ([start(1, 10), start(2, 20), attempt(1, 10), attempt(1, 20)], [1, 2]),
        ([start(1, 10), start(1, 20), attempt(1, 10), attempt(1, 30)], [1, 1]),
        ([start(1, 10), start(1, 10), attempt(2, 20), attempt(2, 20)], [1, 1]),
        # Other buckets are not looked at.
        ([start(1, 10), start(BUCKET, 20), attempt(BUCKET, 20)], [1]),
    ],
)
def test_started_calls_are_compared_where_starts_and_ends_differ(
    database: AuditDatabase, journal: Sequence[Sequence[object]], unended: list[int]
) -> None:
    define(database, journal)
    assert offsets_of(database, "unended_calls") == unended


def test_calls_for_deleted_records_are_found(database: AuditDatabase) -> None:
    journal = [attempt(offset, offset) for offset in (1, 5, 6, BUCKET)]
    define(database, journal, log=(0, 6, 10 * BUCKET))
    assert offsets_of(database, "deleted_calls") == [1, 5]
