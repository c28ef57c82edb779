"""What an audit has covered: partitions, offsets, sessions and times."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from asyncrevoke.client.printable import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncrevoke.audit.results.audit_result import AuditResult

_NOT_COMPARED = (
    "The committed offsets of the group were not compared with the journals: the audit finds a "
    "member without a journal only if another member continued after it."
)


class Coverage(NamedTuple):
    """``offsets`` counts the compared offsets in ``partitions``. ``sessions`` counts the sessions
    of the group; ``first_us`` and ``last_us`` are the times of their first and last row, None
    without sessions."""

    partitions: int
    offsets: int
    sessions: int
    first_us: int | None
    last_us: int | None


def coverage_of(audited: AuditResult) -> Coverage:
    """What this audit covered."""
    compared = [max(0, window["hi"] - window["lo"]) for window in audited.windows]
    begins = [s.began_us for s in audited.sessions if s.began_us is not None]
    ends = [s.last_us for s in audited.sessions if s.last_us is not None]
    return Coverage(
        len(compared),
        sum(compared),
        len(audited.sessions),
        min(begins, default=None),
        max(ends, default=None),
    )


def coverage_lines(audited: AuditResult) -> Iterator[str]:
    """Sentences about what the audit has covered."""
    found = coverage_of(audited)
    times = f", from {shown_time(found.first_us)} to {shown_time(found.last_us)}"
    yield (
        f"Covered: {found.offsets:,} offsets of {counted(found.partitions, 'partition')}, in the "
        f"journals of {counted(found.sessions, 'session')}{times if found.sessions else ''}."
    )
    yield group_offsets_line(audited)


def group_offsets_line(audited: AuditResult) -> str:
    """A sentence about the committed offsets that were compared."""
    known = audited.group_offsets
    if known is None:
        return _NOT_COMPARED
    source = "the broker" if known.source == "broker" else "a snapshot of `journal collect`"
    return (
        f"The committed offsets of {counted(len(known.offsets), 'partition')}, from {source} at "
        f"{shown_time(known.at_us)}, were compared with the journals."
    )


def as_json(audited: AuditResult) -> dict[str, Any]:
    """What the audit has covered, as a JSON object."""
    known = audited.group_offsets
    compared = None
    if known is not None:
        offsets = {str(part): offset for part, offset in sorted(known.offsets.items())}
        compared = {"source": known.source, "at_us": known.at_us, "offsets": offsets}
    return {**coverage_of(audited)._asdict(), "group_offsets": compared}


def shown_time(us: int | None) -> str:
    """A time in UTC, to the millisecond; empty for None."""
    if us is None:
        return ""
    return datetime.fromtimestamp(us / 1e6, UTC).isoformat(sep=" ", timespec="milliseconds")
