"""The fields of a KIP-848 member's heartbeats: all of them, or those that have changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from asyncrevoke.client.protocol.messages import ConsumerGroupHeartbeatRequest

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.protocol.messages import TopicIdPartitions


class HeartbeatFields:
    """Composes the heartbeats of one member. A subscription is sent only when it has changed."""

    def __init__(self, config: ConsumerConfig) -> None:
        self._config = config
        self._sent: tuple[tuple[str, ...], str | None] | None = None

    def forget(self) -> None:
        """The coordinator knows nothing of this member."""
        self._sent = None

    def short(self, member_id: str, epoch: int) -> ConsumerGroupHeartbeatRequest:
        """A heartbeat without fields that may change."""
        return ConsumerGroupHeartbeatRequest(
            group_id=self._config.group_id or "",
            member_id=member_id,
            member_epoch=epoch,
            group_instance_id=self._config.group_instance_id,
        )

    def compose(
        self,
        member_id: str,
        epoch: int,
        topics: frozenset[str],
        regex: str | None,
        owned: tuple[TopicIdPartitions, ...] | None,
        *,
        full: bool,
    ) -> ConsumerGroupHeartbeatRequest:
        """The next heartbeat, with all fields if ``full``. Without a subscription the member leaves
        by another heartbeat; until then the last subscription is sent."""
        subscription = (tuple(sorted(topics)), regex)
        if not topics and regex is None and self._sent is not None:
            subscription = self._sent
        tells = full or subscription != self._sent
        sent_regex = subscription[1]
        if sent_regex is None and self._sent is not None and self._sent[1]:
            sent_regex = ""
        self._sent = subscription
        return replace(
            self.short(member_id, epoch),
            rack=self._config.client_rack if full else None,
            rebalance_timeout=self._config.rebalance_timeout if full else None,
            topics=subscription[0] if tells else None,
            regex=sent_regex if tells else None,
            assignor=self._config.server_assignor if full else None,
            owned=owned,
        )
