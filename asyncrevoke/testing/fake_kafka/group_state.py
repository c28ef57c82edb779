"""What a group coordinator keeps of a group, and what it answers in each state."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from asyncrevoke.model import OffsetAndMetadata, TopicPartition
from asyncrevoke.protocol.messages import (
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
# Why a member is put out.
NO_SYNC = "it sent no SyncGroup in time"


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
# None: the answer waits for the leader.
ON_SYNC: dict[GroupState, ErrorCode | None] = {
    GroupState.EMPTY: ErrorCode.unknown_member_id,
    GroupState.PREPARING: ErrorCode.rebalance_in_progress,
    GroupState.COMPLETING: None,
    GroupState.STABLE: ErrorCode.none,
}


@dataclass(slots=True)
class GroupMember:
    """What the coordinator knows of one member. ``client`` is who it is outside the protocol."""

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

    @property
    def waits_for(self) -> str:
        """For reports."""
        return "join" if self.join else "sync" if self.sync else "nothing"

    def vote(self, candidates: set[str]) -> str:
        """The first of its protocols that everybody supports."""
        return next(name for name, _ in self.protocols if name in candidates)


@dataclass(frozen=True, slots=True)
class StoredMember:
    """A member as the log has it: with the metadata of the chosen protocol alone."""

    member_id: str
    client: int
    instance_id: str | None
    session_timeout: float
    rebalance_timeout: float
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """The last generation that was written to the log."""

    generation: int = 0
    protocol: str | None = None
    leader: str | None = None
    members: tuple[StoredMember, ...] = ()


class CoordinatorEvents:
    """What oracles may want to know; each call comes after the fact. Override what is needed."""

    def commit_accepted(
        self, client: int, partition: TopicPartition, old: int | None, new: OffsetAndMetadata
    ) -> None:
        """An offset was stored."""

    def commit_refused(self, client: int, partition: TopicPartition) -> None:
        """An offset was not stored, since the client may not commit the topic."""

    def offsets_fetched(self, client: int, partitions: tuple[TopicPartition, ...]) -> None:
        """Offsets were read."""

    def member_removed(self, client: int, member_id: str, reason: str) -> None:
        """A member was put out of the group by a timer (a static one: left behind)."""

    def member_replaced(self, old: int, new: int) -> None:
        """A static member has come back, and has what its former self had."""

    def stable(self, generation: int, assignments: dict[int, bytes]) -> None:
        """A generation has its assignment; ``assignments`` by client."""

    def owned(self, owners: dict[TopicPartition, int]) -> None:
        """A coordinator that assigns has changed who has which partition."""

    def converted(self, owners: dict[TopicPartition, int], behind: tuple[int, ...]) -> None:
        """The group has become of another kind; ``owners`` by client, as far as the coordinator
        knows. Members in ``behind`` had not reached its epoch, and are no valid ones now."""

    def loaded(self) -> None:
        """A coordinator was loaded."""

    def generation_forgotten(self, generation: int, clients: tuple[int, ...]) -> None:
        """A coordinator was loaded that does not know the generation in which these had joined."""


class GroupMembers:
    """Who is in the group, and what they have in common. In the order in which they came."""

    def __init__(self) -> None:
        self.by_id: dict[str, GroupMember] = {}
        self.static: dict[str, str] = {}
        # Members that were only given an id; they hold up the join phase.
        self.pending: dict[str, Alarm] = {}
        self.leader: str | None = None
        # How many members offer each protocol: asked for at every join.
        self._offered: Counter[str] = Counter()

    def check(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether such a member exists and has not been replaced."""
        if instance_id is not None:
            known = self.static.get(instance_id)
            if known is None:
                return ErrorCode.unknown_member_id
            if known != member_id:
                return ErrorCode.fenced_instance_id
        return ErrorCode.none if member_id in self.by_id else ErrorCode.unknown_member_id

    def add(self, member: GroupMember) -> None:
        """Add a member; the first one leads."""
        self.by_id[member.member_id] = member
        self._offered.update(dict(member.protocols).keys())
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member: GroupMember) -> None:
        """Remove a member. If it led, the first of the others does."""
        del self.by_id[member.member_id]
        self._offered.subtract(dict(member.protocols).keys())
        if member.instance_id is not None:
            self.static.pop(member.instance_id, None)
        if self.leader == member.member_id:
            self.leader = next(iter(self.by_id), None)

    def rename(self, member: GroupMember, member_id: str) -> None:
        """A static member has come back: it has another id from now on."""
        del self.by_id[member.member_id]
        self._offered.subtract(dict(member.protocols).keys())
        if self.leader == member.member_id:
            self.leader = member_id
        member.member_id = member_id
        self.add(member)

    def offer(self, member: GroupMember, protocols: Protocols) -> None:
        """A member offers other protocols, or the same with other metadata."""
        self._offered.subtract(dict(member.protocols).keys())
        member.protocols = protocols
        self._offered.update(dict(protocols).keys())

    def elect(self) -> bool:
        """Have a leader who has joined; False if nobody has."""
        leader = self.by_id.get(self.leader or "")
        if leader is not None and leader.join is not None:
            return True
        for member in self.by_id.values():
            if member.join is not None:
                self.leader = member.member_id
                return True
        return False

    def all_joined(self) -> bool:
        """Whether nobody has to be waited for in the join phase."""
        return not self.pending and all(m.join is not None for m in self.by_id.values())

    def rebalance_timeout(self) -> float:
        """The longest of the members'."""
        return max((m.rebalance_timeout for m in self.by_id.values()), default=0.0)

    def supports(self, protocols: Protocols) -> bool:
        """Whether one of these protocols is offered by everybody."""
        if not protocols:
            return False
        common = self._common()
        return not self.by_id or any(name in common for name, _ in protocols)

    def select_protocol(self) -> str:
        """The one that most members prefer among those that all offer."""
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
    """The committed offsets. Who owns a partition is not checked: Kafka does not check it."""

    def __init__(self) -> None:
        self.stored: dict[TopicPartition, OffsetAndMetadata] = {}

    def store(self, client: int, entry: CommitEntry, events: CoordinatorEvents) -> ErrorCode:
        """Store one offset."""
        if len(entry.metadata) > MAX_METADATA_CHARACTERS:
            return ErrorCode.offset_metadata_too_large
        old = self.stored.get(entry.partition)
        new = OffsetAndMetadata(entry.offset, entry.metadata, entry.leader_epoch)
        self.stored[entry.partition] = new
        events.commit_accepted(client, entry.partition, None if old is None else old.offset, new)
        return ErrorCode.none

    def fetch(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        """Read offsets; -1 where there is none."""
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
