"""The views of a journal, in SQL that both DuckDB and Spark can run after two replacements.

Each view reads ``journal`` (the columns of ``journal/format/schema.py``) and earlier views. Names
are in double quotes, and ``timestamp(...)`` converts microseconds since the epoch: an engine
replaces both by its own syntax.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from asyncrevoke.journal.reading import check_damage, read_journal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_OWNERSHIP: Final = """
    SELECT session_id, "group", member, generation, topic, "partition", "offset",
           timestamp(since_us) AS since, timestamp(until_us) AS until,
           CAST(until_us - since_us AS DOUBLE) / 1000000 AS seconds, ended_by,
           since_us, until_us
    FROM (SELECT session_id, "group", member, generation, topic, "partition", "offset", kind,
                 at_us AS since_us, lead(at_us) OVER own AS until_us,
                 lead(kind) OVER own AS ended_by
          FROM journal WHERE kind IN ('ASSIGN', 'RELEASED', 'LOST')
          WINDOW own AS (PARTITION BY session_id, topic, "partition" ORDER BY seq)) AS changes
    WHERE kind = 'ASSIGN'
"""

# A change begins a rebalance if it follows a change of another kind, or of another generation.
_REBALANCES: Final = """
    SELECT session_id, "group", max(member) AS member, max(generation) AS generation,
           timestamp(min(at_us)) AS began, timestamp(max(at_us)) AS ended,
           CAST(max(at_us) - min(at_us) AS DOUBLE) / 1000000 AS seconds,
           count(CASE WHEN kind = 'RELEASED' THEN 1 END) AS released,
           count(CASE WHEN kind = 'LOST' THEN 1 END) AS lost,
           count(CASE WHEN kind = 'WITHDRAWN' THEN 1 END) AS withdrawn,
           count(CASE WHEN kind = 'ASSIGN' THEN 1 END) AS assigned
    FROM (SELECT *, sum(begins) OVER (PARTITION BY session_id ORDER BY seq) AS number
          FROM (SELECT session_id, "group", member, generation, seq, at_us, kind,
                       CASE WHEN before IS NULL THEN 1
                            WHEN before = 'ASSIGN' AND kind <> 'ASSIGN' THEN 1
                            WHEN (kind = before OR kind = 'REVOKE_BEGIN')
                                 AND generation IS DISTINCT FROM earlier THEN 1
                            ELSE 0 END AS begins
                FROM (SELECT session_id, "group", member, generation, seq, at_us, kind,
                             lag(kind) OVER own AS before, lag(generation) OVER own AS earlier
                      FROM journal
                      WHERE kind IN ('ASSIGN', 'REVOKE_BEGIN', 'WITHDRAWN', 'RELEASED', 'LOST')
                      WINDOW own AS (PARTITION BY session_id ORDER BY seq)) AS steps
                ) AS marked) AS numbered
    GROUP BY session_id, "group", number
"""

_HANDLER_DURATIONS: Final = """
    SELECT session_id, "group", topic, "partition", "offset", attempt, outcome, error_type,
           timestamp(started_us) AS started, timestamp(at_us) AS ended,
           CAST(at_us - started_us AS DOUBLE) / 1000000 AS seconds
    FROM journal WHERE kind = 'ATTEMPT' AND attempt IS NOT NULL AND started_us IS NOT NULL
"""

_STALLS: Final = """
    SELECT "group", topic, "partition", previous_session, session_id,
           timestamp(stopped_us) AS stopped, timestamp(resumed_us) AS resumed,
           CAST(resumed_us - stopped_us AS DOUBLE) / 1000000 AS seconds
    FROM (SELECT "group", topic, "partition", session_id, resumed_us,
                 lag(session_id) OVER turns AS previous_session,
                 lag(worked_until_us) OVER turns AS stopped_us
          FROM (SELECT o.session_id, o."group", o.topic, o."partition", o.since_us,
                       min(c.started_us) AS resumed_us, max(c.at_us) AS worked_until_us
                FROM ownership AS o
                JOIN journal AS c ON c.session_id = o.session_id AND c.topic = o.topic
                     AND c."partition" = o."partition" AND c.kind = 'ATTEMPT'
                     AND c.attempt IS NOT NULL AND c.started_us >= o.since_us
                     AND (o.until_us IS NULL OR c.started_us <= o.until_us)
                GROUP BY o.session_id, o."group", o.topic, o."partition", o.since_us) AS tenures
          WINDOW turns AS (PARTITION BY "group", topic, "partition"
                           ORDER BY since_us, session_id)) AS handovers
    WHERE stopped_us IS NOT NULL
"""

VIEWS: Final[Mapping[str, str]] = {
    "ownership": _OWNERSHIP,
    "rebalances": _REBALANCES,
    "handler_durations": _HANDLER_DURATIONS,
    "stalls": _STALLS,
}
"""The query of each view. A view follows those that it reads."""


# lock() prevents queries from changing these settings.
DATABASE_SETTINGS: Final = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}


def lock(database: Any) -> None:  # noqa: ANN401 - of an extra
    """Prevent queries of this DuckDB connection from opening files that are not open yet, and from
    changing settings."""
    database.execute("SET enable_external_access = false")
    database.execute("SET lock_configuration = true")


def open_views(path: Path, max_memory: int | None = None) -> Any:  # noqa: ANN401 - of an extra
    """A DuckDB connection (extra ``audit``) with the rows of a journal as ``journal``, and the
    views ``ownership``, ``rebalances``, ``handler_durations`` and ``stalls``. Times are in UTC.

    The rows are those at the time of the call, in memory; for ``max_memory`` see
    :func:`~asyncrevoke.journal.reading.read_journal`. Queries cannot read or write files; export
    results, for example, as Arrow tables. Raises ConfigError, and DamagedJournalError if rows were
    lost or changed.
    """
    content = read_journal(path, max_memory)
    check_damage(content.sessions)
    rows = content.table
    database = import_module("duckdb").connect(":memory:", config=DATABASE_SETTINGS)
    database.register("journal", rows)
    for name, query in VIEWS.items():
        written = query.replace("timestamp(", "make_timestamp(")
        database.execute(f"CREATE VIEW {name} AS {written}")
    lock(database)
    return database
