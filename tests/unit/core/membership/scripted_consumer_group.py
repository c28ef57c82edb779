"""A whole core in a group whose coordinator assigns (KIP-848) and is a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unit.core.scripted_brokers import tp
from unit.core.scripted_group import ScriptedGroup

from asyncrevoke.client.core.membership.kip848.state_table import MemberState
from asyncrevoke.client.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ErrorCode,
    TopicIdPartitions,
)

if TYPE_CHECKING:
    from typing import Unpack

    from asyncrevoke.client.config import ConsumerOptions
    from asyncrevoke.client.core.io.effects import Send
    from asyncrevoke.client.model import BrokerPattern, TopicPartition

Beat = ConsumerGroupHeartbeatRequest


class ScriptedConsumerGroup(ScriptedGroup):
    """One core to whose heartbeats the test responds."""

    def __init__(
        self,
        *topics: str,
        partitions: dict[str, int] | None = None,
        pattern: str | BrokerPattern | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        options.setdefault("group_protocol", "consumer")
        super().__init__(*topics, partitions=partitions, pattern=pattern, **options)

    def next_beat(self) -> Send:
        """The heartbeat that is open, or the next one."""
        if not self.sends(Beat):
            self.advance(self.timers["heartbeat"] - self.now)
        return self.only(Beat)[0]

    def beating(self) -> Beat:
        """What the open (or the next) heartbeat says."""
        message = self.next_beat().message
        assert isinstance(message, Beat)
        return message

    def respond(
        self,
        *given: TopicPartition,
        epoch: int = 1,
        assigns: bool = True,
        error: ErrorCode = ErrorCode.none,
        detail: str = "",
        interval: float = 5.0,
    ) -> Beat:
        """Respond with these partitions, with no news (``assigns=False``), or an error."""
        send = self.next_beat()
        message = send.message
        assert isinstance(message, Beat)
        self.reply(
            send,
            ConsumerGroupHeartbeatResponse(
                error=error,
                detail=detail,
                member_id=message.member_id,
                member_epoch=epoch,
                heartbeat_interval=interval,
                assignment=self.ids(*given) if assigns and error is ErrorCode.none else None,
            ),
        )
        return message

    def quiet(self, epoch: int = 1) -> Beat:
        """Respond with nothing new."""
        return self.respond(epoch=epoch, assigns=False)

    def ids(self, *partitions: TopicPartition) -> tuple[TopicIdPartitions, ...]:
        topics: dict[bytes, list[int]] = {}
        for topic, number in sorted(partitions):
            topics.setdefault(self.topic_ids[topic], []).append(number)
        return tuple((topic_id, tuple(numbers)) for topic_id, numbers in sorted(topics.items()))

    def join(self, *numbers: int) -> None:
        """Start, join, get these partitions of orders, and acknowledge them."""
        self.start()
        self.respond(*map(tp, numbers))
        self.quiet()
        assert self.state() is MemberState.STABLE

    def state(self) -> MemberState:
        return MemberState(self.core.health(self.now).state)
