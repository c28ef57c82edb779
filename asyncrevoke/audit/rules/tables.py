"""The tables that several rules read, and the parameters that decide how they are built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

from asyncrevoke.audit.sql.text import compose

if TYPE_CHECKING:
    from asyncrevoke.audit.sql.dialect import SqlDialect
    from asyncrevoke.audit.sql.text import Sql, Text


class RuleParameters(NamedTuple):
    """Parameters of the rules.

    ``ordered``: all handlers of the topic run in order, by key or (``by_partition``) by partition.
    ``nulls``: records with null keys are ordered, too. ``keyless``: some sessions have no hashes of
    keys although the order is by key; the rules then use the keys of the topic, if ``keys`` says
    that they are known. ``incomplete``: rows of some sessions are missing. ``unaccounted``: no
    journal accounts for some committed offsets.
    """

    skew_us: int
    compacted: bool
    ordered: bool
    by_partition: bool
    nulls: bool
    keyless: bool = False
    keys: bool = True
    incomplete: bool = False
    unaccounted: bool = False


SOUGHT: Final = """
    SELECT sought.part, max(greatest(sought.lo, coalesce(c.off, 0))) AS lo, sought.hi
    FROM (SELECT resets.part, resets.session, resets.off AS hi, resets.at_us,
                 max(spans.since) AS since, max_by(spans.off, spans.since) AS lo
          FROM events AS resets
          JOIN spans ON resets.session = spans.session AND resets.part = spans.part
              AND resets.at_us >= spans.since
              AND (spans.off <> resets.off OR resets.at_us > spans.since + 10000)
          WHERE resets.kind = 'RESET'
          GROUP BY resets.part, resets.session, resets.off, resets.at_us) AS sought
    LEFT JOIN commits AS c ON c.session = sought.session AND c.part = sought.part
        AND c.at_us >= sought.since AND c.at_us < sought.at_us
    WHERE sought.hi > sought.lo
    GROUP BY sought.part, sought.session, sought.since, sought.hi, sought.at_us
"""
"""The offsets that a seek may have skipped: from the offset that was committed then to the target
of the seek. The row of a seek may follow the end of the ownership in which the session called it,
even the next ASSIGN row, which then has the offset of the seek."""

TENANCIES: Final = """
    SELECT spans.part, spans.session, spans.generation, spans.since,
           least(spans.until, coalesce(last_rows.at_us, spans.until)) AS until
    FROM spans LEFT JOIN last_rows ON last_rows.session = spans.session
"""
"""The time in which a session owned a partition, up to the last row of its journal."""


def definitions(sql: SqlDialect, terms: RuleParameters) -> dict[str, Text]:
    """The tables that several rules read, in the order in which they must be defined."""
    skew = terms.skew_us
    keyed: dict[str, Text] = {"keyed": _keyed(terms)} if terms.keyless else {}
    tables: dict[str, Text] = {
        "never_done": compose(
            """
            SELECT /*+ BROADCAST(windows) */
                   source.part, source.off, covers.at_us, covers.session, covers.beyond
            FROM source JOIN windows ON windows.part = source.part
            LEFT JOIN first_done ON first_done.part = source.part AND first_done.off = source.off
            {covering}
            WHERE first_done.off IS NULL AND source.off >= windows.lo
              AND source.off < windows.committed
        """,
            covering=sql.covering("source", "LEFT"),
        ),
        "sought": SOUGHT,
        "tenancies": TENANCIES,
        # Calls that started after a commit covered their record, without a seek back.
        "after_commit": compose(
            """
            SELECT * FROM (
                SELECT attempts.*, covers.at_us AS covered, covers.session AS coverer, covers.beyond
                FROM attempts {covering}) c
            WHERE (done OR attempt IS NOT NULL) AND s > covered + if(session = coverer, 0, {skew})
              AND NOT EXISTS (SELECT 1 FROM resets WHERE resets.part = c.part
                              AND resets.off <= c.off AND resets.at_us >= c.covered
                              AND resets.at_us <= c.s)
        """,
            covering=sql.covering("attempts"),
            skew=skew,
        ),
        "repeated": """
            SELECT a.* FROM attempts AS a JOIN (
                SELECT part, off FROM attempts GROUP BY part, off HAVING count(*) > 1) again
                ON a.part = again.part AND a.off = again.off
        """,
        "concurrent": compose(
            """
            SELECT a.part, a.off, a.key_hash, a.session, b.session AS other, a.s, a.f,
                   b.s AS other_s, b.f AS other_f
            FROM repeated AS a JOIN repeated AS b ON a.part = b.part AND a.off = b.off
            WHERE (a.done OR a.attempt IS NOT NULL) AND (b.done OR b.attempt IS NOT NULL)
              AND a.session < b.session AND a.s + {skew} < b.f AND b.s + {skew} < a.f
        """,
            skew=skew,
        ),
    }
    return keyed | {"disordered": _disordered(terms)} | tables


def in_lanes(terms: RuleParameters) -> Sql:
    """The ordered calls with their ``lane``: a key, or NULL for the whole partition."""
    return compose(
        """
        SELECT *, if({by_partition}, NULL, key_hash) AS lane FROM {keyed}
        WHERE attempt IS NOT NULL AND {ordered}
          AND ({by_partition} OR {nulls} OR key_hash IS NOT NULL)
    """,
        by_partition=boolean(terms.by_partition),
        keyed="keyed" if terms.keyless else "attempts",
        nulls=boolean(terms.nulls),
        ordered=boolean(terms.ordered),
    )


def _disordered(terms: RuleParameters) -> Sql:
    """The lanes in which a call started before a call for an earlier record, or for the same
    record, had ended. Only these can have calls out of order. Records of one call have the same
    times."""
    return compose(
        """
        SELECT DISTINCT part, lane FROM (
            SELECT part, lane, session, s, f, lag(session) OVER earlier AS last_session,
                   lag(s) OVER earlier AS last_s, lag(f) OVER earlier AS last_f,
                   max(f) OVER (PARTITION BY part, lane ORDER BY off, s, f
                                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS ended
            FROM ({in_lanes}) calls
            WINDOW earlier AS (PARTITION BY part, lane ORDER BY off, s, f)) compared
        WHERE s < ended AND NOT (s = last_s AND f = last_f AND session = last_session)
    """,
        in_lanes=in_lanes(terms),
    )


def _keyed(terms: RuleParameters) -> Sql:
    """The calls whose keys are known."""
    return compose(
        """
        SELECT a.part, a.off, coalesce(a.key_hash, source.key_hash) AS key_hash, a.session, a.s,
               a.f, a.done, a.attempt
        FROM attempts AS a LEFT JOIN hashless ON hashless.session = a.session
        LEFT JOIN source ON source.part = a.part AND source.off = a.off
        WHERE hashless.session IS NULL OR (source.off IS NOT NULL AND {keys})
    """,
        keys=boolean(terms.keys),
    )


def boolean(value: bool) -> LiteralString:
    """``true`` or ``false``."""
    return "true" if value else "false"
