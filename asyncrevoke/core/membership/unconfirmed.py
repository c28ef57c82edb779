"""Log lines about a membership that the coordinator does not confirm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.core.io.wait_log import WaitLog

if TYPE_CHECKING:
    from asyncrevoke.core.io.outbox import Outbox

_MEMBERSHIP = "membership"


class UnconfirmedLog:
    """Says what a membership waits for, and when it is confirmed again."""

    def __init__(self, outbox: Outbox, group_id: str | None) -> None:
        self._log = WaitLog(outbox)
        self._group_id = group_id

    def confirmed(self, now: float) -> None:
        """The coordinator has confirmed the membership."""
        self._log.over(now, _MEMBERSHIP, "membership is confirmed again")

    def unanswered(self, now: float, confirmed_at: float | None, session: float) -> None:
        """A heartbeat was not answered. After more than a session without an answer the member may
        have been removed; a coordinator that has moved grants a new session."""
        if confirmed_at is not None and now - confirmed_at > session:
            self._log.waiting(
                now,
                _MEMBERSHIP,
                "membership is suspect: no heartbeat was confirmed for longer than the session",
                group=self._group_id,
                last_confirmed=round(now - confirmed_at, 1),
            )

    def waiting(self, now: float, what: str, last_answer: str, detail: str) -> None:
        """The coordinator answers, and does not confirm."""
        self._log.waiting(
            now,
            _MEMBERSHIP,
            f"waiting for {what}",
            group=self._group_id,
            last_answer=last_answer,
            detail=detail,
        )
