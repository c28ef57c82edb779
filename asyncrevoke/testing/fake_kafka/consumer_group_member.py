"""What a coordinator that assigns keeps of each member, and how topics are named to it.

A topic has a *key*: its name, and a number if it was deleted and created again since. The id of a
topic is made of its key, so that a new topic of the same name is another one.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from asyncrevoke.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.protocol.messages import TopicIdPartitions
    from asyncrevoke.testing.fake_kafka.clock import Alarm
    from asyncrevoke.testing.fake_kafka.group_state import Protocols


class BrokerMemberState(enum.Enum):
    """How far a member is on its way to the target."""

    STABLE = "Stable"
    UNREVOKED = "UnrevokedPartitions"
    UNRELEASED = "UnreleasedPartitions"


@dataclass(slots=True)
class ConsumerGroupMember:
    """What the coordinator knows of one member. One with ``protocols`` speaks the classic
    protocol, with a ``session_timeout`` of its own. Partitions are by the keys of their topics."""

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
    protocols: Protocols = ()
    session_timeout: float | None = None
    must_join: Alarm | None = None
    must_sync: Alarm | None = None

    @property
    def is_classic(self) -> bool:
        """Whether it speaks the classic protocol."""
        return bool(self.protocols)

    @property
    def waits_for(self) -> str:
        """For reports."""
        kind = "classic, " if self.is_classic else ""
        return f"{kind}{self.state.value} at epoch {self.epoch}, pending {sorted(self.pending)}"

    def cancel(self) -> None:
        """Let none of its timers run out."""
        for alarm in (self.session, self.rebalance, self.must_join, self.must_sync):
            if alarm is not None:
                alarm.cancel()
        self.must_join = self.must_sync = None


def topic_id(key: str) -> bytes:
    """The id of a simulated topic."""
    return key.encode().ljust(16, b"\0")[:16]


def by_key(partitions: Iterable[TopicIdPartitions]) -> frozenset[TopicPartition]:
    """Partitions of simulated topics."""
    return frozenset(
        TopicPartition(id_.rstrip(b"\0").decode(), number)
        for id_, numbers in partitions
        for number in numbers
    )


def by_id(partitions: frozenset[TopicPartition]) -> tuple[TopicIdPartitions, ...]:
    """What :func:`by_key` reads."""
    topics: dict[bytes, list[int]] = {}
    for key, number in sorted(partitions):
        topics.setdefault(topic_id(key), []).append(number)
    return tuple((id_, tuple(numbers)) for id_, numbers in topics.items())
