"""Which sessions have hashes of records, and what can be compared of those that have none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from asyncrevoke.audit.anomalies import Anomaly, AnomalyKind
from asyncrevoke.audit.rules.batches import NotedBatch, TopicBatch, mismatches
from asyncrevoke.audit.sql.text import compose, joined

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from asyncrevoke.audit.sql.dialect import SqlDialect
    from asyncrevoke.audit.sql.text import Text
    from asyncrevoke.journal.format.schema import Content
    from asyncrevoke.journal.reading import SessionState

_NOTHING = "the journal has nothing of it: Journal(content=None)"
_NO_BATCHES = (
    "the journal has checksums of record batches, and the source knows nothing of batches: give the"
    ' options of the topic, or write hashes of each record, Journal(content="records")'
)
_NOT_NOTED = "the journal does not say in which record batches they came"


class RowQueries(Protocol):
    """The queries of this module; see :class:`asyncrevoke.audit.comparison.Database`."""

    @property
    def dialect(self) -> SqlDialect:
        """How it writes what is not common to all."""
        ...

    def put(self, name: str, columns: Mapping[str, str], rows: Sequence[Sequence[object]]) -> None:
        """A small table."""
        ...

    def rows(self, query: Text) -> list[tuple[Any, ...]]:
        """What it gives."""
        ...


class Handled(NamedTuple):
    """The first and the last offset that a session has handled of a partition."""

    session: str
    part: int
    first: int
    last: int


class HashlessSessions:
    """The sessions of a journal that have no hashes of records. ``batches``: the topic's batches
    are known."""

    def __init__(
        self,
        database: RowQueries,
        sessions: Sequence[SessionState],
        *,
        batches: bool,
    ) -> None:
        self._db = database
        self._rows = database.rows
        self._contents = self._find(sessions)
        self.sessions: Sequence[str] = list(self._contents)
        # Those whose content is compared by batches.
        self._noting = {name for name, content in self._contents.items() if content and batches}
        self._handled: list[Handled] = []

    def _find(self, sessions: Sequence[SessionState]) -> dict[str, Content | None]:
        """These sessions with their content setting; if the BEGIN row is missing, the rows tell
        it."""
        hashless: dict[str, Content | None] = {
            state.name: state.content for state in sessions if state.content != "records"
        }
        unknown = [(state.name,) for state in sessions if not state.facts]
        if unknown:
            self._db.put("without_beginning", {"session": "STRING"}, unknown)
            found = self._rows(
                "SELECT journal.session, bool_or(kind = 'FETCHED') FROM journal"
                " JOIN without_beginning ON without_beginning.session = journal.session"
                " WHERE kind IN ('ATTEMPT', 'FETCHED')"
                " GROUP BY journal.session HAVING count(record_hash) = 0"
            )
            hashless |= {name: "batches" if noted else None for name, noted in found}
        return hashless

    def find_partitions(self) -> Sequence[int]:
        """The partitions that these sessions handled. Needs the table ``hashless``."""
        if self.sessions:
            query = (
                "SELECT journal.session, part, min(off), max(off) FROM journal"
                " JOIN hashless ON hashless.session = journal.session"
                " WHERE kind = 'ATTEMPT' GROUP BY journal.session, part"
            )
            self._handled = sorted(map(Handled._make, self._rows(query)))
        return sorted({each.part for each in self._handled})

    def by_batch(self) -> frozenset[int]:
        """Partitions whose content is compared by batches."""
        return frozenset(each.part for each in self._handled if each.session in self._noting)

    def not_compared(self, topic: str) -> Iterator[Anomaly]:
        """Anomalies for content that cannot be compared. Needs the table ``noted`` if
        :meth:`by_batch` is not empty."""
        kind = AnomalyKind.CONTENT_NOT_COMPARED
        for name, content in self._contents.items():
            if name not in self._noting:
                reason = _NO_BATCHES if content else _NOTHING
                yield Anomaly(kind, sessions=(name,), evidence={"reason": reason})
        if not self.by_batch():
            return
        query = "SELECT session, part, min(lo), max(hi) FROM noted GROUP BY session, part"
        noted = {(name, part): (lo, hi) for name, part, lo, hi in self._rows(query)}
        for name, part, first, last in self._handled:
            if name not in self._noting:
                continue
            lo, hi = noted.get((name, part), (last + 1, last + 1))
            for begin, end in ((first, min(last, lo - 1)), (max(first, hi), last)):
                if begin <= end:
                    where = Anomaly(kind, topic, part, begin, end, sessions=(name,))
                    yield where._replace(evidence={"reason": _NOT_NOTED})

    def mismatches(self, *, compacted: bool) -> list[tuple[str | int, ...]]:
        """The rows of the table ``mismatches``; needs ``altered``, ``noted`` and ``batches``."""
        columns = joined(", ", map(self._db.dialect.identifier, NotedBatch._fields))
        altered = list(
            map(
                NotedBatch._make,
                self._rows(compose("SELECT {columns} FROM altered", columns=columns)),
            )
        )
        if not altered:
            return []
        noted = map(
            NotedBatch._make, self._rows(compose("SELECT {columns} FROM noted", columns=columns))
        )
        columns = joined(", ", map(self._db.dialect.identifier, TopicBatch._fields))
        topic = map(
            TopicBatch._make, self._rows(compose("SELECT {columns} FROM batches", columns=columns))
        )
        return list(mismatches(altered, noted, topic, compacted=compacted))
