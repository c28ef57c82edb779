"""The members and offsets of a group, and the coordinator's responses in each state of a classic
group."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from asyncrevoke.client.model import OffsetAndMetadata, TopicPartition
from asyncrevoke.client.protocol.messages import (
    CommitEntry,
    ErrorCode,
    FetchedOffset,
    OffsetFetchRequest,
    OffsetFetchResponse,
    Response,
)

if TYPE_CHECKING:
    from asyncrevoke.testing.fake_kafka.clock import Alarm

Reply: TypeAlias = Callable[[Response], None]
Protocols: TypeAlias = tuple[tuple[str, bytes], ...]

MAX_METADATA_CHARACTERS = 4096


class GroupState(enum.Enum):
    """The state of a classic group."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


ON_COMMIT: dict[GroupState, ErrorCode] = {
    GroupState.EMPTY: ErrorCode.none,
    GroupState.PREPARING: ErrorCode.none,
    GroupState.COMPLETING: ErrorCode.rebalance_in_progress,
    GroupState.STABLE: ErrorCode.none,
}
ON_HEARTBEAT: dict[GroupState, ErrorCode] = {
    GroupState.EMPTY: ErrorCode.unknown_member_id,
    GroupState.PREPARING: ErrorCode.rebalance_in_progress,
    GroupState.COMPLETING: ErrorCode.none,
    GroupState.STABLE: ErrorCode.none,
}
# None: the request is delayed until the leader has sent the assignment.
ON_SYNC: dict[GroupState, ErrorCode | None] = {
    GroupState.EMPTY: ErrorCode.unknown_member_id,
    GroupState.PREPARING: ErrorCode.rebalance_in_progress,
    GroupState.COMPLETING: None,
    GroupState.STABLE: ErrorCode.none,
}


@dataclass(slots=True)
class GroupMember:
    """One member. ``client`` identifies its connections; it is not part of the protocol."""

    member_id: str
    client: int
    instance_id: str | None
    session_timeout: float
    rebalance_timeout: float
    protocols: Protocols
    join: Reply | None = None
    sync: Reply | None = None
    is_new: bool = True
    assignment: bytes = b""
    session: Alarm | None = None

    def vote(self, candidates: set[str]) -> str:
        """The member's most preferred protocol among those that all members support."""
        return next(name for name, _ in self.protocols if name in candidates)


class GroupMembers:
    """The members in the order in which they joined, and the protocols that all support."""

    def __init__(self) -> None:
        self.by_id: dict[str, GroupMember] = {}
        self.static: dict[str, str] = {}
        # Members that have an id and have not joined. The join phase waits for them.
        self.pending: dict[str, Alarm] = {}
        self.leader: str | None = None
        # The number of members that support each protocol. Each JoinGroup needs it.
        self._offered: Counter[str] = Counter()

    def check(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """The error for a member that does not exist or was replaced."""
        if instance_id is not None:
            known = self.static.get(instance_id)
            if known is None:
                return ErrorCode.unknown_member_id
            if known != member_id:
                return ErrorCode.fenced_instance_id
        return ErrorCode.none if member_id in self.by_id else ErrorCode.unknown_member_id

    def add(self, member: GroupMember) -> None:
        """Add a member; the first one becomes the leader."""
        self.by_id[member.member_id] = member
        self._offered.update(dict(member.protocols).keys())
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member: GroupMember) -> None:
        """Remove a member. If it was the leader, the first of the others becomes the leader."""
        del self.by_id[member.member_id]
        self._offered.subtract(dict(member.protocols).keys())
        if member.instance_id is not None:
            self.static.pop(member.instance_id, None)
        if self.leader == member.member_id:
            self.leader = next(iter(self.by_id), None)

    def rename(self, member: GroupMember, member_id: str) -> None:
        """A static member has returned, with a new member id."""
        del self.by_id[member.member_id]
        self._offered.subtract(dict(member.protocols).keys())
        if self.leader == member.member_id:
            self.leader = member_id
        member.member_id = member_id
        self.add(member)

    def offer(self, member: GroupMember, protocols: Protocols) -> None:
        """Set the protocols that a member supports, with their metadata."""
        self._offered.subtract(dict(member.protocols).keys())
        member.protocols = protocols
        self._offered.update(dict(protocols).keys())

    def elect(self) -> bool:
        """Choose a leader among the members that have joined. False if no member has joined."""
        leader = self.by_id.get(self.leader or "")
        if leader is not None and leader.join is not None:
            return True
        for member in self.by_id.values():
            if member.join is not None:
                self.leader = member.member_id
                return True
        return False

    def all_joined(self) -> bool:
        """Whether all members have joined."""
        return not self.pending and all(m.join is not None for m in self.by_id.values())

    def rebalance_timeout(self) -> float:
        """The longest rebalance timeout among the members."""
        return max((m.rebalance_timeout for m in self.by_id.values()), default=0.0)

    def supports(self, protocols: Protocols) -> bool:
        """Whether all members support one of these protocols."""
        if not protocols:
            return False
        common = self._common()
        return not self.by_id or any(name in common for name, _ in protocols)

    def select_protocol(self) -> str:
        """The protocol that most members prefer among those that all support."""
        common = self._common()
        votes: dict[str, int] = {}
        for member in self.by_id.values():
            choice = member.vote(common)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def _common(self) -> set[str]:
        everybody = len(self.by_id)
        return {name for name, offers in self._offered.items() if offers == everybody > 0}


class CommittedGroupOffsets:
    """The committed offsets. As in Kafka, owners of partitions are not checked."""

    def __init__(self) -> None:
        self.stored: dict[TopicPartition, OffsetAndMetadata] = {}

    def store(self, entry: CommitEntry) -> ErrorCode:
        """Store one offset."""
        if len(entry.metadata) > MAX_METADATA_CHARACTERS:
            return ErrorCode.offset_metadata_too_large
        offset = OffsetAndMetadata(entry.offset, entry.metadata, entry.leader_epoch)
        self.stored[entry.partition] = offset
        return ErrorCode.none

    def fetch(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        """Read offsets; -1 for partitions without one."""
        nothing = OffsetAndMetadata(-1)
        found = [(tp, self.stored.get(tp, nothing)) for tp in request.partitions]
        return OffsetFetchResponse(
            error=ErrorCode.none,
            offsets=tuple(
                FetchedOffset(
                    partition=partition,
                    error=ErrorCode.none,
                    offset=stored.offset,
                    leader_epoch=stored.leader_epoch,
                    metadata=stored.metadata,
                )
                for partition, stored in found
            ),
        )
