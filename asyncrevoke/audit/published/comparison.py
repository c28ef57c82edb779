"""Compares the results of records, as a journal has them, with the results that are visible."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from asyncrevoke.audit.anomalies import Anomaly, AnomalyKind, status_of
from asyncrevoke.audit.compared_topic import AuditedTopic, Chunks
from asyncrevoke.audit.offsets import Range, UnusedHashes
from asyncrevoke.audit.published import queries
from asyncrevoke.audit.results.audit_result import AuditResult, ComparedResults
from asyncrevoke.audit.rules.incomplete import incomplete
from asyncrevoke.audit.rules.views import FOREVER
from asyncrevoke.audit.sql.text import compose
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option
from asyncrevoke.journal.format.schema import facts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from asyncrevoke.audit.audited_group import AuditedGroup
    from asyncrevoke.audit.sql.database import AuditDatabase

# The most results that the evidence of an anomaly names.
_MOST_PLACES: Final = 8
_OTHERS = "a member without a journal, or another producer, has written it"


class ResultsTopic(AuditedTopic, Protocol):
    """A topic of results, read with ``read_committed``. Implemented by
    :class:`asyncrevoke.audit.topic.topic.Topic`."""

    @property
    def name(self) -> str:
        """Its name."""
        ...


class _Place(NamedTuple):
    """A result: the number of its topic, its partition and offset, the number of the transaction,
    and the session."""

    topic: int
    partition: int
    offset: int
    number: int
    session: str


class _Found(NamedTuple):
    """An anomaly of one record, or of several."""

    kind: AnomalyKind
    part: int
    lo: int
    hi: int
    at_us: int
    places: list[_Place]
    reason: str | None = None


async def compare_results(
    database: AuditDatabase,
    topics: Sequence[ResultsTopic],
    group: AuditedGroup,
    result: AuditResult,
) -> AuditResult:
    """The result of the audit of a topic, with what its results in these topics add. ``database``
    has the tables of that audit.

    Raises ConfigError if one of the topics is compacted, or the journal names no result in it, and
    TopicError if it cannot be read.
    """
    comparison = _Comparison(database, [topic.name for topic in topics], group)
    compared: list[ComparedResults] = []
    for number, topic in enumerate(topics):
        compared.append(await comparison.read(number, topic))
    found = list(comparison.anomalies())
    anomalies = [*result.anomalies, *found]
    return result._replace(
        anomalies=anomalies, status=status_of(anomalies), results=tuple(compared)
    )


class _Comparison:
    """Creating it makes the table ``written``."""

    def __init__(self, database: AuditDatabase, names: Sequence[str], group: AuditedGroup) -> None:
        self._db = database
        self._names = dict(enumerate(names))
        self._group = group
        numbers = {name: number for number, name in enumerate(names)}
        known = [
            (facts, numbers[name])
            for (facts,) in database.rows(queries.FACTS)
            if isinstance(name := facts_of(facts).get("topic"), str) and name in numbers
        ]
        for name in names:
            if numbers[name] not in {number for _, number in known}:
                raise ConfigError(
                    f"the journal has no results in {shown_option(name)}: consumers with "
                    'processing="exactly_once" record them'
                )
        database.put("result_topics", queries.RESULT_TOPICS, known)
        database.put("log_ends", queries.LOG_ENDS, [])
        database.put("visible", queries.VISIBLE, [])
        database.put("first_written", queries.FIRST, [])
        database.define("written", queries.WRITTEN)
        self._first = {
            (topic, part): (lo, hi) for topic, part, lo, hi in database.rows(queries.FIRST_WRITTEN)
        }

    async def read(self, number: int, topic: ResultsTopic) -> ComparedResults:
        """Read the visible records of a topic, from the first result that a journal names on."""
        if topic.compacted:
            raise ConfigError(
                f"{shown_option(topic.name)} is compacted: results may be missing in it"
            )
        is_live = any(state.live for state in self._group.sessions)
        ranges: list[Range] = []
        ends: list[tuple[int, int, int, int]] = []
        named: list[tuple[int, int, int, int]] = []
        for part, bounds in sorted(topic.bounds.items()):
            first = self._first.get((number, part))
            if first is None:
                continue
            lo = max(bounds.lo, first[0])
            # A session that is running writes results of which it has no row yet.
            until = first[1] if is_live else FOREVER
            named.append((number, part, lo, until))
            ends.append((number, part, lo, bounds.hi))
            if lo < bounds.hi:
                ranges.append(Range(part, lo, bounds.hi))
        self._db.append("first_written", queries.FIRST, named)
        self._db.append("log_ends", queries.LOG_ENDS, ends)
        query = compose("SELECT {number} AS topic, part, off FROM chunk", number=number)
        found = Chunks(self._db, "visible", query)
        everything = UnusedHashes(topic.bounds, topic.bounds)
        await topic.read(ranges, found.take, None, everything)
        found.put()
        ((visible,),) = self._db.rows(
            compose("SELECT count(*) FROM visible WHERE topic = {number}", number=number)
        )
        ((written,),) = self._db.rows(
            compose("SELECT count(*) FROM written WHERE topic = {number}", number=number)
        )
        return ComparedResults(topic.name, visible, written)

    # --- anomalies -------------------------------------------------------------------------------

    def anomalies(self) -> Iterator[Anomaly]:
        """What differs, after all topics were read."""
        self._db.define("placed", queries.PLACED)
        self._db.define("changes", queries.LAST_CHANGES)
        for found in (*self._doubled(), *self._absent(), *self._divided(), *self._of_lost_owners()):
            yield self._anomaly(found)
        for topic, part, lo, hi, count in self._db.rows(queries.UNACCOUNTED_RESULTS):
            evidence: dict[str, object] = {"reason": _OTHERS, "records": count}
            name = self._names[topic]
            kind = AnomalyKind.RESULT_UNACCOUNTED
            yield Anomaly(kind, name, part, lo, hi, evidence=evidence)

    @property
    def _skew_us(self) -> int:
        return int(self._group.settings.skew * 1e6)

    def _doubled(self) -> Iterator[_Found]:
        rows = [
            _Found(
                AnomalyKind.RESULT_REPEATED if sought else AnomalyKind.RESULT_DOUBLED,
                part,
                off,
                off,
                at_us,
                _places(places),
            )
            for part, off, at_us, places, sought in self._db.rows(queries.doubled(self._skew_us))
        ]
        return _joined(rows)

    def _absent(self) -> Iterator[_Found]:
        query = queries.absent(self._skew_us, incomplete=bool(incomplete(self._group.sessions)))
        rows: list[_Found] = []
        for part, off, at_us, places, unseen, unknown, hidden in self._db.rows(query):
            reason = None
            if unseen and not (unknown or hidden):
                kind = AnomalyKind.RESULT_MISSING
            elif unseen or unknown:
                kind = AnomalyKind.RESULT_NOT_COMPARED
                reason = (
                    "rows about its results are or may be missing"
                    if hidden
                    else "the offset of a result is unknown, or after the last stable offset"
                )
            else:
                kind, reason = AnomalyKind.UNVERIFIABLE, "its results were deleted"
            rows.append(_Found(kind, part, off, off, at_us, _places(places), reason))
        return _joined(rows)

    def _divided(self) -> Iterator[_Found]:
        for part, lo, hi, at_us, places in self._db.rows(queries.DIVIDED):
            yield _Found(AnomalyKind.RESULT_INCOMPLETE, part, lo, hi, at_us, _places(places))

    def _of_lost_owners(self) -> Iterator[_Found]:
        rows: list[_Found] = []
        for part, off, at_us, places, kind, other in self._db.rows(
            queries.of_lost_owners(self._skew_us)
        ):
            reason = {"LOST": "after it had lost the partition"}.get(
                kind, "after it had released the partition"
            )
            if kind == "ASSIGN":
                reason = f"while the partition was assigned to session {other}"
            found = AnomalyKind.RESULT_OF_LOST_OWNER
            rows.append(_Found(found, part, off, off, at_us, _places(places), reason))
        return _joined(rows)

    def _anomaly(self, found: _Found) -> Anomaly:
        shown = [
            f"{self._names[place.topic]}-{place.partition} at {place.offset}, transaction "
            f"{place.number} of {place.session}"
            for place in found.places[:_MOST_PLACES]
        ]
        evidence: dict[str, object] = {"results": shown}
        if found.reason is not None:
            evidence["reason"] = found.reason
        return Anomaly(
            found.kind,
            self._group.topic,
            found.part,
            found.lo,
            found.hi,
            sessions=tuple(dict.fromkeys(place.session for place in found.places)),
            observed_us=found.at_us,
            evidence=evidence,
        )


def _places(rows: Iterable[Any]) -> list[_Place]:
    found = [_Place(*(row.values() if isinstance(row, dict) else row)) for row in rows]
    return sorted(found)


def _joined(rows: Sequence[_Found]) -> Iterator[_Found]:
    """Adjacent records with the same anomaly of the same sessions as one, with the results of the
    first one."""

    def alike(numbered: tuple[int, _Found]) -> object:
        number, found = numbered
        sessions = tuple(sorted({place.session for place in found.places}))
        return found.kind, found.part, found.lo - number, sessions, found.reason

    for _, same in groupby(enumerate(rows), alike):
        together = [found for _, found in same]
        yield together[0]._replace(hi=together[-1].hi)
