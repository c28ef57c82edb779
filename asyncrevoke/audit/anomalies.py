"""The kinds of anomalies that an audit reports, with their severities. Imports no other module.

Terms, for one partition and one group. An *attempt* is a call of a handler for a record. A record
is *done* if the outcome of an attempt is one of ``schema.TERMINAL``. A commit *covers* the offsets
before it, from when the broker accepted it. The *window* goes from the first offset in the journal,
or the start of the log, to the last accepted commit. For share groups, see ``rules/share.py``.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple


class Severity(enum.StrEnum):
    """What an anomaly means for the result of the audit."""

    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    WARN = "WARN"
    INFO = "INFO"


class AnomalyKind(enum.StrEnum):
    """Kinds of anomalies."""

    LOST = "lost"
    COMMIT_AHEAD = "commit_ahead"
    DUPLICATE_AFTER_COMMIT = "duplicate_after_commit"
    CONCURRENT_DUPLICATE = "concurrent_duplicate"
    REDELIVERY = "redelivery"
    KEY_ORDER = "key_order"
    OWNERSHIP = "ownership"
    TWO_OWNERS = "two_owners"
    STALE_COMMIT = "stale_commit"
    COMMIT_REGRESSION = "commit_regression"
    OFFSET_SET = "offset_set"
    PHANTOM = "phantom"
    CONTENT_MISMATCH = "content_mismatch"
    ORPHAN = "orphan"
    REVOCATION_OVERRUN = "revocation_overrun"
    STALL = "stall"
    ARCHIVED = "archived"
    DUPLICATE_AFTER_ACKNOWLEDGEMENT = "duplicate_after_acknowledgement"
    ACKNOWLEDGED_TWICE = "acknowledged_twice"
    UNEXPLAINED_REDELIVERY = "unexplained_redelivery"
    ENDED_ELSEWHERE = "ended_elsewhere"
    NOT_ACKNOWLEDGED = "not_acknowledged"
    JOURNAL_MISSING = "journal_missing"
    JOURNAL_GAP = "journal_gap"
    NOT_RECORDED = "not_recorded"
    SOUGHT_PAST = "sought_past"
    ORDER_NOT_COMPARED = "order_not_compared"
    CONTENT_NOT_COMPARED = "content_not_compared"
    RESULT_MISSING = "result_missing"
    RESULT_DOUBLED = "result_doubled"
    RESULT_INCOMPLETE = "result_incomplete"
    RESULT_OF_LOST_OWNER = "result_of_lost_owner"
    RESULT_REPEATED = "result_repeated"
    RESULT_NOT_COMPARED = "result_not_compared"
    RESULT_UNACCOUNTED = "result_unaccounted"
    UNVERIFIABLE = "unverifiable"
    PENDING = "pending"


class AnomalyDescription(NamedTuple):
    """The severity of a kind, and a sentence that describes it."""

    severity: Severity
    text: str


DESCRIPTIONS: Final = {
    AnomalyKind.LOST: AnomalyDescription(
        Severity.FAIL,
        "committed (or accepted, in a share group) although no handler completed it, so the group "
        "skips it",
    ),
    AnomalyKind.COMMIT_AHEAD: AnomalyDescription(
        Severity.FAIL,
        "committed before its handler completed: a crash in between would have lost it",
    ),
    AnomalyKind.DUPLICATE_AFTER_COMMIT: AnomalyDescription(
        Severity.FAIL, "handled again although a commit beyond it had been accepted"
    ),
    AnomalyKind.CONCURRENT_DUPLICATE: AnomalyDescription(
        Severity.FAIL, "handled by two members at the same time"
    ),
    AnomalyKind.REDELIVERY: AnomalyDescription(
        Severity.WARN,
        "completed more than once before it was committed or acknowledged, as at-least-once allows",
    ),
    AnomalyKind.KEY_ORDER: AnomalyDescription(
        Severity.FAIL,
        "its handler started before an earlier record of its key (or partition) had completed",
    ),
    AnomalyKind.OWNERSHIP: AnomalyDescription(
        Severity.FAIL, "handled by a member that did not own the partition at that time"
    ),
    AnomalyKind.TWO_OWNERS: AnomalyDescription(
        Severity.WARN, "two sessions owned the partition at the same time"
    ),
    AnomalyKind.STALE_COMMIT: AnomalyDescription(
        Severity.FAIL,
        "a commit of an older generation was accepted after one of a newer generation",
    ),
    AnomalyKind.COMMIT_REGRESSION: AnomalyDescription(
        Severity.FAIL, "a commit lower than an earlier one was accepted, without a seek"
    ),
    AnomalyKind.OFFSET_SET: AnomalyDescription(
        Severity.WARN,
        "the group's offset was set back while no member was running, as an administrator does",
    ),
    AnomalyKind.PHANTOM: AnomalyDescription(
        Severity.FAIL, "handled, but the topic has no such record"
    ),
    AnomalyKind.CONTENT_MISMATCH: AnomalyDescription(
        Severity.FAIL, "handled with another key or value than the topic has"
    ),
    AnomalyKind.ORPHAN: AnomalyDescription(
        Severity.WARN, "its handler started, but the process ended before the handler did"
    ),
    AnomalyKind.REVOCATION_OVERRUN: AnomalyDescription(
        Severity.WARN, "the revocation of the partition took longer than its time limit"
    ),
    AnomalyKind.STALL: AnomalyDescription(
        Severity.WARN, "records waited while the partition moved from one member to another"
    ),
    AnomalyKind.ARCHIVED: AnomalyDescription(
        Severity.FAIL,
        "not delivered again after its last delivery, and no handler completed or rejected it",
    ),
    AnomalyKind.DUPLICATE_AFTER_ACKNOWLEDGEMENT: AnomalyDescription(
        Severity.FAIL, "handled again although the broker had confirmed its acknowledgement"
    ),
    AnomalyKind.ACKNOWLEDGED_TWICE: AnomalyDescription(
        Severity.FAIL, "accepted or rejected twice, and no lock of it was lost"
    ),
    AnomalyKind.UNEXPLAINED_REDELIVERY: AnomalyDescription(
        Severity.FAIL, "completed more than once, and no lock was lost, nor was it released"
    ),
    AnomalyKind.ENDED_ELSEWHERE: AnomalyDescription(
        Severity.INCONCLUSIVE,
        "not delivered again, and no journal has a call that completed it: a member without a "
        "journal or another client has acknowledged it, or the broker has archived it",
    ),
    AnomalyKind.NOT_ACKNOWLEDGED: AnomalyDescription(
        Severity.INCONCLUSIVE,
        "handled and not delivered again, but no journal has its acknowledgement",
    ),
    AnomalyKind.JOURNAL_MISSING: AnomalyDescription(
        Severity.FAIL,
        "the list of sessions names it, and its journal is missing or has fewer rows",
    ),
    AnomalyKind.JOURNAL_GAP: AnomalyDescription(
        Severity.INCONCLUSIVE,
        "rows of a session are or may be missing, or a client without a journal has committed",
    ),
    AnomalyKind.NOT_RECORDED: AnomalyDescription(
        Severity.INCONCLUSIVE,
        "the committed offset is past it and no row says that it completed, but rows are missing",
    ),
    AnomalyKind.SOUGHT_PAST: AnomalyDescription(
        Severity.WARN, "never completed, because a seek went past it"
    ),
    AnomalyKind.ORDER_NOT_COMPARED: AnomalyDescription(
        Severity.INCONCLUSIVE,
        "its handler started before an earlier record had completed; their keys are not known",
    ),
    AnomalyKind.CONTENT_NOT_COMPARED: AnomalyDescription(
        Severity.INFO, "handled, but its key and value could not be compared with the topic's"
    ),
    AnomalyKind.RESULT_MISSING: AnomalyDescription(
        Severity.FAIL, "committed, and none of the results that were written for it is visible"
    ),
    AnomalyKind.RESULT_DOUBLED: AnomalyDescription(
        Severity.FAIL, "results of it are visible from several transactions"
    ),
    AnomalyKind.RESULT_INCOMPLETE: AnomalyDescription(
        Severity.FAIL, "its result is not visible, but others of the same transaction are"
    ),
    AnomalyKind.RESULT_OF_LOST_OWNER: AnomalyDescription(
        Severity.FAIL,
        "a member that did not own the partition any more has written a visible result of it",
    ),
    AnomalyKind.RESULT_REPEATED: AnomalyDescription(
        Severity.WARN, "results of it are visible from several transactions, because of a seek"
    ),
    AnomalyKind.RESULT_NOT_COMPARED: AnomalyDescription(
        Severity.INCONCLUSIVE, "committed, and it is not known whether a result of it is visible"
    ),
    AnomalyKind.RESULT_UNACCOUNTED: AnomalyDescription(
        Severity.INCONCLUSIVE, "visible in a topic of results, and no journal names its record"
    ),
    AnomalyKind.UNVERIFIABLE: AnomalyDescription(
        Severity.INFO, "handled or committed, but deleted from the topic, so it cannot be compared"
    ),
    AnomalyKind.PENDING: AnomalyDescription(
        Severity.INFO, "not committed yet; of a share group: not below its start offset yet"
    ),
}


class Anomaly(NamedTuple):
    """One anomaly. Offsets are inclusive; they are None if the anomaly is not about records."""

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
        """The severity of its kind."""
        return DESCRIPTIONS[self.kind].severity


class AuditStatus(enum.StrEnum):
    """The result of an audit."""

    PASS = "PASS"  # noqa: S105 - no password
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"

    @property
    def exit_code(self) -> int:
        """The exit code of ``asyncrevoke audit``."""
        return {AuditStatus.PASS: 0, AuditStatus.FAIL: 1, AuditStatus.INCONCLUSIVE: 3}[self]


def status_of(anomalies: list[Anomaly]) -> AuditStatus:
    """FAIL if any anomaly is FAIL, otherwise INCONCLUSIVE if any is INCONCLUSIVE, otherwise
    PASS."""
    found = {anomaly.severity for anomaly in anomalies}
    if Severity.FAIL in found:
        return AuditStatus.FAIL
    return AuditStatus.INCONCLUSIVE if Severity.INCONCLUSIVE in found else AuditStatus.PASS
