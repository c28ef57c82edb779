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
    from asyncrevoke.client.core.share.acquisition import HeldRecord

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
