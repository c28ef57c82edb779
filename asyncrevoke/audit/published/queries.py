"""The tables and queries about results that were published in transactions.

Input are the tables ``journal``, ``attempts``, ``events``, ``spans``, ``resets``, ``windows``,
``covers`` and ``unaccounted`` of the audited topic (:mod:`asyncrevoke.audit.rules.views`), and

- ``result_topics`` (``facts, topic``): the number of the topic of results, for each text that names
  one in the journal,
- ``log_ends`` (``topic, part, lo, hi``): the offsets of each partition that were read,
- ``visible`` (``topic, part, off``): the records in them that a reader with ``read_committed``
  sees.

A row of the journal about a result says where it is if its transaction was committed. A later
transaction may have written the results of the same record again, elsewhere, because the first one
was aborted.
"""

from __future__ import annotations

from typing import Final

from asyncrevoke.audit.sql.text import Sql, Text, compose

RESULT_TOPICS: Final = {"facts": "STRING", "topic": "INT"}
LOG_ENDS: Final = {"topic": "INT", "part": "INT", "lo": "BIGINT", "hi": "BIGINT"}
VISIBLE: Final = {"topic": "INT", "part": "INT", "off": "BIGINT"}

FACTS: Final = "SELECT DISTINCT facts FROM journal WHERE kind = 'RESULT' AND facts IS NOT NULL"
"""The facts of the rows of results."""

WRITTEN: Final = """
    SELECT session, seq, at_us, journal.part, journal.off, checksum AS number, result_topics.topic,
           records AS to_part, last_offset AS to_off,
           CAST(session AS STRING) || '/' || CAST(checksum AS STRING) AS txn
    FROM journal JOIN result_topics ON result_topics.facts = journal.facts
    WHERE kind = 'RESULT' AND journal.part IS NOT NULL AND journal.off IS NOT NULL
      AND checksum IS NOT NULL AND records IS NOT NULL AND last_offset IS NOT NULL
"""
"""The table ``written``: a row for each result; ``txn`` is its transaction."""

FIRST_WRITTEN: Final = """
    SELECT topic, to_part, min(to_off), max(to_off) FROM written GROUP BY topic, to_part
"""
"""The first and the last offset of results in each partition, by the journal."""

PLACED: Final = """
    SELECT w.*,
           CASE WHEN v.off IS NOT NULL THEN 'seen'
                WHEN w.to_off >= 0 AND w.to_off < e.lo THEN 'removed'
                WHEN w.to_off >= e.lo AND w.to_off < e.hi THEN 'unseen'
                ELSE 'unknown' END AS state
    FROM written AS w
    LEFT JOIN log_ends AS e ON e.topic = w.topic AND e.part = w.to_part
    LEFT JOIN visible AS v ON v.topic = w.topic AND v.part = w.to_part AND v.off = w.to_off
"""
"""The table ``placed``: each result, and whether it is visible."""

_PLACES: Final = "list((placed.topic, to_part, to_off, number, CAST(placed.session AS STRING)))"

DOUBLED: Final = """
    SELECT d.part, d.off, d.last_us, d.places,
           EXISTS (SELECT 1 FROM resets WHERE resets.part = d.part AND resets.off <= d.off
                   AND resets.at_us
                       >= d.first_us - if(resets.session = d.first_session, 0, {skew})
                   AND resets.at_us <= d.last_us + {skew}) AS sought
    FROM (SELECT part, off, min(at_us) AS first_us, max(at_us) AS last_us,
                 min_by(placed.session, at_us) AS first_session, {places} AS places
          FROM placed WHERE state = 'seen'
          GROUP BY part, off HAVING count(DISTINCT txn) > 1) AS d
    ORDER BY d.part, d.off
"""


def doubled(skew_us: int) -> Sql:
    """The records with visible results of several transactions, and whether a seek explains it."""
    return compose(DOUBLED, skew=skew_us, places=_PLACES)


_ABSENT: Final = """
    WITH absent AS (
        SELECT placed.part, placed.off, max(placed.at_us) AS last_us, {places} AS places,
               max_by(placed.session, placed.at_us) AS last_session,
               list(DISTINCT placed.session) AS sessions,
               bool_or(state = 'unseen') AS unseen, bool_or(state = 'unknown') AS unknown,
               {hidden} OR EXISTS (SELECT 1 FROM unaccounted AS u WHERE u.part = placed.part
                                   AND placed.off >= u.lo AND placed.off < u.hi) AS hidden
        FROM placed JOIN windows ON windows.part = placed.part
        WHERE placed.off < windows.committed
        GROUP BY placed.part, placed.off HAVING NOT bool_or(state = 'seen')
    ), redone AS (
        SELECT DISTINCT absent.part, absent.off
        FROM absent JOIN attempts AS a ON a.part = absent.part AND a.off = absent.off AND a.done
        LEFT JOIN covers ON covers.part = absent.part AND covers.above <= absent.off
             AND covers.beyond > absent.off
        WHERE a.s > absent.last_us + if(a.session = absent.last_session, 0, {skew})
           OR (a.session = covers.session AND NOT list_contains(absent.sessions, a.session))
    )
    SELECT part, off, last_us, places, unseen, unknown, hidden
    FROM absent ANTI JOIN redone USING (part, off)
    ORDER BY part, off
"""


def absent(skew_us: int, *, incomplete: bool) -> Sql:
    """The committed records of which results were written and none is visible: whether one is
    certainly not visible, whether that is unknown of one, and whether rows about the record may be
    missing. ``incomplete``: rows are missing in some session.

    Not those whose last call has published nothing: it began after their results were written, or
    it is of the session that has committed them, and has written none."""
    hidden: Text = "false"
    if incomplete:
        hidden = "EXISTS (SELECT 1 FROM hidden WHERE hidden.part = placed.part)"
    return compose(_ABSENT, places=_PLACES, hidden=hidden, skew=skew_us)


DIVIDED: Final = compose(
    """
    SELECT placed.part, min(placed.off), max(placed.off), max(placed.at_us), {places}
    FROM placed JOIN (SELECT txn FROM placed GROUP BY txn
                      HAVING bool_or(state = 'seen') AND bool_or(state = 'unseen')) AS halves
        ON halves.txn = placed.txn
    WHERE state = 'unseen' GROUP BY placed.txn, placed.part ORDER BY placed.part, min(placed.off)
""",
    places=_PLACES,
)
"""The transactions of which some results are visible and others are not: what is not, by
partition of the records."""

LAST_CHANGES: Final = """
    SELECT session, part, seq, at_us, kind FROM events
    WHERE kind IN ('ASSIGN', 'RELEASED', 'LOST')
"""
"""The table ``changes``: when a session got a partition, or has released or lost it."""

_OF_LOST_OWNERS: Final = """
    SELECT p.part, p.off, max(p.at_us), list((p.topic, p.to_part, p.to_off, p.number,
                                              CAST(p.session AS STRING))),
           max(p.kind), max(p.other)
    FROM (SELECT placed.*, c.kind AS kind,
                 (SELECT max(CAST(o.session AS STRING)) FROM spans AS o
                  WHERE o.part = placed.part AND o.session <> placed.session
                    AND o.since > c.at_us AND o.since + {skew} < placed.at_us
                    AND o.until > placed.at_us + {skew}) AS other
          FROM placed ASOF JOIN changes AS c
              ON c.session = placed.session AND c.part = placed.part AND placed.seq >= c.seq
          WHERE state = 'seen') AS p
    WHERE p.kind <> 'ASSIGN' OR p.other IS NOT NULL
    GROUP BY p.part, p.off ORDER BY p.part, p.off
"""


def of_lost_owners(skew_us: int) -> Sql:
    """The records with visible results that a session wrote after it had released or lost the
    partition, or after another one was assigned it (``other``)."""
    return compose(_OF_LOST_OWNERS, skew=skew_us)


UNACCOUNTED_RESULTS: Final = """
    SELECT v.topic, v.part, min(v.off), max(v.off), count(*)
    FROM visible AS v JOIN first_written AS f ON f.topic = v.topic AND f.part = v.part
    LEFT JOIN written AS w ON w.topic = v.topic AND w.to_part = v.part AND w.to_off = v.off
    WHERE w.part IS NULL AND v.off >= f.lo AND v.off <= f.hi
    GROUP BY v.topic, v.part ORDER BY v.topic, v.part
"""
"""The visible records that no journal names, by partition, within ``first_written``."""

FIRST: Final = {"topic": "INT", "part": "INT", "lo": "BIGINT", "hi": "BIGINT"}
"""The columns of ``first_written``: from the first offset that a journal names to the last one of
which all sessions have said so."""
