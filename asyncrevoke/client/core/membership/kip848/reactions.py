"""What the heartbeat of a KIP-848 member asks of the member, and reports to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from asyncrevoke.client.core.io.outbox import Reply
    from asyncrevoke.client.protocol.messages import ConsumerGroupHeartbeatRequest


class ConsumerGroupHeartbeatReactions(Protocol):
    """Implemented by :class:`.member.ConsumerGroupMembership`."""

    def compose_heartbeat(self, full: bool, /) -> ConsumerGroupHeartbeatRequest:
        """The next heartbeat; ``full`` if an earlier one may not have arrived."""
        ...

    def background_heartbeat(self) -> ConsumerGroupHeartbeatRequest | None:
        """A heartbeat for a thread while the event loop is blocked, if any: it keeps the membership
        and changes nothing."""
        ...

    def heartbeat_response_received(
        self, now: float, sent: ConsumerGroupHeartbeatRequest, sent_at: float, reply: Reply
    ) -> None:
        """The response to a heartbeat was received, or it has failed."""

    def background_epoch(self, now: float, epoch: int) -> bool:
        """The thread got this epoch; whether it is a new one."""
        ...
