"""The views of a journal in Spark say what they say in DuckDB."""

from __future__ import annotations

import re
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from unit.audit.injected_anomalies import CASES, written

from asyncrevoke.journal.segments import seal_session, sessions
from asyncrevoke.journal.views import VIEWS, open_views
from asyncrevoke.spark.audits.journal import journal_views

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_both_engines_see_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    written(tmp_path, *CASES)
    for session in sessions(tmp_path)[::2]:
        seal_session(session)
    journal_views(spark, tmp_path)
    with open_views(tmp_path) as database:
        for name in VIEWS:
            local: Any = database.table(name).to_arrow_table()
            frame = spark.table(name)
            assert frame.columns == local.column_names
            # Spark's times as Python gives them are of this machine's zone.
            found: list[list[Any]] = [list(row) for row in frame.collect()]
            rows = sorted(repr([_utc(value) for value in row]) for row in found)
            wanted = sorted(map(repr, (list(row.values()) for row in local.to_pylist())))
            assert rows
            assert rows == wanted, name


def test_the_documented_queries_run_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    written(tmp_path, *CASES)
    journal_views(spark, tmp_path)
    page = (Path(__file__).parents[3] / "docs/how-to/journal-format.md").read_text()
    queries = re.findall(r'^[A-Z_]+ = """(.*?)"""', page, re.MULTILINE | re.DOTALL)
    assert len(queries) == 3
    session: Any = spark
    with open_views(tmp_path) as database:
        for query in queries:
            wanted = [len(database.sql(query).fetchall()), database.sql(query).columns]
            frame = session.sql(query.replace('"', "`"))
            assert [frame.count(), frame.columns] == wanted


def _utc(value: Any) -> object:
    return value.astimezone(UTC).replace(tzinfo=None) if hasattr(value, "astimezone") else value
