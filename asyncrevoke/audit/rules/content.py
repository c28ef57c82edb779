"""Finds the sessions without hashes of records, and compares their content by batches if possible:
those that sessions received with those of the topic.

Only compaction changes a written batch: it keeps the batch's offsets, and removes records or sets
the delete horizon. A session has therefore handled the topic's content if the topic has the same
batch: same offsets, same number of records, same checksum. For other batches, :func:`mismatches`
returns the affected calls. In the tables ``noted`` and ``batches``, ``lo`` is a batch's first
offset, ``hi`` the offset after its last, and ``came`` the time at which a session received it.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from asyncrevoke.audit.anomalies import Anomaly, AnomalyKind
from asyncrevoke.audit.sql import expressions
from asyncrevoke.audit.sql.text import Sql, columns, compose

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from asyncrevoke.audit.sql.database import AuditDatabase
    from asyncrevoke.journal.format.schema import Content
    from asyncrevoke.journal.reading import SessionState


NOTED: Final = """
    SELECT session, part, off AS lo, last_offset + 1 AS hi, CAST(records AS BIGINT) AS records,
           checksum, started_us AS came
    FROM journal WHERE kind = 'FETCHED'
"""

# Limited to the windows, because the topic is read only there.
ALTERED: Final = """
    SELECT n.session, n.part, n.lo, n.hi, n.records, n.checksum, n.came
    FROM noted AS n JOIN windows AS w ON w.part = n.part AND n.lo < w.hi AND n.hi > w.lo
    LEFT JOIN batches AS b ON b.part = n.part AND b.lo = n.lo AND b.hi = n.hi
        AND b.records = n.records AND b.checksum = n.checksum
    WHERE b.part IS NULL
"""

MISMATCHES: Final = {
    "session": "STRING",
    "part": "INT",
    "piece": "BIGINT",
    "lo": "BIGINT",
    "hi": "BIGINT",
    "since": "BIGINT",
    "until": "BIGINT",
    "batch_lo": "BIGINT",
    "batch_hi": "BIGINT",
    "handled": "BIGINT",
    "has": "BIGINT",
    "sure": "INT",
}
"""Calls of ``session`` for offsets from ``lo`` up to, not including, ``hi``, that started from
``since`` on and before ``until``. They handled another batch than the topic has: certainly if
``sure`` is 1, otherwise perhaps."""

_NEVER = 2**62
# Offsets of a piece. Calls are joined with mismatches of the same piece.
PIECE: Final = 1024


class NotedBatch(NamedTuple):
    """A batch that a session received."""

    session: str
    part: int
    lo: int
    hi: int
    records: int
    checksum: int
    came: int


class TopicBatch(NamedTuple):
    """A batch of the topic. ``rewritten``: compaction has set its delete horizon (KIP-534)."""

    part: int
    lo: int
    hi: int
    records: int
    checksum: int
    rewritten: int


def mismatches(
    altered: Iterable[NotedBatch],
    noted: Iterable[NotedBatch],
    topic: Iterable[TopicBatch],
    *,
    compacted: bool,
) -> Iterator[tuple[str | int, ...]]:
    """The rows of the table ``mismatches``, split at multiples of ``PIECE``. ``altered`` are the
    received batches that the topic does not have unchanged. ``noted`` and ``topic`` need only the
    batches that overlap with these."""
    of_session: dict[tuple[str, int, int], list[NotedBatch]] = defaultdict(list)
    for seen in noted:
        for piece in _pieces(seen.lo, seen.hi):
            of_session[seen.session, seen.part, piece].append(seen)
    in_log: dict[tuple[int, int], list[TopicBatch]] = defaultdict(list)
    for batch in topic:
        for piece in _pieces(batch.lo, batch.hi):
            in_log[batch.part, piece].append(batch)
    for seen in altered:
        for piece in _pieces(seen.lo, seen.hi):
            others = of_session[seen.session, seen.part, piece]
            later = [other for other in others if other.came > seen.came]
            there = in_log[seen.part, piece]
            lo, hi = (
                max(seen.lo, piece * PIECE),
                min(seen.hi, (piece + 1) * PIECE),
            )
            sides = [(o.lo, o.hi) for o in later] + [(b.lo, b.hi) for b in there]
            cuts = {lo, hi} | {cut for side in sides for cut in side if lo < cut < hi}
            for first, end in pairwise(sorted(cuts)):
                has = next((batch for batch in there if batch.lo <= first < batch.hi), None)
                if has is None:
                    continue  # another rule reports offsets that the topic does not have
                # Calls that started after a later batch was received may have handled that one.
                until = min((o.came for o in later if o.lo <= first < o.hi), default=_NEVER)
                yield (
                    *(
                        seen.session,
                        seen.part,
                        piece,
                        first,
                        end,
                        seen.came,
                        until,
                    ),
                    *(seen.lo, seen.hi, seen.checksum, has.checksum),
                    int(_differs(seen, has, compacted=compacted)),
                )


def _differs(noted: NotedBatch, has: TopicBatch, *, compacted: bool) -> bool:
    """Whether the content certainly differs, because compaction cannot explain the difference."""
    if (noted.lo, noted.hi) != (has.lo, has.hi):
        return not compacted
    return has.records >= noted.records and not has.rewritten


def _pieces(lo: int, hi: int) -> range:
    return range(lo // PIECE, (hi - 1) // PIECE + 1)


def batch_rules() -> dict[AnomalyKind, Sql]:
    """Rules for calls whose batch is in the table ``mismatches``."""

    def calls(sure: int) -> Sql:
        evidence = expressions.evidence(
            batch_from="d.batch_lo",
            batch_to="d.batch_hi - 1",
            handled_checksum="d.handled",
            checksum_in_the_topic="d.has",
        )
        return compose(
            """
            SELECT a.part, a.off AS lo, a.off AS hi, a.key_hash,
                   {sessions} AS sessions, {no_generations} AS generations,
                   a.f AS at_us, {evidence} AS evidence
            FROM attempts AS a JOIN mismatches AS d
                ON d.session = a.session AND d.part = a.part AND d.piece = {piece}
                AND a.off >= d.lo AND a.off < d.hi
            WHERE a.s >= d.since AND a.s < d.until AND d.sure = {sure}
        """,
            sessions=expressions.array("STRING", "a.session"),
            no_generations=expressions.array("INT"),
            evidence=evidence,
            piece=expressions.whole("a.off", PIECE),
            sure=sure,
        )

    return {AnomalyKind.CONTENT_MISMATCH: calls(1), AnomalyKind.CONTENT_NOT_COMPARED: calls(0)}


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
