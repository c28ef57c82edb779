"""Everything that an audit looks for, and how bad it is. Imports nothing.

Terms, for one partition and one group: an *attempt* is a call for a record; it is *done* if its
outcome is one of ``schema.TERMINAL``; an offset is *covered* from when a commit beyond it was
accepted; the *window* goes from the first offset that the journal knows of (or where the log
starts) to the last accepted commit.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple


class Severity(enum.StrEnum):
    """What an anomaly means for the verdict."""

    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    WARN = "WARN"
    INFO = "INFO"


class AnomalyKind(enum.StrEnum):
    """What can be wrong."""

    LOST = "lost"
    COMMIT_AHEAD = "commit_ahead"
    DUPLICATE_AFTER_COMMIT = "duplicate_after_commit"
    CONCURRENT_DUPLICATE = "concurrent_duplicate"
    REDELIVERY = "redelivery"
    KEY_ORDER = "key_order"
    OWNERSHIP = "ownership"
    STALE_COMMIT = "stale_commit"
    COMMIT_REGRESSION = "commit_regression"
    PHANTOM = "phantom"
    CONTENT_MISMATCH = "content_mismatch"
    ORPHAN = "orphan"
    REVOCATION_OVERRUN = "revocation_overrun"
    STALL = "stall"
    JOURNAL_GAP = "journal_gap"
    NOT_RECORDED = "not_recorded"
    SOUGHT_PAST = "sought_past"
    ORDER_NOT_COMPARED = "order_not_compared"
    CONTENT_NOT_COMPARED = "content_not_compared"
    UNVERIFIABLE = "unverifiable"
    PENDING = "pending"


class Meaning(NamedTuple):
    """How bad it is, and a sentence."""

    severity: Severity
    text: str


CATALOGUE: Final = {
    AnomalyKind.LOST: Meaning(
        Severity.FAIL, "committed past, and never done: nobody will handle it"
    ),
    AnomalyKind.COMMIT_AHEAD: Meaning(
        Severity.FAIL, "committed before it was done: a crash in between would have lost it"
    ),
    AnomalyKind.DUPLICATE_AFTER_COMMIT: Meaning(
        Severity.FAIL, "handled again although a commit beyond it had been accepted"
    ),
    AnomalyKind.CONCURRENT_DUPLICATE: Meaning(
        Severity.FAIL, "handled by two members at the same time"
    ),
    AnomalyKind.REDELIVERY: Meaning(
        Severity.WARN, "done more than once, before it was committed: at-least-once"
    ),
    AnomalyKind.KEY_ORDER: Meaning(
        Severity.FAIL, "begun before an earlier record of its key (or partition) had ended"
    ),
    AnomalyKind.OWNERSHIP: Meaning(
        Severity.FAIL, "handled by a member that did not own the partition then"
    ),
    AnomalyKind.STALE_COMMIT: Meaning(
        Severity.FAIL, "a commit of an older generation was accepted after one of a newer"
    ),
    AnomalyKind.COMMIT_REGRESSION: Meaning(
        Severity.FAIL, "a commit was accepted that is lower than an earlier one, without a seek"
    ),
    AnomalyKind.PHANTOM: Meaning(Severity.FAIL, "handled, and the topic has no such record"),
    AnomalyKind.CONTENT_MISMATCH: Meaning(
        Severity.FAIL, "handled with another key or value than the topic has"
    ),
    AnomalyKind.ORPHAN: Meaning(Severity.WARN, "begun, and its process ended before it did"),
    AnomalyKind.REVOCATION_OVERRUN: Meaning(
        Severity.WARN, "the partition was released later than the time there was for it"
    ),
    AnomalyKind.STALL: Meaning(
        Severity.WARN, "records waited while the partition went from one member to the next"
    ),
    AnomalyKind.JOURNAL_GAP: Meaning(Severity.INCONCLUSIVE, "rows are, or may be, missing"),
    AnomalyKind.NOT_RECORDED: Meaning(
        Severity.INCONCLUSIVE,
        "committed past, and not done by what is left of the journal, of which rows are missing",
    ),
    AnomalyKind.SOUGHT_PAST: Meaning(
        Severity.WARN, "never done, because the position was set beyond it"
    ),
    AnomalyKind.ORDER_NOT_COMPARED: Meaning(
        Severity.INCONCLUSIVE,
        "begun before an earlier record had ended, and nobody knows whether their keys differ",
    ),
    AnomalyKind.CONTENT_NOT_COMPARED: Meaning(
        Severity.INFO,
        "handled, and nobody knows whether with the keys and values that the topic has",
    ),
    AnomalyKind.UNVERIFIABLE: Meaning(
        Severity.INFO, "handled, and the topic no longer has it, so that it cannot be compared"
    ),
    AnomalyKind.PENDING: Meaning(Severity.INFO, "not committed yet, and not done"),
}


class Anomaly(NamedTuple):
    """One thing that is wrong. Offsets are inclusive; None where it is about no single record."""

    kind: AnomalyKind
    topic: str | None = None
    partition: int | None = None
    offset_lo: int | None = None
    offset_hi: int | None = None
    key_hash: int | None = None
    sessions: tuple[str, ...] = ()
    generations: tuple[int, ...] = ()
    observed_us: int | None = None
    evidence: dict[str, object] = {}  # noqa: RUF012 - never changed

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return CATALOGUE[self.kind].severity


class Verdict(enum.StrEnum):
    """What an audit ends with."""

    PASS = "PASS"  # noqa: S105 - no password
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"

    @property
    def exit_code(self) -> int:
        """Of the command line."""
        return {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.INCONCLUSIVE: 3}[self]


def verdict_of(anomalies: list[Anomaly]) -> Verdict:
    """FAIL if anything failed, INCONCLUSIVE if something may be hidden, PASS otherwise."""
    found = {anomaly.severity for anomaly in anomalies}
    if Severity.FAIL in found:
        return Verdict.FAIL
    return Verdict.INCONCLUSIVE if Severity.INCONCLUSIVE in found else Verdict.PASS
