"""Compares the committed offsets of a group with those in the journals."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.audit.anomalies import Anomaly, AnomalyKind
from asyncrevoke.audit.rules.unaccounted import (
    HANDLED,
    LAST_OWNERS,
    NOT_DONE,
    OBSERVED,
    SET_BACK,
    SKIPPED,
    UNACCOUNTED,
    Observation,
    Unaccounted,
    is_between_sessions,
    observations,
    open_sessions,
    skipped_runs,
)
from asyncrevoke.audit.sql.text import columns, compose

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from asyncrevoke.audit.offsets import AuditedGroupOffsets, Bounds
    from asyncrevoke.audit.sql.database import AuditDatabase
    from asyncrevoke.journal.reading import SessionState

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
