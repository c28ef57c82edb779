"""LeaveGroup: sent once, when the coordinator is known, and not waited for beyond its time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.core.io.effects import Channel
from asyncrevoke.protocol.messages import LeaveGroupRequest, LeaveGroupResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.core.io.outbox import Outbox, Reply
    from asyncrevoke.core.metadata.coordinator import Coordinator

_TIMER = "leave"
_TIMEOUT = 5.0


class LeaveExchange:
    """Tells the coordinator that a member goes; ``on_ended(now)`` follows in any case."""

    def __init__(self, outbox: Outbox, config: ConsumerConfig, coordinator: Coordinator) -> None:
        self._outbox = outbox
        self._group_id = config.group_id or ""
        self._instance_id = config.group_instance_id
        self._timeout = min(config.request_timeout, _TIMEOUT)
        self._coordinator = coordinator
        self._outstanding: int | None = None
        self._wanted = False
        self.on_ended: Callable[[float], None] = lambda _now: None

    def leave(self, now: float, member_id: str, reason: str) -> None:
        """Send LeaveGroup as soon as the coordinator is known."""
        self._wanted = True
        self._outbox.set_timer(_TIMER, now + self._timeout, self._overdue)
        self._coordinator.call_when_known(
            "leave", lambda later: self._send(later, member_id, reason), now
        )

    def stop_waiting(self, now: float) -> None:
        """Time is up: it has ended, without an answer."""
        self._overdue(now)

    def cancel(self) -> None:
        """Forget whatever is outstanding or planned."""
        self._wanted = False
        self._outbox.cancel_timer(_TIMER)
        if self._outstanding is not None:
            self._outbox.forget(self._outstanding)
            self._outstanding = None

    def _send(self, _now: float, member_id: str, reason: str) -> None:
        node = self._coordinator.node
        if node is None or not self._wanted:
            return
        self._outstanding = self._outbox.send(
            LeaveGroupRequest(
                group_id=self._group_id,
                member_id=member_id,
                group_instance_id=self._instance_id,
                reason=reason,
            ),
            node,
            Channel.HEARTBEAT,
            self._timeout,
            self._answered,
        )

    def _answered(self, now: float, reply: Reply) -> None:
        answer = reply.error.name if isinstance(reply, LeaveGroupResponse) else "no answer"
        self._outbox.emit("info", "left the group", group=self._group_id, answer=answer)
        self._end(now)

    def _overdue(self, now: float) -> None:
        """Nobody to tell that we leave: the session timeout will."""
        self._outbox.emit("warning", "left the group without telling it", group=self._group_id)
        self._end(now)

    def _end(self, now: float) -> None:
        self.cancel()
        self.on_ended(now)
