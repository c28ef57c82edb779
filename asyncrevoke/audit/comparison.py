"""The steps of an audit, for DuckDB and Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, LiteralString, NamedTuple

from asyncrevoke.audit.accounting import Accounting
from asyncrevoke.audit.anomalies import Anomaly, AnomalyKind, AuditStatus, status_of
from asyncrevoke.audit.group_offsets import AuditedGroupOffsets
from asyncrevoke.audit.rules.batches import ALTERED, MISMATCHES, NOTED, batch_rules
from asyncrevoke.audit.rules.content import HashlessSessions
from asyncrevoke.audit.rules.incomplete import HIDDEN, INCOMPLETE, incomplete
from asyncrevoke.audit.rules.queries import combined, rules
from asyncrevoke.audit.rules.tables import RuleParameters, definitions
from asyncrevoke.audit.rules.views import FOREVER, fingerprints, flagged, inverted, views
from asyncrevoke.audit.sql.text import compose, joined
from asyncrevoke.errors import ConfigError
from asyncrevoke.journal.format.facts import facts_of
from asyncrevoke.journal.reading import SessionState
from asyncrevoke.printable import shown_option

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from asyncrevoke.audit.sql.database import Database
    from asyncrevoke.audit.sql.text import Sql

# With fewer records, comparing fingerprints first takes longer than comparing all records.
EXACT_BELOW = 4_000_000


class Bounds(NamedTuple):
    """The first offset of a partition's log, and its end (the next offset)."""

    lo: int
    hi: int


class Range(NamedTuple):
    """Offsets of a partition, from ``lo`` up to, not including, ``hi``."""

    partition: int
    lo: int
    hi: int


class AuditSettings(NamedTuple):
    """Settings of an audit. ``skew``: the largest difference between clocks of machines, in
    seconds; ``stall``: the longest handover that is not reported, in seconds; ``exact``: compare
    every record; ``exact_below``: compare every record if there are fewer, and fewer than
    ``EXACT_BELOW``."""

    skew: float = 0.05
    stall: float = 10.0
    exact: bool = False
    exact_below: int = EXACT_BELOW


class AuditResult(NamedTuple):
    """The result of an audit, with all that a report shows.

    ``attempts`` and ``done`` count rows of the journal and records that were done; ``read`` counts
    records of the topic. ``exact_ranges`` were compared record by record. ``group_offsets`` are the
    committed offsets; None if they were not compared. ``spans`` are rows of partition, session,
    start and end of ownership (None: still owned). ``latency`` has the durations of calls in
    seconds by quantile; ``latency_by_time`` has rows of time, median and p99.
    """

    topic: str
    group: str | None
    status: AuditStatus
    anomalies: list[Anomaly]
    sessions: tuple[SessionState, ...]
    attempts: int
    done: int
    read: int
    two_tiers: bool
    exact_ranges: list[Range]
    windows: list[dict[str, Any]]
    group_offsets: AuditedGroupOffsets | None
    spans: list[tuple[int, str, int, int | None]]
    latency: dict[str, float]
    latency_by_time: list[tuple[int, float, float]]


_WINDOW = ("part", "lo", "log_start", "log_end", "committed", "hi")


class HandlerOrder(NamedTuple):
    """The ``order_by`` that all handlers of the topic share (None if they differ), and whether
    records with null keys are ordered, too."""

    by: str | None
    nulls: bool


def _put_facts(
    database: Database,
    bounds: Mapping[int, Bounds],
    sessions: Sequence[SessionState],
    hashless: Collection[str],
) -> None:
    """Create the tables of the partitions' bounds and of the facts of sessions."""
    ranges = {"part": "INT", "lo": "BIGINT", "hi": "BIGINT"}
    database.put("bounds", ranges, [(part, *each) for part, each in bounds.items()])
    database.put("hashless", {"session": "STRING"}, [(name,) for name in hashless])
    live = [(state.name,) for state in sessions if state.live]
    database.put("live", {"session": "STRING"}, live)
    ends = [(s.name, s.last_us) for s in sessions if not s.live and s.last_us is not None]
    database.put("last_rows", {"session": "STRING", "at_us": "BIGINT"}, ends)
    budgets = [
        (state.name, float(budget))
        for state in sessions
        if isinstance(budget := state.facts.get("revoke_budget"), (int, float))
    ]
    database.put("budgets", {"session": "STRING", "budget": "DOUBLE"}, budgets)


class Comparison:
    """One audit. If :meth:`in_two_tiers`, the caller defines the table ``source_fingerprints``.
    Then it calls :meth:`compare`, defines the table ``source``, and calls :meth:`result`."""

    def __init__(
        self,
        database: Database,
        topic: str,
        bounds: Mapping[int, Bounds],
        sessions: Sequence[SessionState],
        orders: HandlerOrder,
        settings: AuditSettings,
        *,
        compacted: bool,
        keys: bool = True,
        batches: bool = False,
        group_offsets: AuditedGroupOffsets | None = None,
    ) -> None:
        """``keys`` and ``batches`` say whether the keys and the record batches of the topic are
        known."""
        self._db = database
        self._topic = topic
        self._settings = settings
        self._group_offsets = group_offsets
        self._hashless = HashlessSessions(database, sessions, batches=batches)
        if missing := incomplete(sessions):
            database.put("incomplete", INCOMPLETE, missing)
            database.define("hidden", HIDDEN)
        _put_facts(database, bounds, sessions, self._hashless.sessions)
        # In these partitions some records have no hashes, so fingerprints are made of offsets only.
        self.hashless_partitions = self._hashless.find_partitions()
        stall_us, skew_us = int(settings.stall * 1e6), int(settings.skew * 1e6)
        tables = views(
            database.dialect, stall_us, self.hashless_partitions, incomplete=bool(missing)
        )
        for name, query in tables.items():
            database.define(name, query)
        self._accounting = Accounting(database, topic, bounds, sessions, group_offsets, skew_us)
        self._parameters = RuleParameters(
            skew_us,
            compacted,
            orders.by in ("key", "partition"),
            orders.by == "partition",
            orders.nulls,
            bool(self._hashless.sessions) and orders.by == "key",
            keys,
            bool(missing),
            not self._accounting.is_complete,
        )
        if self._hashless.by_batch():
            database.define("noted", NOTED)
        rows = database.rows(
            compose(
                "SELECT {names} FROM windows ORDER BY part",
                names=joined(", ", map(database.dialect.identifier, _WINDOW)),
            )
        )
        self._windows: list[dict[str, Any]] = [dict(zip(_WINDOW, row, strict=True)) for row in rows]
        if self._parameters.keyless:
            # If the keys of all records are read, only calls without a record have no key.
            everywhere = not keys or self.in_two_tiers(self.windows())
            database.define("inverted", inverted(everywhere=everywhere))

    def windows(self) -> list[Range]:
        """The offsets to compare, by partition."""
        ranges = [Range(each["part"], each["lo"], each["hi"]) for each in self._windows]
        return [each for each in ranges if each.hi > each.lo]

    def batches(self) -> list[Range]:
        """The offsets for which the table ``batches`` is needed. Empty if it is not needed."""
        by_batch = self._hashless.by_batch()
        return [window for window in self.windows() if window.partition in by_batch]

    def in_two_tiers(self, windows: Sequence[Range]) -> bool:
        """Whether to compare fingerprints before records."""
        total = sum(window.hi - window.lo for window in windows)
        return not self._settings.exact and total >= min(EXACT_BELOW, self._settings.exact_below)

    def fingerprints(self, table: LiteralString) -> Sql:
        """The query for the fingerprints of a table of records."""
        return fingerprints(self._db.dialect, table, self.hashless_partitions)

    def differing(self, windows: Sequence[Range]) -> tuple[int, list[Range]]:
        """The number of records in ``source_fingerprints``, and the ranges in which the
        fingerprints differ from the journal's."""
        by_number = {window.partition: window for window in windows}
        rows = self._db.rows(flagged(inverted=self._parameters.keyless))
        clipped = [
            Range(part, max(lo, by_number[part].lo), min(hi, by_number[part].hi))
            for part, lo, hi in sorted({(p, lo, hi) for p, lo, hi, _ in rows if p is not None})
            if part in by_number
        ]
        ranges = _joined(each for each in clipped if each.hi > each.lo)
        return sum(read for *_, read in rows), ranges

    def compare(self, ranges: Sequence[Range]) -> list[Range]:
        """Set the ranges to compare record by record. Returns the ranges that ``source`` needs:
        these, and the first record after each handover."""
        columns = {"part": "INT", "lo": "BIGINT", "hi": "BIGINT"}
        self._db.put("ranges", columns, ranges)
        rows = self._db.rows("SELECT DISTINCT part, off, off + 1 FROM handovers")
        more = [
            Range(*row)
            for row in sorted(rows)
            if not any(r.partition == row[0] and r.lo <= row[1] < r.hi for r in ranges)
        ]
        return [*ranges, *more]

    def result(
        self,
        group: str | None,
        sessions: tuple[SessionState, ...],
        ranges: list[Range],
        read: int,
        *,
        two_tiers: bool,
    ) -> AuditResult:
        """Apply the rules. Needs the table ``source``."""
        found = self._anomalies()
        windows = {each["part"]: each["lo"] for each in self._windows}
        anomalies = [
            *_gaps(sessions),
            *self._accounting.anomalies(windows),
            *self._hashless.not_compared(self._topic),
            *found,
        ]
        ((attempts, done),) = self._db.rows(
            "SELECT CAST(coalesce(sum(calls), 0) AS BIGINT),"
            " CAST(coalesce(sum(completed), 0) AS BIGINT) FROM buckets"
        )
        return AuditResult(
            self._topic,
            group,
            status_of(anomalies),
            anomalies,
            sessions,
            attempts,
            done,
            read,
            two_tiers,
            ranges,
            self._windows,
            self._group_offsets,
            self._spans(),
            *self._latency(),
        )

    # --- anomalies -------------------------------------------------------------------------------

    def _anomalies(self) -> list[Anomaly]:
        sql = self._db.dialect
        for name, query in definitions(sql, self._parameters).items():
            self._db.define(name, query)
        found = rules(sql, self._parameters)
        if self.batches():
            self._db.define("altered", ALTERED)
            if mismatches := self._hashless.mismatches(compacted=self._parameters.compacted):
                self._db.put("mismatches", MISMATCHES, mismatches)
                for kind, query in batch_rules(sql).items():
                    found[kind] = (
                        joined(" UNION ALL ", (found[kind], query)) if kind in found else query
                    )
        rows = self._db.rows(combined(found))
        return [self._anomaly(*row) for row in rows]

    def _anomaly(
        self,
        kind: str,
        part: int,
        lo: int | None,
        hi: int | None,
        key_hash: int | None,
        sessions: Sequence[str | None],
        generations: Sequence[int | None],
        at: int | None,
        evidence: str,
    ) -> Anomaly:
        known: dict[str, object] = json.loads(evidence)
        return Anomaly(
            AnomalyKind(kind),
            self._topic,
            part,
            lo,
            hi,
            key_hash,
            tuple(dict.fromkeys(name for name in sessions if name is not None)),
            tuple(number for number in generations if number is not None),
            at,
            {name: value for name, value in known.items() if value is not None},
        )

    # --- for the report --------------------------------------------------------------------------

    def _spans(self) -> list[tuple[int, str, int, int | None]]:
        rows = self._db.rows("SELECT part, session, since, until FROM spans ORDER BY part, since")
        return [(p, s, a, None if b >= FOREVER else b) for p, s, a, b in rows]

    def _latency(self) -> tuple[dict[str, float], list[tuple[int, float, float]]]:
        """The durations of all calls, and those by time."""
        sql = self._db.dialect
        quantiles = sql.quantiles("f - s", 0.5, 0.95, 0.99)
        ((found, highest, first, last),) = self._db.rows(
            compose(
                "SELECT {quantiles}, max(f - s), min(f), max(f) FROM attempts"
                " WHERE attempt IS NOT NULL",
                quantiles=quantiles,
            )
        )
        if found is None:
            return {}, []
        values = zip(("p50", "p95", "p99", "max"), [*found, highest], strict=True)
        step = max(1, (last - first) // 120)
        slot = sql.whole(compose("f - {first}", first=first), step)
        rows = self._db.rows(
            compose(
                "SELECT {slot} AS slot, {quantiles} FROM attempts"
                " WHERE attempt IS NOT NULL GROUP BY {slot} ORDER BY slot",
                slot=slot,
                quantiles=sql.quantiles("f - s", 0.5, 0.99),
            )
        )
        by_time = [(first + slot * step, p50 / 1e6, p99 / 1e6) for slot, (p50, p99) in rows]
        return {name: us / 1e6 for name, us in values}, by_time


def group_of(
    known: Iterable[tuple[str | None, str | None]], topic: str, group: str | None
) -> str | None:
    """The group to audit, chosen from the journal's (topic, group) pairs. Raises ConfigError if
    none or several match."""
    pairs = set(known)
    groups = {of for name, of in pairs if name == topic}
    if not groups:
        topics = ", ".join(sorted({name for name, _ in pairs if name is not None}))
        raise ConfigError(
            f"the journal has no rows of topic {shown_option(topic)}; it has rows of {topics}"
        )
    named = ", ".join(sorted(str(name) for name in groups))
    if group is not None:
        if group not in groups:
            raise ConfigError(
                f"no group {shown_option(group)} has read {shown_option(topic)}: the journal has "
                f"{named}"
            )
        return group
    if len(groups) > 1:
        raise ConfigError(
            f"consumers of several groups have read {shown_option(topic)}: choose one with "
            f"group=... ({named})"
        )
    return groups.pop()


def sessions_of_group(
    sessions: Iterable[SessionState], group: str | None
) -> tuple[SessionState, ...]:
    """The sessions of this group. Includes a session whose BEGIN row is missing, because it may be
    of any group. Excludes a session that was killed before its first row."""
    return tuple(s for s in sessions if s.begun and (not s.facts or s.facts.get("group") == group))


def handler_order_of(facts: Iterable[str], sessions: Iterable[SessionState]) -> HandlerOrder:
    """The configured order of the handlers. ``facts`` are those of the TOPIC rows."""
    said = [facts_of(each).get("order_by") for each in facts]
    orders = {by if isinstance(by, str) else None for by in said}
    nulls = all(state.facts.get("null_keys") == "ordered" for state in sessions)
    return HandlerOrder(orders.pop() if len(orders) == 1 else None, nulls)


def isolation_level_of(
    sessions: Iterable[SessionState],
) -> Literal["read_committed", "read_uncommitted"]:
    """The isolation level of the consumers, to read the topic with."""
    levels = [state.facts.get("isolation_level") for state in sessions]
    return "read_uncommitted" if "read_uncommitted" in levels else "read_committed"


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


def _joined(ranges: Iterable[Range]) -> list[Range]:
    """These ranges, with adjacent ones merged."""
    joined: list[Range] = []
    for each in ranges:
        if joined and joined[-1].partition == each.partition and joined[-1].hi == each.lo:
            joined[-1] = joined[-1]._replace(hi=each.hi)
        else:
            joined.append(each)
    return joined
