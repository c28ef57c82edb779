"""The tables and rules of share groups.

No partition has an owner, nothing is committed, and records have no order: the broker delivers each
record under a lock, and members acknowledge it. A record is *ended* if a journal has an
acknowledgement that accepts or rejects it. The window of a partition goes from the first offset
that a journal has to the group's start offset: below that, the group delivers no record again.

A second delivery is *explained* by a lost lock, by a release, by an acknowledgement that the broker
has not confirmed, and by a member whose process was killed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString

from asyncrevoke.audit.anomalies import AnomalyKind
from asyncrevoke.audit.rules.queries import Rules
from asyncrevoke.audit.sql.text import Text, compose

if TYPE_CHECKING:
    from asyncrevoke.audit.rules.tables import RuleParameters

# Offsets in journals are untrusted: room for adding 1.
_HIGHEST: Final = 2**62

_NO_TIME: Final = "CAST(NULL AS BIGINT)"

_RANGES: Final = compose(
    """
    SELECT session, seq, kind, part, outcome, off AS lo,
           least(greatest(off, coalesce(last_offset, off)), {highest}) AS hi,
           least(coalesce(started_us, at_us), at_us) AS sent_us, at_us, records, checksum
    FROM journal
    WHERE kind IN ('ACQUIRED', 'ACCEPT', 'RELEASE', 'REJECT', 'LOCK_LOST')
      AND off IS NOT NULL AND off < {highest}
    """,
    highest=_HIGHEST,
)

_WINDOWS: Final = """
    SELECT bounds.part, greatest(bounds.lo, known.lo) AS lo,
           bounds.lo AS log_start, bounds.hi AS log_end,
           least(bounds.hi, greatest(coalesce(ended_to.off, 0), bounds.lo, known.lo)) AS committed,
           least(bounds.hi, greatest(coalesce(ended_to.off, 0), coalesce(tried.off, 0))) AS hi
    FROM bounds
    JOIN known ON known.part = bounds.part
    LEFT JOIN (SELECT part, max(off) AS off FROM observed GROUP BY part) ended_to
        ON ended_to.part = bounds.part
    LEFT JOIN (SELECT part, max(hi) AS off FROM buckets GROUP BY part) tried
        ON tried.part = bounds.part
"""

# Acknowledged ranges, joined where they touch: few, also for many acknowledgements.
_ENDED: Final = """
    SELECT part, min(lo) AS lo, max(hi) + 1 AS beyond
    FROM (SELECT part, lo, hi, sum(fresh) OVER (PARTITION BY part ORDER BY lo, hi
                                                ROWS BETWEEN UNBOUNDED PRECEDING
                                                     AND CURRENT ROW) AS island
          FROM (SELECT part, lo, hi,
                       if(lo <= 1 + max(hi) OVER (PARTITION BY part ORDER BY lo, hi
                                                  ROWS BETWEEN UNBOUNDED PRECEDING
                                                       AND 1 PRECEDING), 0, 1) AS fresh
                FROM finals WHERE outcome IN ('ok', 'unknown')))
    GROUP BY part, island
"""

_NOT_ENDED: Final = """
    SELECT n.part, n.off, max(d.records) AS deliveries, max(d.checksum) AS most,
           max_by(d.session, d.at_us) AS session, max(d.at_us) AS at_us
    FROM (SELECT never_done.part, never_done.off
          FROM never_done ASOF LEFT JOIN ended
              ON ended.part = never_done.part AND never_done.off >= ended.lo
          WHERE ended.beyond IS NULL OR never_done.off >= ended.beyond) AS n
    LEFT JOIN acknowledged AS d
        ON d.kind = 'ACQUIRED' AND d.part = n.part AND n.off >= d.lo AND n.off <= d.hi
    GROUP BY n.part, n.off
"""

_AGAIN: Final = """
    SELECT r.part, r.off, r.session, r.s, any_value(r.key_hash) AS key_hash,
           min(k.at_us) AS ended_us, min_by(k.session, k.at_us) AS ender,
           min_by(k.kind, k.at_us) AS kind
    FROM repeated AS r JOIN finals AS k
        ON k.part = r.part AND r.off >= k.lo AND r.off <= k.hi AND k.outcome = 'ok'
    WHERE r.s > k.at_us + if(r.session = k.session, 0, {skew})
    GROUP BY r.part, r.off, r.session, r.s
"""

_DONE_TWICE: Final = """
    SELECT r.part, r.off, array_sort(array_agg(DISTINCT r.session)) AS sessions, max(r.s) AS at_us,
           any_value(r.key_hash) AS key_hash, count(*) AS times,
           coalesce(bool_or(open_sessions.session IS NOT NULL), false)
               OR EXISTS (SELECT 1 FROM explaining AS x
                          WHERE x.part = r.part AND r.off >= x.lo AND r.off <= x.hi) AS explained
    FROM repeated AS r LEFT JOIN open_sessions ON open_sessions.session = r.session
    WHERE r.done AND NOT EXISTS (SELECT 1 FROM again AS g WHERE g.part = r.part AND g.off = r.off)
    GROUP BY r.part, r.off HAVING count(*) > 1
"""


def share_tables(skew_us: int) -> dict[str, Text]:
    """The tables that replace those of the same names, and those that only these rules read."""
    return {
        "acknowledged": _RANGES,
        "finals": "SELECT * FROM acknowledged WHERE kind IN ('ACCEPT', 'REJECT')",
        "explaining": """
            SELECT session, part, lo, hi, at_us FROM acknowledged
            WHERE kind IN ('RELEASE', 'LOCK_LOST')
               OR (kind IN ('ACCEPT', 'REJECT') AND outcome <> 'ok')
        """,
        "known": """
            SELECT part, min(lo) AS lo
            FROM (SELECT part, lo FROM acknowledged UNION ALL SELECT part, lo FROM buckets)
            GROUP BY part
        """,
        "windows": _WINDOWS,
        "ended": _ENDED,
        "not_ended": _NOT_ENDED,
        "again": compose(_AGAIN, skew=skew_us),
        "done_twice": _DONE_TWICE,
    }


def share_rules(terms: RuleParameters) -> dict[AnomalyKind, Text]:
    """The query of each rule."""
    found = _ShareRules(terms)
    return {
        **found.never_completed(),
        **found.repeated(),
        **found.acknowledged_twice(),
        **found.topic(),
        **found.unended(),
        **found.not_judged(),
    }


class _ShareRules(Rules):
    """Rules about acknowledgements in place of those about commits, owners and order."""

    def __init__(self, terms: RuleParameters) -> None:
        super().__init__(terms)
        # No rows of the partition may be missing; the broker delivers the record no more.
        whole: LiteralString = "true"
        if terms.incomplete:
            whole = "NOT EXISTS (SELECT 1 FROM hidden WHERE hidden.part = {table}.part)"
        for table in ("a", "n"):
            self._parts[f"whole_{table}"] = compose(whole, table=table)
        self._parts["is_last"] = "coalesce(n.deliveries >= n.most, false)"

    def never_completed(self) -> dict[AnomalyKind, Text]:
        """Records below the start offset that no handler completed, or no journal has ended."""
        ended: LiteralString = """
            FROM never_done AS n ASOF JOIN ended ON ended.part = n.part AND n.off >= ended.lo
            WHERE n.off < ended.beyond AND
        """
        lost: dict[AnomalyKind, LiteralString] = {AnomalyKind.LOST: "{whole_n}"}
        if self._parameters.incomplete:
            lost[AnomalyKind.NOT_RECORDED] = "NOT ({whole_n})"
        not_ended: dict[AnomalyKind, LiteralString] = {
            AnomalyKind.ARCHIVED: "{is_last} AND {whole_n}",
            AnomalyKind.ENDED_ELSEWHERE: "NOT ({is_last} AND {whole_n})",
        }
        return {
            **{
                kind: self._rule(f"{ended} {condition}", "n", at=_NO_TIME, acknowledged="true")
                for kind, condition in lost.items()
            },
            **{
                kind: self._rule(
                    f"FROM not_ended AS n WHERE {condition}",
                    "n",
                    sessions=("n.session",),
                    at="n.at_us",
                    deliveries="n.deliveries",
                )
                for kind, condition in not_ended.items()
            },
            AnomalyKind.NOT_ACKNOWLEDGED: self._rule(
                """
                FROM (SELECT a.part, a.off, min_by(a.session, a.f) AS session, min(a.f) AS at_us,
                             any_value(a.key_hash) AS key_hash
                      FROM (SELECT attempts.* FROM attempts
                            JOIN windows ON windows.part = attempts.part
                            ASOF LEFT JOIN ended
                                ON ended.part = attempts.part AND attempts.off >= ended.lo
                            WHERE attempts.done AND attempts.off >= windows.lo
                              AND attempts.off < windows.committed
                              AND (ended.beyond IS NULL OR attempts.off >= ended.beyond)) AS a
                      LEFT JOIN open_sessions ON open_sessions.session = a.session
                      GROUP BY a.part, a.off
                      HAVING NOT bool_or(open_sessions.session IS NOT NULL)) AS n
                """,
                "n",
                key="n.key_hash",
                sessions=("n.session",),
                at="n.at_us",
            ),
        }

    def repeated(self) -> dict[AnomalyKind, Text]:
        """Records that were handled more than once."""
        done_twice: dict[AnomalyKind, LiteralString] = {
            AnomalyKind.UNEXPLAINED_REDELIVERY: """
                NOT a.explained AND {whole_a}
                AND NOT EXISTS (SELECT 1 FROM concurrent AS x
                                WHERE x.part = a.part AND x.off = a.off)
            """,
            AnomalyKind.REDELIVERY: "a.explained OR NOT {whole_a}",
        }
        return {
            AnomalyKind.DUPLICATE_AFTER_ACKNOWLEDGEMENT: self._rule(
                "FROM again AS a WHERE {whole_a}",
                "a",
                key="a.key_hash",
                sessions=("a.session", "a.ender"),
                at="a.s",
                acknowledgement="a.kind",
                acknowledged_us="a.ended_us",
            ),
            AnomalyKind.CONCURRENT_DUPLICATE: self._rule(
                """
                FROM concurrent AS a
                WHERE {whole_a}
                  AND NOT EXISTS (SELECT 1 FROM explaining AS x
                                  WHERE x.part = a.part AND a.off >= x.lo AND a.off <= x.hi
                                    AND x.session IN (a.session, a.other))
                  AND NOT EXISTS (SELECT 1 FROM open_sessions AS o
                                  WHERE o.session IN (a.session, a.other))
                """,
                "a",
                key="a.key_hash",
                sessions=("a.session", "a.other"),
                at="greatest(a.s, a.other_s)",
            ),
            **{
                kind: self._rule(
                    f"FROM done_twice AS a WHERE {condition}",
                    "a",
                    key="a.key_hash",
                    sessions="a.sessions",
                    at="a.at_us",
                    times="a.times",
                )
                for kind, condition in done_twice.items()
            },
        }

    def acknowledged_twice(self) -> dict[AnomalyKind, Text]:
        """Offsets that the broker has confirmed as accepted or rejected twice."""
        return {
            AnomalyKind.ACKNOWLEDGED_TWICE: self._rule(
                """
                FROM (SELECT part, session, lo, hi, at_us, max(hi) OVER earlier AS reach,
                             max_by(session, hi) OVER earlier AS other,
                             max_by(at_us, hi) OVER earlier AS other_us
                      FROM finals WHERE outcome = 'ok'
                      WINDOW earlier AS (PARTITION BY part ORDER BY lo, hi, at_us
                                         ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) AS a
                WHERE a.lo <= a.reach AND {whole_a}
                  AND NOT EXISTS (SELECT 1 FROM explaining AS x
                                  WHERE x.part = a.part AND x.lo <= least(a.hi, a.reach)
                                    AND x.hi >= a.lo AND x.session IN (a.session, a.other))
                  AND NOT EXISTS (SELECT 1 FROM open_sessions AS o
                                  WHERE o.session IN (a.session, a.other))
                """,
                "a",
                lo="a.lo",
                hi="least(a.hi, a.reach)",
                sessions=("a.session", "a.other"),
                at="greatest(a.at_us, a.other_us)",
                acknowledged_us="least(a.at_us, a.other_us)",
            )
        }
