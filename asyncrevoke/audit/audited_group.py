"""The group that an audit is about: its sessions, the order of its handlers, its offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from asyncrevoke.audit.offsets import AuditedGroupOffsets
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import counted, shown_option
from asyncrevoke.journal.format.schema import facts_of
from asyncrevoke.journal.reading import SessionState

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from asyncrevoke.client.config import IsolationLevel
    from asyncrevoke.journal.session_list import SessionList

# With fewer records, comparing fingerprints first takes longer than comparing all records.
EXACT_BELOW: Final = 4_000_000


class AuditSettings(NamedTuple):
    """Settings of an audit. ``skew``: the largest difference between clocks of machines, in
    seconds; ``stall``: the longest handover that is not reported, in seconds; ``exact``: compare
    every record; ``exact_below``: compare every record if there are fewer (None: ``EXACT_BELOW``).
    """

    skew: float = 0.05
    stall: float = 10.0
    exact: bool = False
    exact_below: int | None = None


class VouchedSessions(NamedTuple):
    """What a list of all sessions of a group says: ``absent`` has those whose journals are missing
    or have fewer rows, each with the reason."""

    absent: tuple[tuple[str, str], ...] = ()

    @property
    def complete(self) -> bool:
        """Whether the journals of all sessions are present."""
        return not self.absent


class HandlerOrder(NamedTuple):
    """The ``order_by`` that all handlers of the topic share (None if they differ), and whether
    records with null keys are ordered, too."""

    by: str | None
    nulls: bool


class AuditedGroup(NamedTuple):
    """The group to audit, and how. ``name`` is None for consumers without a group. Without
    ``group_offsets``, the committed offsets are not audited. ``vouched`` is what a list of all
    sessions says; None without one."""

    topic: str
    name: str | None
    sessions: tuple[SessionState, ...]
    orders: HandlerOrder
    group_offsets: AuditedGroupOffsets | None = None
    settings: AuditSettings = AuditSettings()
    vouched: VouchedSessions | None = None

    @property
    def is_share(self) -> bool:
        """Whether it is a share group."""
        return is_share_group(self.sessions)

    def offsets_of(self, partitions: Container[int]) -> AuditedGroupOffsets | None:
        """The committed offsets of these partitions."""
        known = self.group_offsets
        if known is None:
            return None
        some = {part: offset for part, offset in known.offsets.items() if part in partitions}
        return known._replace(offsets=some)


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


def vouched_sessions(
    listed: SessionList | None,
    sessions: Sequence[SessionState],
    without_rows: Iterable[str],
    group: str | None,
) -> VouchedSessions | None:
    """Compare a list of all sessions with those of a journal. ``without_rows`` are the ids of
    sessions whose consumers did not start.

    Raises ConfigError if the list lacks a session of the group, and for a share group, whose audit
    has no committed offsets.
    """
    if listed is None:
        return None
    of_group = sessions_of_group(sessions, group)
    if is_share_group(of_group):
        raise ConfigError(
            f"{shown_option(group)} is a share group, which commits no offsets that a list of "
            "sessions could account for: leave the list out"
        )
    unlisted = sorted(s.name for s in of_group if s.facts and s.name not in listed.sessions)
    if unlisted:
        raise ConfigError(
            f"the journal has {counted(len(unlisted), 'session')} of group {shown_option(group)} "
            f"that the list of sessions lacks, first {unlisted[0]}: give a list of all sessions, "
            "made after the members have ended"
        )
    rows = dict.fromkeys(without_rows, 0) | {state.name: state.rows for state in sessions}
    # What is missing of these is known.
    damaged = {state.name for state in sessions if state.missing or state.damaged}
    absent: list[tuple[str, str]] = []
    for name, session in sorted(listed.sessions.items()):
        if session.group not in (None, group) or name in damaged:
            continue
        if name not in rows:
            absent.append((name, "no folder or row of the journal is of this session"))
        elif rows[name] < (session.rows or 0):
            found = f"it has {rows[name]} of the {session.rows} rows of the list"
            absent.append((name, found))
    return VouchedSessions(tuple(absent))


def is_share_group(sessions: Iterable[SessionState]) -> bool:
    """Whether these sessions are of a share group."""
    return any(state.facts.get("group_type") == "share" for state in sessions)


def handler_order_of(facts: Iterable[str], sessions: Iterable[SessionState]) -> HandlerOrder:
    """The configured order of the handlers. ``facts`` are those of the TOPIC rows."""
    said = [facts_of(fact).get("order_by") for fact in facts]
    orders = {by if isinstance(by, str) else None for by in said}
    nulls = all(state.facts.get("null_keys") == "ordered" for state in sessions)
    return HandlerOrder(orders.pop() if len(orders) == 1 else None, nulls)


def isolation_level_of(
    sessions: Sequence[SessionState], offsets: AuditedGroupOffsets | None = None
) -> IsolationLevel:
    """The isolation level of the consumers, to read the topic with: of a share group, that of the
    group, by default ``"read_uncommitted"``."""
    if is_share_group(sessions):
        known = None if offsets is None else offsets.isolation_level
        return known or "read_uncommitted"
    levels = [state.facts.get("isolation_level") for state in sessions]
    return "read_uncommitted" if "read_uncommitted" in levels else "read_committed"
