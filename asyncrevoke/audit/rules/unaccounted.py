"""Finds committed offsets for which no journal accounts.

An *observation* is a committed offset of the group: the position at which a session was assigned a
partition, or the broker's offset when the audit began. If an observation is beyond all earlier
offsets in the journals (commits, positions that were set, earlier observations), a client without a
journal has committed it: a member without one, a member whose journal was lost or cut, another
client, or an administrator.

A killed process may have committed without a row for that commit, because consumers write rows of
commits after the broker's response. Its journal has the records before the commit, because rows of
attempts are on disk before the commit is sent. An observation is therefore accounted for if a
session without an END row has handled the last records before it and no record is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from asyncrevoke.audit.rules.views import FOREVER
from asyncrevoke.audit.sql.text import compose
from asyncrevoke.journal.format.facts import facts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from asyncrevoke.audit.sql.text import Sql
    from asyncrevoke.journal.reading import SessionState

OBSERVED: Final = {"part": "INT", "off": "BIGINT", "at_us": "BIGINT"}
"""The columns of the table ``observed``: the committed offsets of the broker or the snapshot."""

UNACCOUNTED: Final = {"number": "INT", "part": "INT", "lo": "BIGINT", "hi": "BIGINT"}
"""The columns of the table ``unaccounted``: from ``lo`` up to, not including, ``hi``."""

SET_BACK: Final = {"session": "STRING", "part": "INT", "off": "BIGINT", "at_us": "BIGINT"}
"""The columns of the table ``set_back``: sessions that began below the last committed offset."""

# Limit for the ranges of a completion map. Valid maps have fewer.
_MOST_RUNS: Final = 1_000_000


class Observation(NamedTuple):
    """A committed offset, and what the journals have before it.

    ``reach`` is their highest offset and ``committed`` their last accepted commit, None without
    one. ``session`` began at ``off``; None if the offset is from the broker.
    """

    part: int
    session: str | None
    off: int
    at_us: int
    reach: int | None
    committed: int | None
    committed_us: int | None


class Unaccounted(NamedTuple):
    """Offsets from ``lo`` up to, not including, ``hi`` that a client without a journal has
    committed, or completed according to a completion map (``by_map``). ``session`` observed it when
    it was assigned the partition; None: the audit asked the broker."""

    part: int
    lo: int
    hi: int
    session: str | None
    at_us: int
    by_map: bool = False


def observations(skew_us: int) -> Sql:
    """The query for the table ``observations``: the columns of :class:`Observation`, for those that
    differ from the earlier rows of the journals. Needs ``events`` and ``observed``.

    A commit by another session also counts if its row is later and it has exactly this offset: a
    process that was stopped records the response when it continues.
    """
    return compose(
        """
        SELECT part, session, off, at_us, reach, committed, committed_us
        FROM (SELECT *, max(off) OVER earlier AS reach,
                     max_by(accepted, accepted_us) OVER earlier AS committed,
                     max(accepted_us) OVER earlier AS committed_us
              FROM (SELECT part, session, off, at_us, seq, kind = 'ASSIGN' AS observes,
                           if(kind = 'COMMIT' AND outcome = 'ok', off, NULL) AS accepted,
                           if(kind = 'COMMIT' AND outcome = 'ok', at_us, NULL) AS accepted_us
                    FROM events
                    WHERE off IS NOT NULL AND (kind IN ('ASSIGN', 'RESET')
                          OR (kind = 'COMMIT' AND outcome IN ('ok', 'unknown')))
                    UNION ALL
                    SELECT part, NULL AS session, off, at_us, {forever} AS seq, true AS observes,
                           NULL AS accepted, NULL AS accepted_us
                    FROM observed)
              WINDOW earlier AS (PARTITION BY part ORDER BY at_us, observes, seq
                                 ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) o
        WHERE observes
          AND (off > coalesce(reach, 0) OR (off < committed AND at_us > committed_us + {skew}))
          AND NOT EXISTS (SELECT 1 FROM events AS c
                          WHERE c.part = o.part AND c.kind = 'COMMIT'
                            AND c.outcome IN ('ok', 'unknown')
                            AND c.session <> coalesce(o.session, '')
                            AND ((c.off = o.off AND (o.off > coalesce(o.reach, 0)
                                                     OR c.outcome = 'unknown'
                                                     OR c.at_us > o.committed_us))
                                 OR (c.off > o.off AND c.at_us >= o.at_us
                                     AND c.at_us <= o.at_us + {skew})))
          AND NOT EXISTS (SELECT 1 FROM events AS c
                          WHERE c.part = o.part AND c.off = o.off AND c.session = o.session
                            AND c.kind = 'RESET' AND c.at_us <= o.at_us + {skew}
                            AND c.at_us >= o.at_us - {skew})
    """,
        skew=skew_us,
        forever=FOREVER,
    )


def open_sessions(sessions: Sequence[SessionState]) -> list[tuple[str]]:
    """The sessions that may have committed without a row for it."""
    return [
        (state.name,)
        for state in sessions
        if not state.ended or state.missing or state.damaged or not state.facts
    ]


SKIPPED: Final = """
    SELECT part, session, at_us, facts FROM events WHERE kind = 'SKIPPED' AND facts IS NOT NULL
"""
"""The query for the completion maps that sessions have read."""


def skipped_runs(rows: Iterable[tuple[int, str, int, str]]) -> Iterator[Unaccounted]:
    """The ranges in completion maps, from rows of :data:`SKIPPED`. Skips invalid maps, because the
    facts of a journal are untrusted."""
    for part, session, at_us, facts in rows:
        try:
            runs: Any = facts_of(facts)["runs"]
            pairs = [(lo, hi) for lo, hi in runs[:_MOST_RUNS]]
        except (ValueError, TypeError, KeyError):
            continue
        for lo, hi in pairs:
            if isinstance(lo, int) and isinstance(hi, int) and 0 <= lo < hi:
                yield Unaccounted(part, lo, hi, session, at_us, by_map=True)


def is_between_sessions(
    sessions: Sequence[SessionState], since: int, until: int, observer: str | None
) -> bool:
    """Whether no session was running at some time from ``since`` to ``until``. Only then can an
    administrator set the offsets of a group (KIP-396)."""
    free = since
    for state in sorted(sessions, key=lambda session: session.began_us or 0):
        began = state.began_us or 0
        if state.name == observer:
            until = min(until, began)
            continue
        if began > free:
            break
        last = FOREVER if state.live else (state.last_us or 0)
        free = max(free, last)
    return free < until


LAST_OWNERS: Final = compose(
    """
    SELECT spans.session, spans.part
    FROM spans JOIN open_sessions AS o ON o.session = spans.session
    LEFT JOIN live ON live.session = spans.session
    WHERE spans.until = {forever} AND live.session IS NULL
      AND NOT EXISTS (SELECT 1 FROM events AS e
                      WHERE e.part = spans.part AND e.kind = 'ASSIGN'
                        AND e.session <> spans.session AND e.at_us >= spans.since)
""",
    forever=FOREVER,
)
"""The partitions of killed sessions that no session was assigned after them."""

HANDLED: Final = """
    SELECT u.number, max(if(o.session IS NULL, 0, 1)) AS by_open
    FROM attempts AS a JOIN unaccounted AS u
        ON u.part = a.part AND a.off >= u.lo AND a.off < u.hi
    LEFT JOIN open_sessions AS o ON o.session = a.session
    WHERE a.done GROUP BY u.number
"""
"""The unaccounted ranges of which records were handled, and whether a session handled them that may
have committed without a row for it."""

NOT_DONE: Final = """
    SELECT u.number, count(*) AS records, min(n.off) AS lo, max(n.off) AS hi
    FROM never_done AS n JOIN unaccounted AS u
        ON u.part = n.part AND n.off >= u.lo AND n.off < u.hi
    GROUP BY u.number
"""
"""The number of records in each unaccounted range that no handler completed, and the first and the
last of them."""
