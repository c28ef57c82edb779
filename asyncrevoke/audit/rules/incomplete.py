"""Decides which rows may be missing in sessions with missing or damaged rows.

A session's rows are in the order of time, so missing rows are not older than the row before them.
In a session with other damage, missing rows may be of any time. They may concern each partition of
which the session has other rows. For other partitions, the table ``unaccounted`` has the offsets
that such a session may have committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString

from asyncrevoke.audit.anomalies import AnomalyKind
from asyncrevoke.audit.rules.views import FOREVER
from asyncrevoke.audit.sql.text import Sql, Text, compose, joined

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncrevoke.journal.reading import SessionState

INCOMPLETE: Final = {"session": "STRING", "since": "BIGINT"}

HIDDEN: Final = """
    SELECT known.part, min(incomplete.since) AS since
    FROM incomplete JOIN (SELECT session, part FROM journal
                          UNION SELECT session, part FROM attempts) AS known
        ON known.session = incomplete.session
    WHERE known.part IS NOT NULL
    GROUP BY known.part
"""
"""The time from which rows of a partition may be missing. Needs the table ``incomplete``."""


def of_whole_sessions(session: LiteralString) -> Sql:
    """The condition that no rows of the session in this column are missing, for example the row
    that assigned the partition."""
    return compose(
        "AND NOT EXISTS (SELECT 1 FROM incomplete WHERE incomplete.session = {session})",
        session=session,
    )


def incomplete(sessions: Sequence[SessionState]) -> list[tuple[str, int]]:
    """The rows of the table ``incomplete``: the time from which rows may be missing."""
    return [
        (state.name, 0 if state.damaged else state.intact_us or 0)
        for state in sessions
        if state.missing or state.damaged or not state.facts
    ]


def may_be_missing(
    part: LiteralString,
    off: LiteralString,
    at: LiteralString,
    skew_us: int,
    *,
    incomplete: bool,
    unaccounted: bool,
) -> Sql | None:
    """The condition that rows about the record in these columns, from before the time ``at``, may
    be missing. None if no rows can be missing."""
    found: list[Text] = []
    if incomplete:
        found.append(
            compose(
                "EXISTS (SELECT 1 FROM hidden WHERE hidden.part = {part}"
                " AND coalesce({at}, {forever}) + {skew} >= hidden.since)",
                part=part,
                at=at,
                forever=FOREVER,
                skew=skew_us,
            )
        )
    if unaccounted:
        found.append(
            compose(
                "EXISTS (SELECT 1 FROM unaccounted WHERE unaccounted.part = {part}"
                " AND {off} >= unaccounted.lo AND {off} < unaccounted.hi)",
                part=part,
                off=off,
            )
        )
    return compose("({any})", any=joined(" OR ", found)) if found else None


def absence_rules(
    never_done: Callable[[Text], Sql], sought: LiteralString, missing: Sql | None
) -> dict[AnomalyKind, Text]:
    """The rules for records that no handler completed and no seek skipped. They are lost, unless
    rows may be missing that say that a handler completed them."""
    if missing is None:
        return {AnomalyKind.LOST: never_done(compose("NOT {sought}", sought=sought))}
    lost, unknown = "NOT {sought} AND NOT {missing}", "NOT {sought} AND {missing}"
    return {
        AnomalyKind.LOST: never_done(compose(lost, sought=sought, missing=missing)),
        AnomalyKind.NOT_RECORDED: never_done(compose(unknown, sought=sought, missing=missing)),
    }
