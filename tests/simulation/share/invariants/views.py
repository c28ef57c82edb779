"""What the oracles know of each member, and of each record that it believes to have acquired."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from asyncrevoke.client.core.share.state_table import RecordState
from asyncrevoke.client.protocol.share_messages import AcknowledgeType, TopicIdPartition

if TYPE_CHECKING:
    from simulation.share.members.share_member import SimulatedShareMember

    from asyncrevoke.client.core.io.deadline import Deadline
    from asyncrevoke.client.core.io.effects import Node, Send
    from asyncrevoke.client.core.share.acquired_records import AcquiredRecord as Acquired
    from asyncrevoke.client.core.share.acquisition import HeldRecord
    from asyncrevoke.testing.fake_kafka.share_partition import SharePartition

Offset: TypeAlias = tuple[TopicIdPartition, int]


@dataclass(slots=True)
class HeldView:
    """What one member believes of a record that it has acquired. ``asked`` is what its application
    wants, from ``asked_at`` on."""

    acquisition: int
    node: Node
    record: HeldRecord
    state: RecordState = RecordState.HELD
    asked: AcknowledgeType | None = None
    asked_at: float = 0.0


@dataclass(slots=True)
class MemberView:
    """What is known of one member. ``disturbed_until``: when its locks may pass no more."""

    member: SimulatedShareMember
    held: dict[Offset, HeldView] = field(default_factory=dict)
    running: dict[Offset, int] = field(default_factory=dict)
    numbers: dict[int, int] = field(default_factory=dict)
    outstanding: dict[Node, Send] = field(default_factory=dict)
    must_open: dict[Node, None] = field(default_factory=dict)
    sent: deque[float] = field(default_factory=deque)
    disturbed_until: float = 0.0
    close: Deadline | None = None
    why: str = ""

    def find(self, record: Acquired) -> tuple[Offset, HeldView | None]:
        """What the member believes of a record that its application has; None if it is lost."""
        for where, held in self.held.items():
            if (
                where[1] == record.offset
                and where[0].partition == record.partition
                and held.acquisition == record.timestamp
                and held.record.acquisition.topic == record.topic
            ):
                return where, held
        return (TopicIdPartition(b"", record.partition), record.offset), None

    def is_delayed(self, partition: TopicIdPartition) -> bool:
        """Whether the member does not fetch this partition for a time, after an error."""
        return any(each.is_delayed(partition) for each in self.member.core._sessions.values())


def has_record(state: SharePartition, offset: int) -> bool:
    """Whether the log of this partition has a record there: a batch may have holes."""
    return any(
        batch.base <= offset < batch.base + batch.records
        for batch in state.log.batches_from(offset)
        if batch.base <= offset
    )


def offset_name(where: Offset) -> str:
    """The topic, partition and offset."""
    partition, offset = where
    topic = partition.topic_id.rstrip(b"\0").decode(errors="replace")
    return f"{topic}-{partition.partition}@{offset}"
