"""Log lines about a membership: its assignment, and that it is not confirmed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.core.io.wait_log import WaitLog

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.client.core.io.outbox import Outbox
    from asyncrevoke.client.model import TopicPartition

_MEMBERSHIP = "membership"


class MembershipLog:
    """Logs assignments, what a membership waits for, and when it is confirmed again."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._log = WaitLog(outbox)
        self._not_read: frozenset[str] = frozenset()

    def assigned(
        self, generation: int, partitions: Iterable[TopicPartition], *, added: int, to_go: int
    ) -> None:
        """The group has assigned these; ``added`` are new, and ``to_go`` are being revoked."""
        self._outbox.emit(
            log_events.ASSIGNED,
            generation=generation,
            partitions=[str(tp) for tp in sorted(partitions)],
            added=added,
            to_go=to_go,
        )

    def not_read(self, internal: frozenset[str]) -> None:
        """These internal topics are assigned and not read; each one is logged once."""
        if not internal <= self._not_read:
            self._not_read |= internal
            self._outbox.emit(
                log_events.INTERNAL_TOPICS_NOT_CONSUMED,
                topics=sorted(internal),
            )

    def left(self, error: str | None) -> None:
        """The member has left; ``error`` says why the coordinator has not confirmed it."""
        fields = {} if error is None else {"error": error}
        self._outbox.emit(log_events.LEFT_GROUP, **fields)

    def confirmed(self, now: float) -> None:
        """The coordinator has confirmed the membership."""
        self._log.over(now, _MEMBERSHIP, log_events.MEMBERSHIP_CONFIRMED)

    def no_response(self, now: float, confirmed_at: float | None, session: float) -> None:
        """A heartbeat got no response. The member may have been removed after a session timeout
        without a response; a coordinator that has moved grants a new session."""
        if confirmed_at is not None and now - confirmed_at > session:
            self._log.waiting(
                now,
                _MEMBERSHIP,
                log_events.HEARTBEATS_UNCONFIRMED,
                last_confirmed=round(now - confirmed_at, 1),
            )

    def waiting(self, now: float, waiting_for: str, last_response: str, detail: str) -> None:
        """The coordinator responds without confirming the membership."""
        self._log.waiting(
            now,
            _MEMBERSHIP,
            log_events.HEARTBEATS_REJECTED,
            waiting_for=waiting_for,
            last_response=last_response,
            detail=detail,
        )
