"""Compares the committed offsets of a group with those in the journals.

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

from asyncrevoke.audit.anomalies import Anomaly, AnomalyKind
from asyncrevoke.audit.rules.views import FOREVER
from asyncrevoke.audit.sql.text import Sql, columns, compose
from asyncrevoke.journal.format.schema import facts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from asyncrevoke.audit.offsets import AuditedGroupOffsets, Bounds
    from asyncrevoke.audit.sql.database import AuditDatabase
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


_OF_BROKER = "the group's offset at the broker"
_OF_SESSION = "the offset at which a session was assigned the partition"
_OTHERS = (
    "a member whose journal is missing or was cut, a member without a journal, another client, or"
    " an administrator"
)
_RETENTION = "committed by others, and removed from the log by retention"
_NO_OFFSETS = (
    "its process was killed while it owned the partition, and the committed offset of the group is"
    " not known: the end of its journal may have been cut"
)


class _Gap(NamedTuple):
    """The first and the last unaccounted offset, and how many records have no row in any journal.
    ``records`` is None if that is not known."""

    lo: int
    hi: int
    records: int | None


class Accounting:
    """The offsets that the group has committed and no journal accounts for.

    Creating it reads the table ``events`` and creates the tables ``unaccounted`` and ``set_back``.
    ``bounds`` are those of the topic's partitions.
    """

    def __init__(
        self,
        database: AuditDatabase,
        topic: str,
        bounds: Mapping[int, Bounds],
        sessions: Sequence[SessionState],
        group_offsets: AuditedGroupOffsets | None,
        skew_us: int,
    ) -> None:
        self._db = database
        self._topic = topic
        self._bounds = bounds
        self._sessions = sessions
        self._live = any(state.live for state in sessions)
        self._group_offsets = group_offsets
        observed = (
            []
            if group_offsets is None
            else [(part, off, group_offsets.at_us) for part, off in group_offsets.offsets.items()]
        )
        database.put("observed", OBSERVED, observed)
        database.put("open_sessions", {"session": "STRING"}, open_sessions(sessions))
        database.define("observations", observations(skew_us))
        names = columns(Observation._fields)
        query = compose("SELECT {names} FROM observations", names=names)
        found = sorted(map(Observation._make, database.rows(query)), key=str)
        self._set_back = [candidate for candidate in found if self._is_set_back(candidate)]
        skipped = skipped_runs(database.rows(SKIPPED))
        beyond = (candidate for candidate in found if candidate.off > (candidate.reach or 0))
        every = (*map(_unaccounted, beyond), *skipped)
        self._removed = [offsets for offsets in every if offsets.lo < self._log_start(offsets)]
        self._unaccounted = list(self._clipped(every))
        unaccounted = [(number, *row[:3]) for number, row in enumerate(self._unaccounted)]
        database.put("unaccounted", UNACCOUNTED, unaccounted)
        set_back = [(seen.session, seen.part, seen.off, seen.at_us) for seen in self._set_back]
        database.put("set_back", SET_BACK, set_back)

    @property
    def is_complete(self) -> bool:
        """Whether the journals account for all committed offsets."""
        return not self._unaccounted

    def _is_set_back(self, seen: Observation) -> bool:
        if seen.committed is None or seen.off >= seen.committed:
            return False
        # Members may have committed after the broker responded, or after the snapshot was taken.
        offsets = self._group_offsets
        is_latest = offsets is not None and offsets.source == "broker" and not self._live
        return seen.session is not None or is_latest

    def _clipped(self, found: Sequence[Unaccounted]) -> Iterator[Unaccounted]:
        for candidate in found:
            if (bounds := self._bounds.get(candidate.part)) is not None:
                clipped = candidate._replace(
                    lo=max(candidate.lo, bounds.lo), hi=min(candidate.hi, bounds.hi)
                )
                if clipped.lo < clipped.hi:
                    yield clipped

    def _log_start(self, offsets: Unaccounted) -> int:
        bounds = self._bounds.get(offsets.part)
        return 0 if bounds is None else bounds.lo

    def anomalies(self, windows: Mapping[int, int]) -> Iterator[Anomaly]:
        """The anomalies. ``windows`` has the first compared offset of each compared partition.
        Needs the tables ``never_done`` and ``attempts``."""
        yield from map(self._offset_set, self._set_back)
        yield from self._without_offsets()
        for offsets in self._removed:
            last = min(offsets.hi, self._log_start(offsets)) - 1
            where = Anomaly(AnomalyKind.UNVERIFIABLE, self._topic, offsets.part, offsets.lo, last)
            yield where._replace(observed_us=offsets.at_us, evidence={"reason": _RETENTION})
        if not self._unaccounted:
            return
        handled = dict(self._db.rows(HANDLED))
        not_done = {number: _Gap(lo, hi, n) for number, n, lo, hi in self._db.rows(NOT_DONE)}
        for number, offsets in enumerate(self._unaccounted):
            compared_from = windows.get(offsets.part)
            whole = _Gap(offsets.lo, offsets.hi - 1, None)
            if offsets.by_map or handled.get(number) == 1:
                gap = not_done.get(number)
            elif number in handled or number in not_done:
                gap = whole
            else:
                # Either the range was not compared, or it has no records.
                is_compared = compared_from is not None and offsets.lo >= compared_from
                gap = None if is_compared else whole
            if gap is not None:
                yield self._gap(offsets, gap)

    def _without_offsets(self) -> Iterator[Anomaly]:
        """The partitions of killed sessions whose committed offset is not known."""
        strict = {s.name for s in self._sessions if s.strict and s.gap is None}
        known = () if self._group_offsets is None else self._group_offsets.offsets.keys()
        for session, part in sorted(self._db.rows(LAST_OWNERS)):
            if session in strict and part not in known:
                where = Anomaly(AnomalyKind.JOURNAL_GAP, self._topic, part, sessions=(session,))
                yield where._replace(evidence={"reason": _NO_OFFSETS})

    def _gap(self, offsets: Unaccounted, gap: _Gap) -> Anomaly:
        where = Anomaly(AnomalyKind.JOURNAL_GAP, self._topic, offsets.part, gap.lo, gap.hi)
        if offsets.by_map:
            reason = f"completed according to a completion map, and no journal has it: by {_OTHERS}"
        else:
            what = _OF_BROKER if offsets.session is None else _OF_SESSION
            reason = (
                f"{what} is {offsets.hi}, and no journal accounts for it: committed by {_OTHERS}"
            )
        evidence: dict[str, object] = {"reason": reason}
        if gap.records is not None:
            evidence["records_without_a_row"] = gap.records
        sessions = () if offsets.session is None else (offsets.session,)
        return where._replace(sessions=sessions, observed_us=offsets.at_us, evidence=evidence)

    def _offset_set(self, seen: Observation) -> Anomaly:
        assert seen.committed is not None
        assert seen.committed_us is not None
        evidence: dict[str, object] = {
            "committed": seen.off,
            "before": seen.committed,
            "before_us": seen.committed_us,
        }
        if is_between_sessions(self._sessions, seen.committed_us, seen.at_us, seen.session):
            # An administrator has set the offset.
            kind = AnomalyKind.OFFSET_SET
        else:
            kind = AnomalyKind.JOURNAL_GAP
            evidence["reason"] = (
                f"the committed offset went back from {seen.committed} to {seen.off}, and no"
                f" journal accounts for that: by {_OTHERS}"
            )
        return Anomaly(
            kind,
            self._topic,
            seen.part,
            seen.off,
            seen.committed - 1,
            sessions=() if seen.session is None else (seen.session,),
            observed_us=seen.at_us,
            evidence=evidence,
        )


def _unaccounted(seen: Observation) -> Unaccounted:
    return Unaccounted(seen.part, seen.reach or 0, seen.off, seen.session, seen.at_us)
