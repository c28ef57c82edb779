"""The local engine: an audit on one machine, by DuckDB."""

from __future__ import annotations

import json
from importlib import import_module
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from asyncrevoke.audit.catalogue import Anomaly, AnomalyKind, Verdict, verdict_of
from asyncrevoke.audit.rules import HANDOVERS, RULES
from asyncrevoke.audit.views import FINGERPRINTS, FLAGGED, VIEWS
from asyncrevoke.errors import ConfigError
from asyncrevoke.journal.arrow import Table, pc
from asyncrevoke.journal.reading import SessionState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from asyncrevoke.journal.reading import JournalContent

# Below so many records, fingerprints would save nothing.
EXACT_BELOW = 4_000_000


class Bounds(NamedTuple):
    """Where the log of a partition starts, and where it ends (the next offset)."""

    lo: int
    hi: int


class Range(NamedTuple):
    """Offsets of a partition, without ``hi``."""

    partition: int
    lo: int
    hi: int


class Source(Protocol):
    """The topic."""

    @property
    def bounds(self) -> Mapping[int, Bounds]:
        """Of each partition."""
        ...

    @property
    def compacted(self) -> bool:
        """Whether records vanish from the middle of the log."""
        ...

    async def read(self, ranges: Sequence[Range], take: Callable[[Table], None]) -> None:
        """Give all records in these ranges to ``take``: tables of ``part, off, timestamp_us,
        record_hash``."""
        ...


class Settings(NamedTuple):
    """What an audit may be told. Times are seconds."""

    skew: float = 0.05
    stall: float = 10.0
    exact: bool = False


class Audited(NamedTuple):
    """What came of an audit: everything that a report shows.

    ``attempts``, ``done`` and ``read`` count rows of the journal, records that were done, and
    records that the topic was found to hold; ``exact_ranges`` are those that were compared record
    by record. ``spans`` are rows of partition, session, from and to (None: still); ``stalls`` of
    partition, seconds and when. ``latency`` are seconds of calls by quantile, and
    ``latency_by_time`` rows of time, median and p99.
    """

    topic: str
    group: str | None
    verdict: Verdict
    anomalies: list[Anomaly]
    sessions: tuple[SessionState, ...]
    attempts: int
    done: int
    read: int
    two_tiers: bool
    exact_ranges: list[Range]
    windows: list[dict[str, Any]]
    spans: list[tuple[int, str, int, int | None]]
    latency: dict[str, float]
    latency_by_time: list[tuple[int, float, float]]


async def audit(
    content: JournalContent,
    source: Source,
    topic: str,
    *,
    group: str | None = None,
    settings: Settings | None = None,
) -> Audited:
    """Compare what a journal says of a topic with the topic.

    ``group`` is needed if consumers of several groups share the journal. Raises ConfigError.
    """
    settings = settings or Settings()
    content, group = of_one_group(content, topic, group)
    engine = _Engine(content, source, topic, settings)
    windows = engine.windows()
    total = sum(window.hi - window.lo for window in windows)
    two_tiers = not settings.exact and total >= EXACT_BELOW
    ranges = windows
    if two_tiers:
        engine.two_tiers = True
        await source.read(windows, engine.add_fingerprints)
        ranges = engine.flagged()
    engine.compare(ranges)
    await source.read([*ranges, *engine.handovers(ranges)], engine.add_source)
    anomalies = [*_gaps(content.sessions), *engine.anomalies()]
    return Audited(
        topic,
        group,
        verdict_of(anomalies),
        anomalies,
        content.sessions,
        engine.count("attempts"),
        engine.count("first_done"),
        engine.read,
        two_tiers,
        ranges,
        engine.dicts("SELECT * FROM windows ORDER BY part"),
        engine.spans(),
        engine.latency(),
        engine.latency_by_time(),
    )


def of_one_group(
    content: JournalContent, topic: str, group: str | None
) -> tuple[JournalContent, str | None]:
    """The part of a journal that is about one group and one topic. Raises ConfigError."""
    table, sessions = content.table, content.sessions
    of_topic = table.filter(pc.equal(table["topic"], topic))
    if not of_topic.num_rows:
        known = [name for name in pc.unique(table["topic"]).to_pylist() if name is not None]
        raise ConfigError(
            f"the journal says nothing of topic {topic!r}; it knows {', '.join(sorted(known))}"
        )
    groups = set(pc.unique(of_topic["group"]).to_pylist())
    if group is not None:
        if group not in groups:
            named = ", ".join(sorted(str(name) for name in groups))
            raise ConfigError(f"no group {group!r} has read {topic!r}: the journal knows {named}")
        of_topic = of_topic.filter(pc.equal(of_topic["group"], group))
        # One whose beginning is missing may have been of any group.
        sessions = tuple(s for s in sessions if not s.facts or s.facts.get("group") == group)
    elif len(groups) > 1:
        raise ConfigError(
            f"consumers of several groups have read {topic!r}: name one with --group "
            f"({', '.join(sorted(str(name) for name in groups))})"
        )
    else:
        group = groups.pop()
    return content._replace(table=of_topic, sessions=sessions), group


class _Engine:
    def __init__(
        self, content: JournalContent, source: Source, topic: str, settings: Settings
    ) -> None:
        self._db: Any = import_module("duckdb").connect()
        self._topic = topic
        # Records of the topic, each counted once.
        self.read = 0
        self.two_tiers = False
        db = self._db
        db.register("journal", content.table)
        db.execute("CREATE TABLE bounds (part INTEGER, lo BIGINT, hi BIGINT)")
        rows = [(part, bounds.lo, bounds.hi) for part, bounds in source.bounds.items()]
        db.executemany("INSERT INTO bounds VALUES (?, ?, ?)", rows)
        db.execute("CREATE TABLE ranges (part INTEGER, lo BIGINT, hi BIGINT)")
        db.execute(
            "CREATE TABLE source (part INTEGER, off BIGINT, timestamp_us BIGINT,"
            " record_hash BIGINT)"
        )
        db.execute(
            "CREATE TABLE read_fingerprints (part INTEGER, bucket BIGINT, records BIGINT,"
            " mixed BIGINT, total HUGEINT)"
        )
        order, nulls = _order(content)
        db.execute(
            "CREATE TABLE setting AS SELECT ?::BIGINT AS skew, ?::BIGINT AS stall_us,"
            " ?::BOOLEAN AS compacted, ?::BOOLEAN AS ordered, ?::BOOLEAN AS by_partition,"
            " ?::BOOLEAN AS nulls",
            [
                int(settings.skew * 1e6),
                int(settings.stall * 1e6),
                source.compacted,
                order in ("key", "partition"),
                order == "partition",
                nulls,
            ],
        )
        db.execute("CREATE TABLE live (session VARCHAR)")
        db.execute("CREATE TABLE budgets (session VARCHAR, budget DOUBLE)")
        for state in content.sessions:
            if state.live:
                db.execute("INSERT INTO live VALUES (?)", [state.name])
            if (budget := state.facts.get("revoke_budget")) is not None:
                db.execute("INSERT INTO budgets VALUES (?, ?)", [state.name, budget])
        db.execute(VIEWS)
        db.execute(HANDOVERS)

    def windows(self) -> list[Range]:
        rows = self._db.execute("SELECT part, lo, hi FROM windows WHERE hi > lo ORDER BY part")
        return [Range(*row) for row in rows.fetchall()]

    # --- the topic -------------------------------------------------------------------------------

    def add_fingerprints(self, records: Table) -> None:
        self.read += records.num_rows
        self._db.register("chunk", records)
        self._db.execute(f"INSERT INTO read_fingerprints {FINGERPRINTS} FROM chunk GROUP BY ALL")
        self._db.unregister("chunk")

    def flagged(self) -> list[Range]:
        self._db.execute(
            "CREATE TABLE source_fingerprints AS SELECT part, bucket,"
            " sum(records)::BIGINT AS records, bit_xor(mixed) AS mixed, sum(total) AS total"
            " FROM read_fingerprints GROUP BY ALL"
        )
        buckets = [Range(*row) for row in self._db.execute(FLAGGED).fetchall()]
        windows = {window.partition: window for window in self.windows()}
        clipped = [
            Range(part, max(lo, windows[part].lo), min(hi, windows[part].hi))
            for part, lo, hi in sorted(buckets)
        ]
        # Anew, the second time record by record.
        return [each for each in clipped if each.hi > each.lo]

    def compare(self, ranges: list[Range]) -> None:
        if ranges:
            self._db.executemany("INSERT INTO ranges VALUES (?, ?, ?)", [list(r) for r in ranges])

    def handovers(self, ranges: list[Range]) -> list[Range]:
        """The single records that a handover went on with, if they are in none of the ranges."""
        rows = self._db.execute("SELECT DISTINCT part, off, off + 1 FROM handovers").fetchall()
        return [
            Range(*row)
            for row in rows
            if not any(r.partition == row[0] and r.lo <= row[1] < r.hi for r in ranges)
        ]

    def add_source(self, records: Table) -> None:
        if not self.two_tiers:
            self.read += records.num_rows
        self._db.register("chunk", records)
        self._db.execute(
            "INSERT INTO source SELECT part, off, timestamp_us, record_hash FROM chunk"
        )
        self._db.unregister("chunk")

    # --- what is wrong ---------------------------------------------------------------------------

    def anomalies(self) -> list[Anomaly]:
        found: list[Anomaly] = []
        for kind, rule in RULES.items():
            rows = self._db.execute(f"SELECT * FROM ({rule}) ORDER BY part, lo, at_us").fetchall()
            found += _together([self._anomaly(kind, row) for row in rows])
        return found

    def _anomaly(self, kind: AnomalyKind, row: tuple[Any, ...]) -> Anomaly:
        part, lo, hi, key_hash, sessions, generations, at, evidence = row
        return Anomaly(
            kind,
            self._topic,
            part,
            lo,
            hi,
            key_hash,
            tuple(dict.fromkeys(name for name in sessions if name is not None)),
            tuple(generations),
            at,
            evidence,
        )

    # --- for the report --------------------------------------------------------------------------

    def count(self, table: str) -> int:
        return int(self._db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    def dicts(self, query: str) -> list[dict[str, Any]]:
        answer = self._db.execute(query)
        names = [column[0] for column in answer.description]
        return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]

    def spans(self) -> list[tuple[int, str, int, int | None]]:
        rows = self._db.execute(
            "SELECT part, session, since, until FROM spans ORDER BY part, since"
        )
        return [(p, s, a, None if b >= 2**63 - 1 else b) for p, s, a, b in rows.fetchall()]

    def latency(self) -> dict[str, float]:
        row = self._db.execute(
            "SELECT quantile_cont((f - s) / 1e6, [0.5, 0.95, 0.99]), max(f - s) / 1e6 "
            "FROM attempts WHERE attempt IS NOT NULL"
        ).fetchone()
        if row[0] is None:
            return {}
        return dict(zip(("p50", "p95", "p99", "max"), [*row[0], row[1]], strict=True))

    def latency_by_time(self) -> list[tuple[int, float, float]]:
        rows: list[tuple[int, float, float]] = self._db.execute(
            "WITH edges AS (SELECT min(f) AS first, greatest((max(f) - min(f)) // 120, 1) AS step"
            " FROM attempts WHERE attempt IS NOT NULL)"
            " SELECT first + (f - first) // step * step AS at_us,"
            " quantile_cont((f - s) / 1e6, 0.5), quantile_cont((f - s) / 1e6, 0.99)"
            " FROM attempts, edges WHERE attempt IS NOT NULL"
            " GROUP BY at_us ORDER BY at_us"
        ).fetchall()
        return rows


def _order(content: JournalContent) -> tuple[str | None, bool]:
    """The order that all handlers of the topic kept, if it is one; whether null keys have it."""
    rows = content.table.filter(pc.equal(content.table["kind"], "TOPIC"))["facts"].to_pylist()
    orders = {json.loads(facts)["order_by"] for facts in rows}
    nulls = all(state.facts.get("null_keys") == "ordered" for state in content.sessions)
    return (orders.pop() if len(orders) == 1 else None), nulls


def _gaps(sessions: Sequence[SessionState]) -> list[Anomaly]:
    return [
        Anomaly(
            AnomalyKind.JOURNAL_GAP,
            sessions=(state.name,),
            observed_us=state.last_us,
            evidence={"reason": state.gap, "missing_rows": [list(rows) for rows in state.missing]},
        )
        for state in sessions
        if state.gap is not None
    ]


def _together(anomalies: list[Anomaly]) -> list[Anomaly]:
    """Neighbours of one kind as one range, with the evidence of the first."""
    merged: list[Anomaly] = []
    for _, group in groupby(anomalies, lambda a: (a.partition, a.sessions, a.generations)):
        for anomaly in group:
            last = merged[-1] if merged else None
            if (
                last is not None
                and last.offset_hi is not None
                and anomaly.offset_lo == last.offset_hi + 1
                and (last.partition, last.sessions, last.generations)
                == (anomaly.partition, anomaly.sessions, anomaly.generations)
            ):
                key = last.key_hash if last.key_hash == anomaly.key_hash else None
                merged[-1] = last._replace(offset_hi=anomaly.offset_hi, key_hash=key)
            else:
                merged.append(anomaly)
    return merged
