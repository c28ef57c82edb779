"""The start offsets of a share group, and what a reset of them explains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.audit.accounting import (
    OBSERVED,
    SET_BACK,
    UNACCOUNTED,
    is_between_sessions,
    open_sessions,
)
from asyncrevoke.audit.anomalies import Anomaly, AnomalyKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from asyncrevoke.audit.offsets import AuditedGroupOffsets
    from asyncrevoke.audit.sql.database import AuditDatabase
    from asyncrevoke.journal.reading import SessionState

# What a reset of the start offsets explains, which brokers allow only while no member runs.
_BY_RESET = frozenset((AnomalyKind.DUPLICATE_AFTER_ACKNOWLEDGEMENT, AnomalyKind.ACKNOWLEDGED_TWICE))


class ShareAccounting:
    """Creates the tables ``observed`` (with the offsets below which the group delivers no record
    again), ``open_sessions``, and the tables about commits, which stay empty."""

    is_complete = True

    def __init__(
        self,
        database: AuditDatabase,
        sessions: Sequence[SessionState],
        group_offsets: AuditedGroupOffsets | None,
    ) -> None:
        self._sessions = sessions
        observed = (
            []
            if group_offsets is None
            else [(part, off, group_offsets.at_us) for part, off in group_offsets.offsets.items()]
        )
        database.put("observed", OBSERVED, observed)
        database.put("open_sessions", {"session": "STRING"}, open_sessions(sessions))
        database.put("unaccounted", UNACCOUNTED, [])
        database.put("set_back", SET_BACK, [])

    def anomalies(self, windows: Mapping[int, int]) -> Iterator[Anomaly]:
        """None: rules find those of share groups."""
        del windows
        return iter(())

    def explained(self, found: Iterable[Anomaly]) -> Iterator[Anomaly]:
        """These anomalies; those that a reset of start offsets explains as such."""
        for anomaly in found:
            since, until = anomaly.evidence.get("acknowledged_us"), anomaly.observed_us
            is_reset = (
                anomaly.kind in _BY_RESET
                and isinstance(since, int)
                and until is not None
                and is_between_sessions(self._sessions, since, until, None)
            )
            yield anomaly._replace(kind=AnomalyKind.OFFSET_SET) if is_reset else anomaly
