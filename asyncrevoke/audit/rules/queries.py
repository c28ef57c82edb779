"""The rules: each is a query over the tables of ``rules/views.py``.

Each query selects ``part, lo, hi, key_hash, sessions, generations, at_us, evidence``. Offsets are
inclusive. A rule selects a row per record; :func:`combined` merges rows into ranges.

Sessions may run on different machines, so rules compare times of different sessions with ``skew``.
Times of one session are of one clock, taken at the end of an event loop iteration, and are compared
exactly. A record that was delivered to a loop and abandoned (no attempt number, not completed) may
not have been processed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, LiteralString

from asyncrevoke.audit.anomalies import AnomalyKind
from asyncrevoke.audit.rules.incomplete import absence_rules, may_be_missing, of_whole_sessions
from asyncrevoke.audit.rules.tables import RuleParameters, boolean, in_lanes
from asyncrevoke.audit.rules.views import FOREVER
from asyncrevoke.audit.sql import expressions
from asyncrevoke.audit.sql.text import Part, Sql, Text, compose, joined, literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_NO_KEY = "CAST(NULL AS BIGINT)"


def rules(terms: RuleParameters) -> dict[AnomalyKind, Text]:
    """The query of each rule."""
    found = Rules(terms)
    return {
        **found.never_completed(),
        **found.repeated(),
        **found.order(),
        **found.owners(),
        **found.commits(),
        **found.topic(),
        **found.unended(),
        **found.overdue(),
        **found.not_judged(),
    }


def _lower_commits(column: LiteralString, skew_us: int) -> Sql:
    """The commits whose ``column`` is lower than ``highest``, that of a commit which was accepted
    before they were sent: by the session ``other``, at ``other_at``."""
    return compose(
        """
        (SELECT * FROM (
            SELECT *, max(accepted) OVER earlier AS highest,
                   max_by(session, accepted) OVER earlier AS other,
                   max_by(at_us, accepted) OVER earlier AS other_at
            FROM (SELECT *, if(sends, NULL, {column}) AS accepted FROM commit_times)
            WINDOW earlier AS (PARTITION BY part ORDER BY us, NOT sends, seq
                               ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING))
         WHERE sends AND {column} < highest
           AND sent_us > other_at + if(session = other, 0, {skew}))
    """,
        column=column,
        skew=skew_us,
    )


class Rules:
    """The queries of the rules, in the order of the report."""

    def __init__(self, terms: RuleParameters) -> None:
        self._parameters = terms
        self._parts: dict[str, Part] = {
            "compacted": boolean(terms.compacted),
            "covering": expressions.covering("d"),
            "in_lanes": in_lanes(terms),
            "keys": boolean(terms.keys),
            "missing_before": "",
            "missing_done": "",
            "of_lower_offset": _lower_commits("off", terms.skew_us),
            "of_older_generation": _lower_commits("generation", terms.skew_us),
            "of_whole_sessions": "",
            "of_whole_pairs": "",
            "skew": terms.skew_us,
        }
        if (missing := self._may_be_missing("d.part", "d.off", "d.f")) is not None:
            self._parts["missing_done"] = compose("AND NOT {missing}", missing=missing)
        if (missing := self._may_be_missing("k.part", "k.earlier_off", "k.ended")) is not None:
            self._parts["missing_before"] = compose("AND NOT {missing}", missing=missing)
        if terms.incomplete:
            whole = of_whole_sessions("a.session")
            self._parts["of_whole_sessions"] = whole
            other = of_whole_sessions("b.session")
            self._parts["of_whole_pairs"] = compose("{whole} {other}", whole=whole, other=other)

    def _may_be_missing(
        self, part: LiteralString, off: LiteralString, at: LiteralString, *, vouched: bool = False
    ) -> Sql | None:
        terms = self._parameters
        unaccounted = terms.unaccounted and not vouched
        return may_be_missing(
            part, off, at, terms.skew_us, incomplete=terms.incomplete, unaccounted=unaccounted
        )

    def _rule(
        self,
        rows: LiteralString,
        table: LiteralString = "",
        *,
        lo: LiteralString = "",
        hi: LiteralString = "",
        key: LiteralString = _NO_KEY,
        sessions: Text | Sequence[Text] = (),
        generations: Sequence[Text] = (),
        at: LiteralString = "at_us",
        **evidence: Text,
    ) -> Sql:
        """The anomalies of these rows. By default, each is about the record in the columns ``part``
        and ``off`` of ``table``."""
        prefix = f"{table}." if table else ""
        if not isinstance(sessions, str):
            sessions = expressions.array("STRING", *sessions)
        return compose(
            "SELECT {prefix}part, {lo} AS lo, {hi} AS hi, {key} AS key_hash,"
            " {sessions} AS sessions, {generations} AS generations, {at} AS at_us,"
            " {evidence} AS evidence {rows}",
            prefix=prefix,
            lo=lo or f"{prefix}off",
            hi=hi or f"{prefix}off",
            key=key,
            sessions=sessions,
            generations=expressions.array("INT", *generations),
            at=at,
            evidence=expressions.evidence(**evidence),
            rows=compose(rows, **self._parts),
        )

    def never_completed(self) -> dict[AnomalyKind, Text]:
        """Records that a commit covers although no handler completed them before the commit."""
        found = self._rule("FROM never_done AS n", sessions=("session",), committed="beyond")
        sought = """EXISTS (SELECT 1 FROM sought WHERE sought.part = n.part
                            AND n.off >= sought.lo AND n.off < sought.hi)"""

        def never_done(which: Text) -> Sql:
            return compose("{found} WHERE {which}", found=found, which=which)

        vouched = self._parameters.vouched
        missing = self._may_be_missing("n.part", "n.off", "n.at_us", vouched=vouched)
        return {
            **absence_rules(never_done, sought, missing),
            AnomalyKind.SOUGHT_PAST: never_done(sought),
            AnomalyKind.COMMIT_AHEAD: self._rule(
                """
                FROM first_done AS d JOIN windows ON windows.part = d.part
                {covering}
                WHERE d.off >= windows.lo
                  AND d.f > covers.at_us + if(covers.session = d.session, 0, {skew})
                  AND NOT EXISTS (SELECT 1 FROM sought WHERE sought.part = d.part
                                  AND d.off >= sought.lo AND d.off < sought.hi)
                  {missing_done}
                """,
                "d",
                key="d.key_hash",
                sessions=("covers.session", "d.session"),
                at="covers.at_us",
                committed="covers.beyond",
                done_us="d.f",
            ),
        }

    def repeated(self) -> dict[AnomalyKind, Text]:
        """Records that were handled more than once."""
        return {
            AnomalyKind.DUPLICATE_AFTER_COMMIT: self._rule(
                """
                FROM after_commit AS a JOIN first_done AS d ON d.part = a.part AND d.off = a.off
                WHERE d.f < a.s {of_whole_sessions}
                """,
                "a",
                key="a.key_hash",
                sessions=("a.session", "a.coverer"),
                at="a.s",
                committed="a.beyond",
                committed_us="a.covered",
            ),
            AnomalyKind.CONCURRENT_DUPLICATE: self._rule(
                "FROM concurrent",
                key="key_hash",
                sessions=("session", "other"),
                at="greatest(s, other_s)",
                from_us=expressions.array("BIGINT", "s", "other_s"),
                to_us=expressions.array("BIGINT", "f", "other_f"),
            ),
            AnomalyKind.REDELIVERY: self._rule(
                """
                FROM first_done AS d JOIN (
                    SELECT part, off, array_agg(DISTINCT session) AS sessions, max(s) AS at_us
                    FROM repeated WHERE done GROUP BY part, off HAVING count(*) > 1) again
                    ON again.part = d.part AND again.off = d.off
                WHERE NOT EXISTS (SELECT 1 FROM after_commit AS x
                                  WHERE x.part = d.part AND x.off = d.off)
                  AND NOT EXISTS (SELECT 1 FROM concurrent AS x
                                  WHERE x.part = d.part AND x.off = d.off)
                """,
                "d",
                key="d.key_hash",
                sessions="array_sort(again.sessions)",
                at="again.at_us",
                times="d.times",
            ),
        }

    def order(self) -> dict[AnomalyKind, Text]:
        """Calls that did not wait for an earlier record of their key or partition, and calls of
        sessions that did not own the partition.

        Records of one batch call have the same times, so they are compared as one call.
        """
        return {
            AnomalyKind.KEY_ORDER: self._rule(
                """
                FROM (
                    SELECT *, max(f) OVER earlier AS ended,
                           max_by(ender, f) OVER earlier AS blocker,
                           max_by(off, f) OVER earlier AS earlier_off
                    FROM (
                        SELECT part, lane, off, min(s) AS s, min_by(session, s) AS session,
                               min(CASE WHEN done THEN f END) AS f,
                               min_by(session, CASE WHEN done THEN f END) AS ender
                        FROM (
                            SELECT part, session, s, f, min(off) AS off, bool_or(done) AS done, lane
                            FROM (SELECT calls.*
                                  FROM ({in_lanes}) calls JOIN disordered
                                  ON disordered.part = calls.part
                                      AND disordered.lane IS NOT DISTINCT FROM calls.lane)
                            GROUP BY part, session, s, f, lane)
                        GROUP BY part, lane, off)
                    WINDOW earlier AS (PARTITION BY part, lane ORDER BY off
                                       ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) k
                WHERE s + if(session = blocker, 0, {skew}) < ended
                  AND NOT EXISTS (SELECT 1 FROM sought WHERE sought.part = k.part
                                  AND k.earlier_off >= sought.lo AND k.earlier_off < sought.hi)
                  {missing_before}
                """,
                key="lane",
                sessions=compose(
                    "array_distinct({both})", both=expressions.array("STRING", "session", "blocker")
                ),
                at="s",
                earlier_offset="earlier_off",
                it_ended_us="ended",
                begun_us="s",
            ),
            AnomalyKind.OWNERSHIP: self._rule(
                """
                FROM attempts AS a
                WHERE NOT EXISTS (
                    SELECT 1 FROM spans
                    WHERE spans.session = a.session AND spans.part = a.part AND spans.since <= a.s
                      AND a.s <= spans.until
                      AND (NOT a.done OR a.attempt IS NULL OR a.f <= spans.until))
                  {of_whole_sessions}
                """,
                "a",
                key="a.key_hash",
                sessions=("a.session",),
                at="a.s",
                begun_us="a.s",
                ended_us="a.f",
                outcome="a.outcome",
            ),
        }

    def owners(self) -> dict[AnomalyKind, Text]:
        """Partitions that two sessions owned at the same time. A killed session counts as an owner
        until its last row."""
        return {
            AnomalyKind.TWO_OWNERS: self._rule(
                """
                FROM tenancies AS a JOIN tenancies AS b
                    ON b.part = a.part AND a.session < b.session
                WHERE a.since + {skew} < b.until AND b.since + {skew} < a.until
                  {of_whole_pairs}
                """,
                "a",
                lo="CAST(NULL AS BIGINT)",
                hi="CAST(NULL AS BIGINT)",
                sessions=("a.session", "b.session"),
                generations=("a.generation", "b.generation"),
                at="greatest(a.since, b.since)",
                seconds=_seconds("least(a.until, b.until) - greatest(a.since, b.since)"),
            ),
        }

    def commits(self) -> dict[AnomalyKind, Text]:
        """Commits of an older generation (unless the partition was assigned again since), or of a
        lower offset, that were sent after the other commit had been accepted."""
        return {
            AnomalyKind.STALE_COMMIT: self._rule(
                """
                FROM {of_older_generation} a
                WHERE generation >= 0
                  AND NOT EXISTS (SELECT 1 FROM tenancies AS t WHERE t.part = a.part
                      AND t.session = a.session AND t.generation <= a.generation
                      AND t.since > a.other_at AND t.since <= a.at_us)
                """,
                sessions=("session", "other"),
                generations=("generation", "highest"),
                newer_us="other_at",
            ),
            AnomalyKind.COMMIT_REGRESSION: self._rule(
                """
                FROM {of_lower_offset} a
                WHERE NOT EXISTS (SELECT 1 FROM resets WHERE resets.part = a.part
                      AND resets.off <= a.off AND resets.at_us BETWEEN a.other_at AND a.at_us)
                  {of_whole_sessions}
                """,
                hi="highest - 1",
                sessions=("session", "other"),
                generations=("generation",),
                committed="off",
                before="highest",
                before_us="other_at",
            ),
        }

    def topic(self) -> dict[AnomalyKind, Text]:
        """Calls for records that the topic does not have, or has with other content."""
        found: dict[AnomalyKind, Text] = {
            AnomalyKind.PHANTOM: self._rule(
                """
                FROM uneven_calls AS a JOIN windows ON windows.part = a.part
                LEFT JOIN ranges
                    ON ranges.part = a.part AND a.off >= ranges.lo AND a.off < ranges.hi
                LEFT JOIN uneven_records AS r ON r.part = a.part AND r.off = a.off
                WHERE NOT {compacted} AND r.off IS NULL AND a.off >= windows.log_start
                  AND (a.off >= windows.log_end OR ranges.lo IS NOT NULL)
                GROUP BY a.part, a.off
                """,
                "a",
                key="any_value(a.key_hash)",
                sessions="array_sort(array_agg(DISTINCT a.session))",
                at="min(a.s)",
                log_end="any_value(windows.log_end)",
            ),
            AnomalyKind.CONTENT_MISMATCH: self._rule(
                """
                FROM attempts AS a JOIN source ON source.part = a.part AND source.off = a.off
                WHERE a.record_hash <> source.record_hash
                """,
                "a",
                key="a.key_hash",
                sessions=("a.session",),
                at="a.f",
                handled="a.record_hash",
                in_the_topic="source.record_hash",
            ),
        }
        if self._parameters.keyless:
            found[AnomalyKind.ORDER_NOT_COMPARED] = self._rule(
                """
                FROM inverted AS i JOIN windows ON windows.part = i.part
                LEFT JOIN source ON source.part = i.part AND source.off = i.off
                WHERE i.off >= windows.log_start
                  AND NOT (source.off IS NOT NULL AND {keys})
                """,
                "i",
                at="i.s",
                begun_us="i.s",
            )
        return found

    def unended(self) -> dict[AnomalyKind, Text]:
        """Calls that had not ended when their process did."""
        return {
            AnomalyKind.ORPHAN: self._rule(
                """
                FROM unended_calls AS a
                WHERE NOT EXISTS (SELECT 1 FROM live WHERE live.session = a.session)
                  AND NOT EXISTS (SELECT 1 FROM attempts AS b WHERE b.session = a.session
                                  AND b.part = a.part AND b.off = a.off AND b.s = a.at_us)
                  {of_whole_sessions}
                """,
                key="key_hash",
                sessions=("session",),
                begun_us="at_us",
            ),
        }

    def overdue(self) -> dict[AnomalyKind, Text]:
        """Revocations and handovers that took too long.

        A handover is a stall only if records waited: the first record that the new owner handled
        was in the topic when the last call of the old owner ended.
        """
        return {
            AnomalyKind.REVOCATION_OVERRUN: self._rule(
                """
                FROM (SELECT session, part, kind, at_us, generation,
                             lead(at_us) OVER own AS until, lead(kind) OVER own AS then_kind
                      FROM events WHERE kind IN ('REVOKE_BEGIN', 'WITHDRAWN', 'RELEASED', 'LOST')
                      WINDOW own AS (PARTITION BY session, part ORDER BY seq)) a
                JOIN budgets ON budgets.session = a.session
                WHERE kind = 'REVOKE_BEGIN' AND then_kind IN ('RELEASED', 'LOST')
                  AND until - at_us > budget * 1000000 {of_whole_sessions}
                """,
                lo="CAST(NULL AS BIGINT)",
                hi="CAST(NULL AS BIGINT)",
                sessions=("a.session",),
                generations=("generation",),
                seconds=_seconds("until - at_us"),
                budget="budget",
            ),
            AnomalyKind.STALL: self._rule(
                """
                FROM handovers AS h JOIN source ON source.part = h.part AND source.off = h.off
                WHERE source.timestamp_us <= h.stopped
                """,
                "h",
                sessions=("h.giver", "h.session"),
                at="h.stopped",
                seconds=_seconds("h.went_on - h.stopped"),
            ),
        }

    def not_judged(self) -> dict[AnomalyKind, Text]:
        """Records that were deleted from the log, and records that no commit covers yet."""
        return {
            AnomalyKind.UNVERIFIABLE: self._rule(
                "FROM deleted_calls AS a GROUP BY a.part",
                "a",
                lo="min(a.off)",
                hi="max(a.off)",
                at="min(a.s)",
                attempts="count(*)",
                log_start="any_value(a.log_start)",
            ),
            AnomalyKind.PENDING: self._rule(
                """
                FROM windows AS w LEFT JOIN (
                    SELECT windows.part,
                           count(DISTINCT attempts.off) AS done
                    FROM attempts JOIN windows ON windows.part = attempts.part
                    WHERE done AND attempts.off >= windows.committed GROUP BY windows.part) beyond
                    ON beyond.part = w.part
                WHERE w.log_end > w.committed
                """,
                "w",
                lo="w.committed",
                hi="w.log_end - 1",
                at="CAST(NULL AS BIGINT)",
                done_beyond="coalesce(beyond.done, 0)",
            ),
        }


def combined(found: Mapping[AnomalyKind, Text]) -> Sql:
    """The rows of all rules, with a column ``kind``. Merges adjacent rows of a kind into one, which
    has the evidence of the first."""
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


assert FOREVER + 2**60 < 2**63  # room for adding a skew
