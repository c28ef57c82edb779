"""Sessions with missing or damaged rows, and what those rows may have said.

A session's rows are ordered by time, so missing rows are not older than the row before them. If
more is wrong with a session, its missing rows may be of any time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString

from asyncrevoke.audit.anomalies import AnomalyKind
from asyncrevoke.audit.rules.views import FOREVER
from asyncrevoke.audit.sql.text import compose

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncrevoke.audit.sql.text import Sql, Text
    from asyncrevoke.journal.reading import SessionState

INCOMPLETE: Final = {"session": "STRING", "first": "BIGINT"}

HIDDEN: Final = """
    SELECT coalesce(min(since), 0) AS since
    FROM (SELECT i.session, coalesce(max(j.at_us), 0) AS since
          FROM incomplete AS i LEFT JOIN journal AS j
              ON j.session = i.session AND j.seq < i.first
          GROUP BY i.session)
"""
"""One row: the time from which on rows may be missing; needs the table ``incomplete``."""


OF_WHOLE_SESSIONS: Final = """AND NOT EXISTS (
    SELECT 1 FROM incomplete WHERE incomplete.session = a.session)"""
"""Of the others, the row that assigned a partition may be missing."""


def incomplete(sessions: Sequence[SessionState]) -> list[tuple[str, int]]:
    """The rows of the table ``incomplete``: the number of the first row that may be missing."""
    return [
        (state.name, state.missing[0][0] if state.missing and not state.damaged else 0)
        for state in sessions
        if state.missing or state.damaged or not state.facts
    ]


def absence_rules(
    never_done: Callable[[Text], Sql],
    sought: LiteralString,
    skew_us: int,
    *,
    incomplete: bool,
) -> dict[AnomalyKind, Text]:
    """The rules for records that no handler completed and no seek skipped: they are lost, unless
    missing rows may say that a handler completed them."""
    if not incomplete:
        return {AnomalyKind.LOST: never_done(compose("NOT {sought}", sought=sought))}
    hidden = compose(
        "coalesce(n.at_us, {forever}) + {skew} >= (SELECT min(since) FROM hidden)",
        forever=FOREVER,
        skew=skew_us,
    )
    lost, unknown = "NOT {sought} AND NOT {hidden}", "NOT {sought} AND {hidden}"
    return {
        AnomalyKind.LOST: never_done(compose(lost, sought=sought, hidden=hidden)),
        AnomalyKind.NOT_RECORDED: never_done(compose(unknown, sought=sought, hidden=hidden)),
    }
