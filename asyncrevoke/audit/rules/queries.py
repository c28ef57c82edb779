"""The rules, each a query over the tables of ``rules/views.py``: SQL of both engines.

Each query selects ``part, lo, hi, key_hash, sessions, generations, at_us, evidence``. Offsets are
inclusive. A rule selects a row per record; :func:`combined` merges them into ranges.

Hints are Spark's, and comments to DuckDB: without them, a join with a table that has a row per
partition would sort all attempts by partition.

Times of different sessions may come from different machines: they are compared with ``skew``. Those
of one session are those of one clock, taken at the end of a turn of its event loop. A record that
was delivered to a loop and abandoned (no attempt number, not completed) may never have been
processed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, LiteralString, NamedTuple

from asyncrevoke.audit.anomalies import AnomalyKind
from asyncrevoke.audit.rules.incomplete import OF_WHOLE_SESSIONS, absence_rules
from asyncrevoke.audit.rules.views import FOREVER
from asyncrevoke.audit.sql.text import compose, joined, literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.audit.sql.dialect import SqlDialect
    from asyncrevoke.audit.sql.text import Sql, Text

_NO_KEY = "CAST(NULL AS BIGINT)"


class RuleParameters(NamedTuple):
    """Parameters of the rules. ``ordered``: all handlers of the topic run in order,
    ``by_partition`` or by key; ``nulls``: null keys are ordered too.

    ``keyless``: some sessions have no hashes of keys, and the order is by key; then it is judged by
    those of the topic, if ``keys`` of it are known. ``incomplete``: rows are missing of some
    sessions.
    """

    skew_us: int
    compacted: bool
    ordered: bool
    by_partition: bool
    nulls: bool
    keyless: bool = False
    keys: bool = True
    incomplete: bool = False


def definitions(sql: SqlDialect, terms: RuleParameters) -> dict[str, Text]:
    """The tables that several rules read, in the order in which they are defined."""
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
        # Where a seek started, and where it went.
        "sought": """
            SELECT resets.part, spans.off AS lo, resets.off AS hi
            FROM resets JOIN spans
                ON resets.session = spans.session AND resets.part = spans.part
            WHERE resets.at_us >= spans.since AND resets.off > spans.off
        """,
        # Started after it was covered, and not because of a seek back.
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
    return keyed | tables


def _keyed(terms: RuleParameters) -> Sql:
    """The calls whose keys are known."""
    return compose(
        """
        SELECT a.part, a.off, coalesce(a.key_hash, source.key_hash) AS key_hash, a.session, a.s,
               a.f, a.done, a.attempt
        FROM attempts AS a LEFT JOIN bare ON bare.session = a.session
        LEFT JOIN source ON source.part = a.part AND source.off = a.off
        WHERE bare.session IS NULL OR (source.off IS NOT NULL AND {keys})
    """,
        keys=_boolean(terms.keys),
    )


def rules(sql: SqlDialect, terms: RuleParameters) -> dict[AnomalyKind, Text]:
    """The query of each rule."""
    skew = terms.skew_us
    array, evidence = sql.array, sql.evidence
    nobody, no_generations = sql.empty("STRING"), sql.empty("INT")
    both = evidence(from_us=array("s", "other_s"), to_us=array("f", "other_f"))
    passed = evidence(earlier_offset="earlier_off", it_ended_us="ended", begun_us="s")
    gone = evidence(attempts="count(*)", log_start="any_value(windows.log_start)")
    ordered, by_partition = _boolean(terms.ordered), _boolean(terms.by_partition)
    keyed = "keyed" if terms.keyless else "attempts"
    sought = """EXISTS (SELECT 1 FROM sought WHERE sought.part = n.part
                        AND n.off >= sought.lo AND n.off < sought.hi)"""

    def never_done(which: Text) -> Sql:
        return compose(
            """
            SELECT part, off AS lo, off AS hi, {no_key} AS key_hash,
                   {sessions} AS sessions, {no_generations} AS generations, at_us,
                   {evidence} AS evidence
            FROM never_done AS n WHERE {which}
        """,
            no_key=_NO_KEY,
            sessions=array("session"),
            no_generations=no_generations,
            evidence=evidence(committed="beyond"),
            which=which,
        )

    def before(column: LiteralString) -> Sql:
        return compose(
            """
            WINDOW earlier AS (PARTITION BY {column}
                               ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
        """,
            column=column,
        )

    return {
        **absence_rules(never_done, sought, skew, incomplete=terms.incomplete),
        AnomalyKind.SOUGHT_PAST: never_done(sought),
        AnomalyKind.COMMIT_AHEAD: compose(
            """
            SELECT /*+ BROADCAST(windows) */ d.part, d.off AS lo, d.off AS hi, d.key_hash,
                   {sessions} AS sessions,
                   {no_generations} AS generations, covers.at_us,
                   {evidence} AS evidence
            FROM first_done AS d JOIN windows ON windows.part = d.part
            {covering}
            WHERE d.off >= windows.lo
              AND d.f > covers.at_us + if(covers.session = d.session, 0, {skew})
        """,
            sessions=array("covers.session", "d.session"),
            no_generations=no_generations,
            evidence=evidence(committed="covers.beyond", done_us="d.f"),
            covering=sql.covering("d"),
            skew=skew,
        ),
        AnomalyKind.DUPLICATE_AFTER_COMMIT: compose(
            """
            SELECT x.part, x.off AS lo, x.off AS hi, x.key_hash,
                   {sessions} AS sessions,
                   {no_generations} AS generations, x.s AS at_us,
                   {evidence} AS evidence
            FROM after_commit AS x JOIN first_done AS d ON d.part = x.part AND d.off = x.off
            WHERE d.f < x.s
        """,
            sessions=array("x.session", "x.coverer"),
            no_generations=no_generations,
            evidence=evidence(committed="x.beyond", committed_us="x.covered"),
        ),
        AnomalyKind.CONCURRENT_DUPLICATE: compose(
            """
            SELECT part, off AS lo, off AS hi, key_hash, {sessions} AS sessions,
                   {no_generations} AS generations, greatest(s, other_s) AS at_us,
                   {both} AS evidence
            FROM concurrent
        """,
            sessions=array("session", "other"),
            no_generations=no_generations,
            both=both,
        ),
        AnomalyKind.REDELIVERY: compose(
            """
            SELECT d.part, d.off AS lo, d.off AS hi, d.key_hash,
                   array_sort(again.sessions) AS sessions, {no_generations} AS generations,
                   again.at_us, {evidence} AS evidence
            FROM first_done AS d JOIN (
                SELECT part, off, array_agg(DISTINCT session) AS sessions, max(s) AS at_us
                FROM repeated WHERE done GROUP BY part, off HAVING count(*) > 1) again
                ON again.part = d.part AND again.off = d.off
            WHERE NOT EXISTS (SELECT 1 FROM after_commit AS x
                              WHERE x.part = d.part AND x.off = d.off)
              AND NOT EXISTS (SELECT 1 FROM concurrent AS x
                              WHERE x.part = d.part AND x.off = d.off)
        """,
            no_generations=no_generations,
            evidence=evidence(times="d.times"),
        ),
        # Records of one batch have one time: they are one call, and are compared as one.
        AnomalyKind.KEY_ORDER: compose(
            """
            SELECT part, off AS lo, off AS hi, lane AS key_hash,
                   array_distinct({sessions}) AS sessions,
                   {no_generations} AS generations, s AS at_us,
                   {passed} AS evidence
            FROM (
                SELECT *, max(f) OVER earlier AS ended, max_by(ender, f) OVER earlier AS blocker,
                       max_by(off, f) OVER earlier AS earlier_off
                FROM (
                    SELECT part, lane, off, min(s) AS s, min_by(session, s) AS session,
                           min(CASE WHEN done THEN f END) AS f,
                           min_by(session, CASE WHEN done THEN f END) AS ender
                    FROM (
                        SELECT part, session, s, f, min(off) AS off, bool_or(done) AS done, lane
                        FROM (SELECT *, if({by_partition}, NULL, key_hash) AS lane FROM {keyed}
                              WHERE attempt IS NOT NULL AND {ordered} AND
                                    ({by_partition} OR {nulls}
                                     OR key_hash IS NOT NULL))
                        GROUP BY part, session, s, f, lane)
                    GROUP BY part, lane, off)
                {earlier})
            WHERE s + if(session = blocker, 0, {skew}) < ended
        """,
            sessions=array("session", "blocker"),
            no_generations=no_generations,
            passed=passed,
            by_partition=by_partition,
            keyed=keyed,
            ordered=ordered,
            nulls=_boolean(terms.nulls),
            earlier=before("part, lane ORDER BY off"),
            skew=skew,
        ),
        AnomalyKind.OWNERSHIP: compose(
            """
            SELECT a.part, a.off AS lo, a.off AS hi, a.key_hash,
                   {sessions} AS sessions,
                   {no_generations} AS generations, a.s AS at_us,
                   {evidence} AS evidence
            FROM attempts AS a
            WHERE NOT EXISTS (
                SELECT 1 FROM spans
                WHERE spans.session = a.session AND spans.part = a.part AND spans.since <= a.s
                  AND a.s <= spans.until + {skew}
                  AND (NOT a.done OR a.attempt IS NULL OR a.f <= spans.until + {skew}))
              {known}
        """,
            sessions=array("a.session"),
            no_generations=no_generations,
            evidence=evidence(begun_us="a.s", ended_us="a.f", outcome="a.outcome"),
            known=OF_WHOLE_SESSIONS if terms.incomplete else "",
            skew=skew,
        ),
        AnomalyKind.STALE_COMMIT: compose(
            """
            SELECT part, off AS lo, off AS hi, {no_key} AS key_hash,
                   {sessions} AS sessions,
                   {generations} AS generations, at_us,
                   {evidence} AS evidence
            FROM (SELECT *, max(generation) OVER earlier AS newer,
                         max_by(session, generation) OVER earlier AS newer_session,
                         max_by(at_us, generation) OVER earlier AS newer_at
                  FROM commits WHERE generation >= 0
                  {earlier})
            WHERE newer > generation AND at_us > newer_at + if(session = newer_session, 0, {skew})
        """,
            no_key=_NO_KEY,
            sessions=array("session", "newer_session"),
            generations=array("generation", "newer"),
            evidence=evidence(newer_us="newer_at"),
            earlier=before("part ORDER BY at_us, seq"),
            skew=skew,
        ),
        AnomalyKind.COMMIT_REGRESSION: compose(
            """
            SELECT part, off AS lo, higher - 1 AS hi, {no_key} AS key_hash,
                   {sessions} AS sessions,
                   {generations} AS generations, at_us,
                   {evidence} AS evidence
            FROM (SELECT *, max(off) OVER earlier AS higher,
                         max_by(session, off) OVER earlier AS higher_session,
                         max_by(at_us, off) OVER earlier AS higher_at
                  FROM commits
                  {earlier}) c
            WHERE off < higher AND at_us > higher_at + if(session = higher_session, 0, {skew})
              AND NOT EXISTS (SELECT 1 FROM resets WHERE resets.part = c.part
                              AND resets.off <= c.off AND resets.at_us >= c.higher_at
                              AND resets.at_us <= c.at_us)
        """,
            no_key=_NO_KEY,
            sessions=array("session", "higher_session"),
            generations=array("generation"),
            evidence=evidence(committed="off", before="higher", before_us="higher_at"),
            earlier=before("part ORDER BY at_us, seq"),
            skew=skew,
        ),
        AnomalyKind.PHANTOM: compose(
            """
            SELECT /*+ BROADCAST(windows, ranges) */
                   a.part, a.off AS lo, a.off AS hi, any_value(a.key_hash) AS key_hash,
                   array_sort(array_agg(DISTINCT a.session)) AS sessions,
                   {no_generations} AS generations, min(a.s) AS at_us,
                   {evidence} AS evidence
            FROM attempts AS a JOIN windows ON windows.part = a.part
            LEFT JOIN ranges ON ranges.part = a.part AND a.off >= ranges.lo AND a.off < ranges.hi
            WHERE {compacted} AND a.off >= windows.log_start
              AND (a.off >= windows.log_end OR ranges.lo IS NOT NULL)
              AND NOT EXISTS (SELECT 1 FROM source WHERE source.part = a.part
                              AND source.off = a.off)
            GROUP BY a.part, a.off
        """,
            no_generations=no_generations,
            evidence=evidence(log_end="any_value(windows.log_end)"),
            compacted=_boolean(not terms.compacted),
        ),
        AnomalyKind.CONTENT_MISMATCH: compose(
            """
            SELECT a.part, a.off AS lo, a.off AS hi, a.key_hash, {sessions} AS sessions,
                   {no_generations} AS generations, a.f AS at_us,
                   {evidence} AS evidence
            FROM attempts AS a JOIN source ON source.part = a.part AND source.off = a.off
            WHERE a.record_hash <> source.record_hash
        """,
            sessions=array("a.session"),
            no_generations=no_generations,
            evidence=evidence(handled="a.record_hash", in_the_topic="source.record_hash"),
        ),
        **({AnomalyKind.ORDER_NOT_COMPARED: _not_compared(sql, terms)} if terms.keyless else {}),
        AnomalyKind.ORPHAN: compose(
            """
            SELECT part, off AS lo, off AS hi, key_hash, {sessions} AS sessions,
                   {no_generations} AS generations, at_us,
                   {evidence} AS evidence
            FROM journal AS b
            WHERE kind = 'START'
              AND NOT EXISTS (SELECT 1 FROM live WHERE live.session = b.session)
              AND NOT EXISTS (SELECT 1 FROM attempts AS a WHERE a.session = b.session
                              AND a.part = b.part AND a.off = b.off AND a.s = b.at_us)
        """,
            sessions=array("session"),
            no_generations=no_generations,
            evidence=evidence(begun_us="at_us"),
        ),
        AnomalyKind.REVOCATION_OVERRUN: compose(
            """
            SELECT part, CAST(NULL AS BIGINT) AS lo, CAST(NULL AS BIGINT) AS hi,
                   {no_key} AS key_hash, {sessions} AS sessions,
                   {generations} AS generations, at_us,
                   {evidence} AS evidence
            FROM (SELECT session, part, kind, at_us, generation,
                         lead(at_us) OVER own AS until, lead(kind) OVER own AS then_kind
                  FROM events WHERE kind IN ('REVOKE_BEGIN', 'WITHDRAWN', 'RELEASED', 'LOST')
                  WINDOW own AS (PARTITION BY session, part ORDER BY seq)) j
            JOIN budgets ON budgets.session = j.session
            WHERE kind = 'REVOKE_BEGIN' AND then_kind IN ('RELEASED', 'LOST')
              AND until - at_us > budget * 1000000
        """,
            no_key=_NO_KEY,
            sessions=array("j.session"),
            generations=array("generation"),
            evidence=evidence(seconds=_seconds("until - at_us"), budget="budget"),
        ),
        # Records that waited: the first one to go on with was there when the last one before it
        # ended.
        AnomalyKind.STALL: compose(
            """
            SELECT h.part, h.off AS lo, h.off AS hi, {no_key} AS key_hash,
                   {sessions} AS sessions,
                   {no_generations} AS generations, h.stopped AS at_us,
                   {evidence} AS evidence
            FROM handovers AS h JOIN source ON source.part = h.part AND source.off = h.off
            WHERE source.timestamp_us <= h.stopped
        """,
            no_key=_NO_KEY,
            sessions=array("h.giver", "h.session"),
            no_generations=no_generations,
            evidence=evidence(seconds=_seconds("h.went_on - h.stopped")),
        ),
        AnomalyKind.UNVERIFIABLE: compose(
            """
            SELECT /*+ BROADCAST(windows) */
                   a.part, min(a.off) AS lo, max(a.off) AS hi, {no_key} AS key_hash,
                   {nobody} AS sessions, {no_generations} AS generations, min(a.s) AS at_us,
                   {gone} AS evidence
            FROM attempts AS a JOIN windows ON windows.part = a.part
            WHERE a.off < windows.log_start GROUP BY a.part
        """,
            no_key=_NO_KEY,
            nobody=nobody,
            no_generations=no_generations,
            gone=gone,
        ),
        AnomalyKind.PENDING: compose(
            """
            SELECT w.part, w.committed AS lo, w.log_end - 1 AS hi, {no_key} AS key_hash,
                   {nobody} AS sessions, {no_generations} AS generations,
                   CAST(NULL AS BIGINT) AS at_us,
                   {evidence} AS evidence
            FROM windows AS w LEFT JOIN (
                SELECT /*+ BROADCAST(windows) */ windows.part, count(*) AS done
                FROM first_done JOIN windows ON windows.part = first_done.part
                WHERE first_done.off >= windows.committed GROUP BY windows.part) beyond
                ON beyond.part = w.part
            WHERE w.log_end > w.committed
        """,
            no_key=_NO_KEY,
            nobody=nobody,
            no_generations=no_generations,
            evidence=evidence(done_beyond="coalesce(beyond.done, 0)"),
        ),
    }


def _not_compared(sql: SqlDialect, terms: RuleParameters) -> Sql:
    return compose(
        """
        SELECT i.part, i.off AS lo, i.off AS hi, {no_key} AS key_hash,
               {nobody} AS sessions, {no_generations} AS generations, i.s AS at_us,
               {evidence} AS evidence
        FROM inverted AS i JOIN windows ON windows.part = i.part
        LEFT JOIN source ON source.part = i.part AND source.off = i.off
        WHERE i.off >= windows.log_start
          AND NOT (source.off IS NOT NULL AND {keys})
    """,
        no_key=_NO_KEY,
        nobody=sql.empty("STRING"),
        no_generations=sql.empty("INT"),
        evidence=sql.evidence(begun_us="i.s"),
        keys=_boolean(terms.keys),
    )


def combined(found: Mapping[AnomalyKind, Text]) -> Sql:
    """The rows of all rules with a column ``kind``; adjacent rows of a kind merged into one, with
    the evidence of the first."""
    every = [
        compose(
            "SELECT {kind} AS kind, {rank} AS rank, rule.* FROM ({rule}) rule",
            kind=literal(kind),
            rank=rank,
            rule=rule,
        )
        for rank, (kind, rule) in enumerate(found.items())
    ]
    return compose(
        """
        SELECT kind, part, min(lo) AS lo, max(hi) AS hi,
               if(min(key_hash) = max(key_hash) AND count(key_hash) = count(*), min(key_hash),
                  NULL) AS key_hash,
               sessions, generations, min(at_us) AS at_us,
               min_by(evidence, coalesce(lo, 0)) AS evidence
        FROM (SELECT *, sum(fresh) OVER (PARTITION BY kind, part, sessions, generations
                                         ORDER BY lo, at_us
                                         ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS island
              FROM (SELECT *, if(lo = 1 + lag(hi) OVER (
                                     PARTITION BY kind, part, sessions, generations
                                     ORDER BY lo, at_us), 0, 1) AS fresh
                    FROM ({listed})))
        GROUP BY kind, rank, part, sessions, generations, island
        ORDER BY rank, part, lo, at_us
    """,
        listed=joined(" UNION ALL ", every),
    )


def _seconds(us: Text) -> Sql:
    return compose("CAST({us} AS DOUBLE) / 1000000", us=us)


def _boolean(value: bool) -> LiteralString:
    return "true" if value else "false"


assert FOREVER + 2**60 < 2**63  # a skew can be added
