"""A KIP-848 group, whose coordinator assigns partitions, by the rules of Kafka 4.x.

A heartbeat may change the member's subscription. Then the group epoch grows, and the coordinator
computes a new target assignment. Each heartbeat moves its member one step towards the target. First
the member must revoke partitions, and nothing else changes until it reports that it no longer owns
them. Then it gets partitions that others have released.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Generic, TypeVar

from asyncrevoke.client.model import OffsetAndMetadata, TopicPartition
from asyncrevoke.client.protocol.messages import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ErrorCode,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    TopicIdPartitions,
)
from asyncrevoke.testing.fake_kafka.group_state import CommittedGroupOffsets, GroupState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.testing.fake_kafka.clock import Alarm, Clock


class BrokerMemberState(enum.Enum):
    """A member's progress towards its target assignment."""

    STABLE = "Stable"
    UNREVOKED = "UnrevokedPartitions"
    UNRELEASED = "UnreleasedPartitions"


@dataclass(slots=True)
class ConsumerGroupMember:
    """One member as its coordinator stores it. Partitions have the keys of their topics: a topic's
    id is derived from its key, which is its name."""

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


_ID_SIZE = 16
# Keys that are longer than an id, by their ids.
_LONG_KEYS: dict[bytes, str] = {}


def topic_id(key: str) -> bytes:
    """The id of the topic with this key, and of no other."""
    encoded = key.encode()
    if len(encoded) <= _ID_SIZE:
        return encoded.ljust(_ID_SIZE, b"\0")
    digest = blake2b(encoded, digest_size=_ID_SIZE).digest()
    _LONG_KEYS[digest] = key
    return digest


def _key(id_: bytes) -> str:
    return _LONG_KEYS.get(id_) or id_.rstrip(b"\0").decode()


def by_key(partitions: Iterable[TopicIdPartitions]) -> frozenset[TopicPartition]:
    """Partitions by the keys of their topics."""
    return frozenset(
        TopicPartition(_key(id_), number) for id_, numbers in partitions for number in numbers
    )


def by_id(partitions: frozenset[TopicPartition]) -> tuple[TopicIdPartitions, ...]:
    """The inverse of :func:`by_key`."""
    topics: dict[bytes, list[int]] = {}
    for key, number in sorted(partitions):
        topics.setdefault(topic_id(key), []).append(number)
    return tuple((id_, tuple(numbers)) for id_, numbers in topics.items())


MemberT = TypeVar("MemberT", bound=ConsumerGroupMember)

_HEARTBEAT_INTERVAL = 1.0


@dataclass
class ConsumerGroup(ABC, Generic[MemberT]):
    """One group. Subclasses choose the target assignment."""

    clock: Clock
    session_timeout: float

    def __post_init__(self) -> None:
        self.members: dict[str, MemberT] = {}
        self.generation = 0
        self._target_epoch = 0
        self._target: dict[str, frozenset[TopicPartition]] = {}
        # The client that owns each partition, including partitions that it has to revoke.
        self._owners: dict[TopicPartition, int] = {}
        self._offsets = CommittedGroupOffsets()

    @property
    def offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets."""
        return self._offsets.stored

    @property
    def state(self) -> GroupState:
        """The state of the group, in terms of a classic group."""
        if not self.members:
            return GroupState.EMPTY
        reconciled = self._target_epoch == self.generation and all(
            member.state is BrokerMemberState.STABLE and member.epoch in (self.generation, -2)
            for member in self.members.values()
        )
        return GroupState.STABLE if reconciled else GroupState.PREPARING

    # --- heartbeats ------------------------------------------------------------------------------

    def consumer_heartbeat(
        self, client: int, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatResponse:
        """Respond to a heartbeat."""
        if request.member_epoch < JOIN_EPOCH:
            return self._leave(request)
        member = self._find(client, request)
        if isinstance(member, ErrorCode):
            return ConsumerGroupHeartbeatResponse(error=member)
        topics = member.topics if request.topics is None else request.topics
        if request.rebalance_timeout is not None:
            member.rebalance_timeout = request.rebalance_timeout
        before = member.assigned
        self._advance(
            member,
            topics,
            member.regex if request.regex is None else request.regex,
            None if request.owned is None else by_key(request.owned),
        )
        full = request.member_epoch == JOIN_EPOCH or (
            request.rebalance_timeout is not None
            and request.topics is not None
            and request.owned is not None
        )
        changed = full or member.assigned != before
        return ConsumerGroupHeartbeatResponse(
            error=ErrorCode.none,
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval=_HEARTBEAT_INTERVAL,
            assignment=by_id(member.assigned) if changed else None,
        )

    def _advance(
        self,
        member: MemberT,
        topics: tuple[str, ...],
        regex: str,
        owned: frozenset[TopicPartition] | None,
    ) -> None:
        """Update a member's subscription and owned partitions, and move it one step towards its
        target."""
        self._subscribe(member, topics, regex)
        self._assign()
        self._reconcile(member, owned)
        self.arm_session(member)

    def _subscribe(self, member: MemberT, topics: tuple[str, ...], regex: str) -> None:
        if (topics, regex) != (member.topics, member.regex):
            member.topics, member.regex = topics, regex
            self._bump()

    def _find(self, client: int, request: ConsumerGroupHeartbeatRequest) -> MemberT | ErrorCode:
        joins = request.member_epoch == JOIN_EPOCH
        if request.group_instance_id is not None:
            found = self._find_static(request, joins=joins)
            if isinstance(found, ErrorCode):
                return found
            if found is not None and joins:
                return self.replace(found, client, request.member_id)
            member = found
        else:
            member = self.members.get(request.member_id)
        if member is None:
            if not joins:
                return ErrorCode.unknown_member_id
            member = self.add(request.member_id, client, request.group_instance_id)
        elif not joins and not self._is_valid(member, request):
            return ErrorCode.fenced_member_epoch
        return member

    def _find_static(
        self, request: ConsumerGroupHeartbeatRequest, *, joins: bool
    ) -> MemberT | ErrorCode | None:
        for member in self.members.values():
            if member.instance_id == request.group_instance_id:
                if joins and not self._is_released(member):
                    return ErrorCode.unreleased_instance_id
                if not joins and member.member_id != request.member_id:
                    return ErrorCode.fenced_instance_id
                return member
        return None

    def _is_released(self, member: MemberT) -> bool:
        """Whether this static member has left, and may return."""
        return member.epoch == LEAVE_STATIC_EPOCH

    def add(self, member_id: str, client: int, instance_id: str | None) -> MemberT:
        """Add a new member."""
        member = self.members[member_id] = self._make_member(member_id, client, instance_id)
        self._bump()
        return member

    @abstractmethod
    def _make_member(self, member_id: str, client: int, instance_id: str | None) -> MemberT:
        """A new member, which is not in the group yet."""

    def replace(self, member: MemberT, client: int, member_id: str) -> MemberT:
        """A static member has returned, and gets the assignment that it had before."""
        former = member.member_id
        self.members = {
            member_id if known == former else known: other for known, other in self.members.items()
        }
        if former in self._target:
            self._target[member_id] = self._target.pop(former)
        member.member_id, member.client = member_id, client
        member.epoch = member.previous_epoch = 0
        member.cancel()
        self._owners |= dict.fromkeys(sorted(member.assigned | member.pending), client)
        return member

    @staticmethod
    def _is_valid(member: MemberT, request: ConsumerGroupHeartbeatRequest) -> bool:
        if request.member_epoch == member.epoch:
            return True
        # The response with the newest epoch may be lost.
        return (
            request.member_epoch == member.previous_epoch
            and request.member_epoch < member.epoch
            and request.owned is not None
            and by_key(request.owned) <= member.assigned
        )

    def _leave(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        member = self.members.get(request.member_id)
        if request.group_instance_id is not None:
            found = self._find_static(request, joins=False)
            if isinstance(found, ErrorCode):
                return ConsumerGroupHeartbeatResponse(error=found)
            member = found
        if member is None:
            return ConsumerGroupHeartbeatResponse(error=ErrorCode.unknown_member_id)
        if request.member_epoch == LEAVE_EPOCH:
            self.remove(member)
        else:
            member.epoch = LEAVE_STATIC_EPOCH
            before, member.pending = member.assigned | member.pending, frozenset()
            member.state = BrokerMemberState.STABLE
            if member.rebalance is not None:
                member.rebalance.cancel()
            self._update_owners(member, before)
        return ConsumerGroupHeartbeatResponse(
            error=ErrorCode.none, member_id=request.member_id, member_epoch=request.member_epoch
        )

    # --- the target ------------------------------------------------------------------------------

    def _bump(self) -> None:
        self.generation += 1

    def _assign(self) -> None:
        if self._is_assignment_due():
            self._assign_anew()

    def _is_assignment_due(self) -> bool:
        """Whether the group epoch has grown since the newest target assignment."""
        return self._target_epoch != self.generation

    def _assign_anew(self) -> None:
        """Compute a new target assignment."""
        self._target_epoch = self.generation
        self._target = self._plan()

    @abstractmethod
    def _plan(self) -> dict[str, frozenset[TopicPartition]]:
        """The target assignment by member ids."""

    def _reconcile(self, member: MemberT, owned: frozenset[TopicPartition] | None) -> None:
        match member.state:
            case BrokerMemberState.STABLE:
                if member.epoch != self._target_epoch:
                    self._step(member, member.epoch, owned)
            case BrokerMemberState.UNREVOKED:
                if owned is not None and not owned & member.pending:
                    # Brokers before 4.3 advance the member epoch although more partitions must be
                    # revoked.
                    self._step(member, member.epoch + 1, owned)
            case BrokerMemberState.UNRELEASED:
                self._step(member, member.epoch, owned)
        if member.state is not BrokerMemberState.UNREVOKED and member.rebalance is not None:
            member.rebalance.cancel()

    def _step(self, member: MemberT, epoch: int, owned: frozenset[TopicPartition] | None) -> None:
        target = self._target.get(member.member_id, frozenset())
        before = member.assigned | member.pending
        kept, pending = member.assigned & target, member.assigned - target
        was = (member.state, member.epoch, member.pending)
        if pending and (owned is None or owned & pending):
            member.state = BrokerMemberState.UNREVOKED
            member.assigned, member.pending = kept, pending
        else:
            free = frozenset(
                tp for tp in target - kept if self._owners.get(tp) in (None, member.client)
            )
            member.state = (
                BrokerMemberState.UNRELEASED if target - kept - free else BrokerMemberState.STABLE
            )
            member.assigned, member.pending = kept | free, frozenset()
            epoch = self._target_epoch
        if epoch != member.epoch:
            member.previous_epoch, member.epoch = member.epoch, epoch
        is_new = was != (member.state, member.epoch, member.pending)
        if member.state is BrokerMemberState.UNREVOKED and is_new:
            self._arm_rebalance(member)
        self._update_owners(member, before)

    def _update_owners(self, member: MemberT, before: frozenset[TopicPartition]) -> None:
        now = member.assigned | member.pending
        for partition in before - now:
            # One client may be two members if its LeaveGroup was lost.
            self._owners.pop(partition, None)
        self._owners |= dict.fromkeys(now - before, member.client)

    # --- timers ----------------------------------------------------------------------------------

    def arm_session(self, member: MemberT) -> None:
        """Renew a member's session."""
        if member.session is not None:
            member.session.cancel()
        timeout = self._session_timeout_of(member)
        member.session = self.clock.after(timeout, lambda: self._remove_silent(member))

    def _session_timeout_of(self, _member: MemberT) -> float:
        return self.session_timeout

    def _arm_rebalance(self, member: MemberT) -> None:
        if member.rebalance is not None:
            member.rebalance.cancel()
        epoch = member.epoch
        member.rebalance = self.clock.after(
            member.rebalance_timeout, lambda: self._rebalance_expired(member, epoch)
        )

    def _rebalance_expired(self, member: MemberT, epoch: int) -> None:
        if member.epoch == epoch and member.state is BrokerMemberState.UNREVOKED:
            self._remove_unrevoked(member)

    def _remove_silent(self, member: MemberT) -> None:
        """Remove a member whose session has expired."""
        self._expire(member)

    def _remove_unrevoked(self, member: MemberT) -> None:
        """Remove a member that has not revoked its partitions in time."""
        self._expire(member)

    def _expire(self, member: MemberT) -> bool:
        """Remove a member whose timer has expired. False if it is no longer in the group."""
        if self.members.get(member.member_id) is not member:
            return False
        self.remove(member)
        return True

    def remove(self, member: MemberT) -> None:
        """Remove a member that has left or whose timer has expired."""
        self._delete(member)
        self._bump()

    def _delete(self, member: MemberT) -> None:
        member.cancel()
        del self.members[member.member_id]
        self._target.pop(member.member_id, None)
        before = member.assigned | member.pending
        member.assigned = member.pending = frozenset()
        self._update_owners(member, before)

    # --- offsets ---------------------------------------------------------------------------------

    def offset_commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        """Store offsets, if the member and its epoch are valid."""
        error = self._check_commit(request)
        return OffsetCommitResponse(
            errors=tuple(
                (
                    entry.partition,
                    self._offsets.store(entry) if error is ErrorCode.none else error,
                )
                for entry in request.entries
            )
        )

    def _check_commit(self, request: OffsetCommitRequest) -> ErrorCode:
        if request.generation < 0 and not self.members:
            return ErrorCode.none
        member = self.members.get(request.member_id)
        if member is None:
            return ErrorCode.unknown_member_id
        if request.generation == member.epoch:
            return ErrorCode.none
        return ErrorCode.stale_member_epoch

    def check_txn_commit(self, request: OffsetCommitRequest) -> ErrorCode:
        """Like the check of OffsetCommit, but TxnOffsetCommit names another epoch differently."""
        error = self._check_commit(request)
        return ErrorCode.illegal_generation if error is ErrorCode.stale_member_epoch else error

    def offset_fetch(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        """Read offsets; -1 for partitions without one."""
        if request.member_id is not None:
            member = self.members.get(request.member_id)
            if member is None:
                return OffsetFetchResponse(error=ErrorCode.unknown_member_id)
            if member.epoch != request.member_epoch:
                return OffsetFetchResponse(error=ErrorCode.stale_member_epoch)
        return self._offsets.fetch(request)
