"""Compares content by record batches: those that sessions received with those of the topic.

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

from asyncrevoke.audit.anomalies import AnomalyKind
from asyncrevoke.audit.sql import expressions
from asyncrevoke.audit.sql.text import compose

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from asyncrevoke.audit.sql.text import Sql

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
