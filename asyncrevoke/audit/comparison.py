"""The steps of an audit of some partitions of a topic."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, LiteralString

from asyncrevoke.audit.accounting import Accounting
from asyncrevoke.audit.anomalies import Anomaly, AnomalyKind
from asyncrevoke.audit.audited_group import EXACT_BELOW, AuditedGroup
from asyncrevoke.audit.offsets import Bounds, Range, UnusedHashes
from asyncrevoke.audit.results.audit_result import (
    DurationCount,
    PartialAudit,
    counted,
    intervals_of,
)
from asyncrevoke.audit.rules.content import (
    ALTERED,
    MISMATCHES,
    NOTED,
    HashlessSessions,
    batch_rules,
)
from asyncrevoke.audit.rules.incomplete import HIDDEN, INCOMPLETE, incomplete
from asyncrevoke.audit.rules.queries import combined, rules
from asyncrevoke.audit.rules.share import share_rules, share_tables
from asyncrevoke.audit.rules.tables import RuleParameters, definitions
from asyncrevoke.audit.rules.views import FOREVER, fingerprints, flagged, inverted, views
from asyncrevoke.audit.share_accounting import ShareAccounting
from asyncrevoke.audit.sql.text import Sql, Text, columns, compose, joined

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from asyncrevoke.audit.sql.database import AuditDatabase
    from asyncrevoke.journal.reading import SessionState

# The tables of what is read of the topic.
_OF_RECORDS = frozenset(("batches", "ranges", "source", "source_fingerprints"))
_WINDOW = ("part", "lo", "log_start", "log_end", "committed", "hi")


def _put_facts(
    database: AuditDatabase,
    bounds: Mapping[int, Bounds],
    sessions: Sequence[SessionState],
    hashless: Collection[str],
) -> None:
    """Create the tables of the partitions' bounds and of the facts of sessions."""
    ranges = {"part": "INT", "lo": "BIGINT", "hi": "BIGINT"}
    database.put("bounds", ranges, [(part, *bound) for part, bound in bounds.items()])
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
    Then it calls :meth:`compare`, defines the table ``source``, and calls :meth:`result`.
    :meth:`apply_rules_of_journal` is called once, at any time before that."""

    def __init__(
        self,
        database: AuditDatabase,
        group: AuditedGroup,
        bounds: Mapping[int, Bounds],
        *,
        compacted: bool,
        keys: bool = True,
        batches: bool = False,
    ) -> None:
        """``keys`` and ``batches`` say whether the keys and the record batches of the topic are
        known. Compares the partitions of ``bounds``."""
        topic, sessions = group.topic, group.sessions
        settings, orders = group.settings, group.orders
        group_offsets = group.offsets_of(bounds)
        self._db = database
        self._topic = topic
        self._settings = settings
        self._intervals = intervals_of(sessions)
        self._hashless = HashlessSessions(database, sessions, batches=batches)
        if missing := incomplete(sessions):
            database.put("incomplete", INCOMPLETE, missing)
            database.define("hidden", HIDDEN)
        _put_facts(database, bounds, sessions, self._hashless.sessions)
        # In these partitions some records have no hashes, so fingerprints are made of offsets only.
        self.hashless_partitions = self._hashless.find_partitions()
        stall_us, skew_us = int(settings.stall * 1e6), int(settings.skew * 1e6)
        vouched = group.vouched is not None and group.vouched.complete
        tables = views(
            stall_us, self.hashless_partitions, incomplete=bool(missing), vouched=vouched
        )
        self._share = ShareAccounting(database, sessions, group_offsets) if group.is_share else None
        if self._share is not None:
            tables |= share_tables(skew_us)
        for name, query in tables.items():
            database.define(name, query)
        self._accounting = self._share or Accounting(
            database, topic, bounds, sessions, group_offsets, skew_us
        )
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
            vouched,
        )
        if self._hashless.by_batch():
            database.define("noted", NOTED)
        query = compose("SELECT {names} FROM windows ORDER BY part", names=columns(_WINDOW))
        rows = database.rows(query)
        self._windows: list[dict[str, Any]] = [dict(zip(_WINDOW, row, strict=True)) for row in rows]
        self._rules = self._defined_rules()
        self._anomalies: list[Anomaly] = []

    def _defined_rules(self) -> dict[AnomalyKind, Text]:
        """The rules, after the tables that they read are defined."""
        terms = self._parameters
        if terms.keyless:
            # If the keys of all records are read, only calls without a record have no key.
            everywhere = not terms.keys or self.in_two_tiers(self.windows())
            repeated = bool(self._db.rows("SELECT 1 FROM crowded LIMIT 1"))
            self._db.define("inverted", inverted(everywhere=everywhere, repeated=repeated))
        for name, query in definitions(terms).items():
            self._db.define(name, query)
        return rules(terms) if self._share is None else share_rules(terms)

    def windows(self) -> list[Range]:
        """The offsets to compare, by partition."""
        ranges = [Range(window["part"], window["lo"], window["hi"]) for window in self._windows]
        return [offset_range for offset_range in ranges if offset_range.hi > offset_range.lo]

    def batches(self) -> list[Range]:
        """The offsets for which the table ``batches`` is needed. Empty if it is not needed."""
        by_batch = self._hashless.by_batch()
        return [window for window in self.windows() if window.partition in by_batch]

    def in_two_tiers(self, windows: Sequence[Range]) -> bool:
        """Whether to compare fingerprints before records."""
        total = sum(window.hi - window.lo for window in windows)
        limit = self._settings.exact_below
        return not self._settings.exact and total >= (EXACT_BELOW if limit is None else limit)

    def unused_hashes(self) -> UnusedHashes:
        """The hashes of records that ``source`` does not need."""
        unused = self._hashless.partitions_without_hashes()
        return UnusedHashes(() if self._parameters.keyless else unused, unused)

    def fingerprints(self, table: LiteralString) -> Sql:
        """The query for the fingerprints of a table of records."""
        return fingerprints(table, self.hashless_partitions)

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
        ranges = _joined(
            offset_range for offset_range in clipped if offset_range.hi > offset_range.lo
        )
        return sum(read for *_, read in rows), ranges

    def compare(self, ranges: Sequence[Range]) -> list[Range]:
        """Set the ranges to compare record by record. Returns the ranges that ``source`` needs:
        these, and the first record after each handover if the log still has it."""
        columns = {"part": "INT", "lo": "BIGINT", "hi": "BIGINT"}
        self._db.put("ranges", columns, ranges)
        rows = self._db.rows(
            """
            SELECT DISTINCT h.part, h.off, h.off + 1
            FROM handovers AS h JOIN windows AS w ON w.part = h.part
            WHERE h.off >= w.log_start AND h.off < w.log_end
            """
        )
        more = [
            Range(*row)
            for row in sorted(rows)
            if not any(r.partition == row[0] and r.lo <= row[1] < r.hi for r in ranges)
        ]
        return [*ranges, *more]

    def result(self, ranges: list[Range], read: int, *, two_tiers: bool) -> PartialAudit:
        """Apply the other rules. Needs the table ``source``."""
        self._apply(self._rules_of_records())
        windows = {window["part"]: window["lo"] for window in self._windows}
        gaps = [*self._accounting.anomalies(windows), *self._hashless.not_compared(self._topic)]
        ((attempts, done),) = self._db.rows(
            "SELECT CAST(coalesce(sum(calls), 0) AS BIGINT),"
            " CAST(coalesce(sum(completed), 0) AS BIGINT) FROM buckets"
        )
        durations = [DurationCount(*row) for row in self._db.rows(counted(self._intervals))]
        anomalies = self._anomalies
        if self._share is not None:
            anomalies = list(self._share.explained(anomalies))
        return PartialAudit(
            gaps,
            anomalies,
            attempts,
            done,
            read,
            two_tiers,
            ranges,
            self._windows,
            self._spans(),
            durations,
        )

    # --- anomalies -------------------------------------------------------------------------------

    def apply_rules_of_journal(self) -> None:
        """Apply the rules that need no records of the topic. May run in another thread while the
        caller reads these."""
        kinds = [kind for kind, rule in self._rules.items() if not self._db.uses(rule, _OF_RECORDS)]
        self._apply({kind: self._rules.pop(kind) for kind in kinds})

    def _rules_of_records(self) -> Mapping[AnomalyKind, Text]:
        found = self._rules
        if self.batches():
            self._db.define("altered", ALTERED)
            if mismatches := self._hashless.mismatches(compacted=self._parameters.compacted):
                self._db.put("mismatches", MISMATCHES, mismatches)
                for kind, query in batch_rules().items():
                    parts = (found[kind], query) if kind in found else (query,)
                    found[kind] = joined(" UNION ALL ", parts)
        return found

    def _apply(self, found: Mapping[AnomalyKind, Text]) -> None:
        rows = self._db.rows(combined(found))
        self._anomalies += [self._anomaly(*row) for row in rows]

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


def _joined(ranges: Iterable[Range]) -> list[Range]:
    """These ranges, with adjacent ones merged."""
    joined: list[Range] = []
    for offset_range in ranges:
        if (
            joined
            and joined[-1].partition == offset_range.partition
            and joined[-1].hi == offset_range.lo
        ):
            joined[-1] = joined[-1]._replace(hi=offset_range.hi)
        else:
            joined.append(offset_range)
    return joined
