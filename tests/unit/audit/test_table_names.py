"""The tables that a query of an audit names."""

from __future__ import annotations

from asyncrevoke.audit.sql.database import tables_of


def test_tables_come_after_from_and_join_and_columns_do_not() -> None:
    query = """
        SELECT a.off, live.off FROM journal AS a LEFT JOIN
               live ON live.session = a.session AND a.part IS DISTINCT FROM live.part
        WHERE EXISTS (SELECT 1 FROM (SELECT * FROM resets) r JOIN journal AS b ON b.off = r.off)
    """
    assert tables_of(query) == ("journal", "live", "resets")
