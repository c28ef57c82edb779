"""Finds the sessions without hashes of records, and compares their content by batches if
possible."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.audit.anomalies import Anomaly, AnomalyKind
from asyncrevoke.audit.rules.batches import NotedBatch, TopicBatch, mismatches
from asyncrevoke.audit.sql.text import columns, compose

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from asyncrevoke.audit.sql.database import AuditDatabase
    from asyncrevoke.journal.format.schema import Content
    from asyncrevoke.journal.reading import SessionState

_NOTHING = "the journal has no content: Journal(content=None)"
_NO_BATCHES = (
    "the journal has checksums of record batches, and the source has no batches: pass the options"
    ' of the topic as the source, or write hashes of records with Journal(content="records")'
)
_NOT_NOTED = "the journal does not have the record batches of these records"


class Handled(NamedTuple):
    """The first and the last offset of a partition that a session has handled."""

    session: str
    part: int
    first: int
    last: int


class HashlessSessions:
    """The sessions of a journal without hashes of records. ``batches``: the topic's batches are
    known."""

    def __init__(
        self, database: AuditDatabase, sessions: Sequence[SessionState], *, batches: bool
    ) -> None:
        self._db = database
        self._rows = database.rows
        self._contents = self._find(sessions)
        self.sessions: Sequence[str] = list(self._contents)
        # Sessions whose content is compared by batches.
        self._compared_by_batches = {
            name for name, content in self._contents.items() if content and batches
        }
        self._handled: list[Handled] = []

    def _find(self, sessions: Sequence[SessionState]) -> dict[str, Content | None]:
        """The sessions without hashes, with their content setting. If the BEGIN row of a session is
        missing, its other rows show the setting."""
        hashless: dict[str, Content | None] = {
            state.name: state.content for state in sessions if state.content != "records"
        }
        unknown = [(state.name,) for state in sessions if not state.facts]
        if unknown:
            self._db.put("without_beginning", {"session": "STRING"}, unknown)
            found = self._rows(
                "SELECT said.session, bool_or(fetched) FROM"
                " (SELECT session, true AS fetched, NULL AS record_hash FROM journal"
                "  WHERE kind = 'FETCHED'"
                "  UNION ALL SELECT session, false AS fetched, record_hash FROM attempts) AS said"
                " JOIN without_beginning ON without_beginning.session = said.session"
                " GROUP BY said.session HAVING count(record_hash) = 0"
            )
            hashless |= {name: "batches" if noted else None for name, noted in found}
        return hashless

    def find_partitions(self) -> Sequence[int]:
        """The partitions that these sessions handled. Needs the table ``hashless``."""
        if self.sessions:
            query = (
                "SELECT handled.* FROM (SELECT session, part, min(off), max(off) FROM attempts"
                " GROUP BY session, part) AS handled"
                " JOIN hashless ON hashless.session = handled.session"
            )
            self._handled = sorted(map(Handled._make, self._rows(query)))
        return sorted({handled.part for handled in self._handled})

    def partitions_without_hashes(self) -> frozenset[int]:
        """The partitions in which no record has a hash."""
        if not self.sessions:
            return frozenset()
        query = "SELECT part FROM attempts GROUP BY part HAVING count(record_hash) = 0"
        return frozenset(part for (part,) in self._rows(query))

    def by_batch(self) -> frozenset[int]:
        """The partitions whose content is compared by batches."""
        return frozenset(
            handled.part
            for handled in self._handled
            if handled.session in self._compared_by_batches
        )

    def not_compared(self, topic: str) -> Iterator[Anomaly]:
        """Anomalies for content that cannot be compared. Needs the table ``noted`` if
        :meth:`by_batch` is not empty."""
        kind = AnomalyKind.CONTENT_NOT_COMPARED
        for name, content in self._contents.items():
            if name not in self._compared_by_batches:
                reason = _NO_BATCHES if content else _NOTHING
                yield Anomaly(kind, sessions=(name,), evidence={"reason": reason})
        if not self.by_batch():
            return
        query = "SELECT session, part, min(lo), max(hi) FROM noted GROUP BY session, part"
        noted = {(name, part): (lo, hi) for name, part, lo, hi in self._rows(query)}
        for name, part, first, last in self._handled:
            if name not in self._compared_by_batches:
                continue
            lo, hi = noted.get((name, part), (last + 1, last + 1))
            for begin, end in ((first, min(last, lo - 1)), (max(first, hi), last)):
                if begin <= end:
                    where = Anomaly(kind, topic, part, begin, end, sessions=(name,))
                    yield where._replace(evidence={"reason": _NOT_NOTED})

    def mismatches(self, *, compacted: bool) -> list[tuple[str | int, ...]]:
        """The rows of the table ``mismatches``. Needs the tables ``altered``, ``noted`` and
        ``batches``."""
        names = columns(NotedBatch._fields)
        rows = self._rows(compose("SELECT {names} FROM altered", names=names))
        if not rows:
            return []
        altered = map(NotedBatch._make, rows)
        rows = self._rows(compose("SELECT {names} FROM noted", names=names))
        noted = map(NotedBatch._make, rows)
        names = columns(TopicBatch._fields)
        rows = self._rows(compose("SELECT {names} FROM batches", names=names))
        topic = map(TopicBatch._make, rows)
        return list(mismatches(altered, noted, topic, compacted=compacted))
