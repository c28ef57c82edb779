"""The members of a KIP-848 group as their coordinator stores them, and the ids of topics.

A topic's id is derived from its *key*, which is its name.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from asyncrevoke.client.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.client.protocol.messages import TopicIdPartitions
    from asyncrevoke.testing.fake_kafka.clock import Alarm


class BrokerMemberState(enum.Enum):
    """A member's progress towards its target assignment."""

    STABLE = "Stable"
    UNREVOKED = "UnrevokedPartitions"
    UNRELEASED = "UnreleasedPartitions"


@dataclass(slots=True)
class ConsumerGroupMember:
    """One member. Partitions have the keys of their topics."""

    member_id: str
    client: int
    instance_id: str | None
    rebalance_timeout: float = 0.0
    topics: tuple[str, ...] = ()
    regex: str = ""
    epoch: int = 0
    previous_epoch: int = 0
    state: BrokerMemberState = BrokerMemberState.STABLE
    assigned: frozenset[TopicPartition] = frozenset()
    pending: frozenset[TopicPartition] = frozenset()
    session: Alarm | None = None
    rebalance: Alarm | None = None

    def cancel(self) -> None:
        """Cancel its timers."""
        for alarm in (self.session, self.rebalance):
            if alarm is not None:
                alarm.cancel()


def topic_id(key: str) -> bytes:
    """The id of the topic with this key."""
    return key.encode().ljust(16, b"\0")[:16]


def by_key(partitions: Iterable[TopicIdPartitions]) -> frozenset[TopicPartition]:
    """Partitions by the keys of their topics."""
    return frozenset(
        TopicPartition(id_.rstrip(b"\0").decode(), number)
        for id_, numbers in partitions
        for number in numbers
    )


def by_id(partitions: frozenset[TopicPartition]) -> tuple[TopicIdPartitions, ...]:
    """The inverse of :func:`by_key`."""
    topics: dict[bytes, list[int]] = {}
    for key, number in sorted(partitions):
        topics.setdefault(topic_id(key), []).append(number)
    return tuple((id_, tuple(numbers)) for id_, numbers in topics.items())
