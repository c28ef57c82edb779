"""A KIP-848 group, whose coordinator assigns partitions, by the rules of Kafka 4.x.

A heartbeat may change the member's subscription. Then the group epoch grows, and the coordinator
computes a new target assignment. Each heartbeat moves its member one step towards the target. First
the member must revoke partitions, and nothing else changes until it reports that it no longer owns
them. Then it gets partitions that others have released. The coordinator writes to the log before it
responds, so that a coordinator that loads the group knows all changes.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from asyncrevoke.model import TopicPartition
from asyncrevoke.protocol.messages import (
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
)
from asyncrevoke.testing.fake_kafka.consumer_group_member import (
    BrokerMemberState,
    ConsumerGroupMember,
    by_id,
    by_key,
)
from asyncrevoke.testing.fake_kafka.group_state import (
    CommittedGroupOffsets,
    CoordinatorEvents,
    GroupState,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from asyncrevoke.model import GroupMetadata, OffsetAndMetadata
    from asyncrevoke.testing.fake_kafka.clock import Clock

_HEARTBEAT_INTERVAL = 1.0


@dataclass
class ConsumerGroup:
    """One group.

    ``partitions(topic)`` is the number of a topic's partitions, ``key(topic)`` its key. ``lenient``
    accepts commits with older epochs for partitions that the member has owned since then
    (KIP-1251). ``on_removed(member)`` may convert the group.
    """

    clock: Clock
    partitions: Callable[[str], int]
    session_timeout: float
    assignment_interval: float = 0.0
    lenient: bool = False
    events: CoordinatorEvents = field(default_factory=CoordinatorEvents)
    key: Callable[[str], str] = str
    on_removed: Callable[[ConsumerGroupMember], None] = lambda _member: None

    def __post_init__(self) -> None:
        self.members: dict[str, ConsumerGroupMember] = {}
        self.generation = 0
        self.rebalances = 0
        self.protocol = "consumer"
        self.leader: str | None = None
        self._target_epoch = 0
        self._target: dict[str, frozenset[TopicPartition]] = {}
        self._assigned_at = float("-inf")
        # The key and the number of partitions of each topic.
        self._assigned_by: dict[str, tuple[str, int]] = {}
        # The client that owns each partition, including partitions that it has to revoke.
        self._owners: dict[TopicPartition, int] = {}
        # The member epoch at which each partition was assigned or had to be revoked.
        self._since: dict[TopicPartition, int] = {}
        self._offsets = CommittedGroupOffsets()

    @property
    def owners(self) -> dict[TopicPartition, int]:
        """The client that owns each partition, including partitions that it has to revoke."""
        return self._owners

    @property
    def target_epoch(self) -> int:
        """The epoch of the newest target assignment."""
        return self._target_epoch

    def target(self, member: ConsumerGroupMember) -> frozenset[TopicPartition]:
        """The newest target assignment of a member."""
        return self._target.get(member.member_id, frozenset())

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
        self.advance(
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

    def advance(
        self,
        member: ConsumerGroupMember,
        topics: tuple[str, ...],
        regex: str,
        owned: frozenset[TopicPartition] | None,
        *,
        may_assign: bool = True,
    ) -> None:
        """Update a member's subscription and owned partitions, and move it one step towards its
        target. Without ``may_assign``, no new target assignment is computed."""
        if (topics, regex) != (member.topics, member.regex) or self._topics_have_changed():
            member.topics, member.regex = topics, regex
            self._bump()
        if may_assign:
            self._assign()
        if may_assign or self._target_epoch == self.generation:
            self._reconcile(member, owned)
        self.arm_session(member)

    def _find(
        self, client: int, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupMember | ErrorCode:
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
    ) -> ConsumerGroupMember | ErrorCode | None:
        for member in self.members.values():
            if member.instance_id == request.group_instance_id:
                if joins and member.epoch != LEAVE_STATIC_EPOCH and not member.is_classic:
                    return ErrorCode.unreleased_instance_id
                if not joins and member.member_id != request.member_id:
                    return ErrorCode.fenced_instance_id
                return member
        return None

    def add(self, member_id: str, client: int, instance_id: str | None) -> ConsumerGroupMember:
        """Add a new member."""
        member = self.members[member_id] = ConsumerGroupMember(member_id, client, instance_id)
        self._bump()
        return member

    def replace(
        self, member: ConsumerGroupMember, client: int, member_id: str
    ) -> ConsumerGroupMember:
        """A static member has returned, and gets the assignment that it had before."""
        former, old = member.member_id, member.client
        self.members = {
            member_id if known == former else known: other for known, other in self.members.items()
        }
        if former in self._target:
            self._target[member_id] = self._target.pop(former)
        member.member_id, member.client = member_id, client
        member.epoch = member.previous_epoch = 0
        member.protocols, member.session_timeout = (), None
        member.cancel()
        self._owners |= dict.fromkeys(sorted(member.assigned | member.pending), client)
        self.events.member_replaced(old, client)
        return member

    @staticmethod
    def _is_valid(member: ConsumerGroupMember, request: ConsumerGroupHeartbeatRequest) -> bool:
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
            self._tell(member, before)
        return ConsumerGroupHeartbeatResponse(
            error=ErrorCode.none, member_id=request.member_id, member_epoch=request.member_epoch
        )

    # --- the target ------------------------------------------------------------------------------

    def _bump(self) -> None:
        self.generation += 1

    def _topics_have_changed(self) -> bool:
        return any(self._look_up(topic) != known for topic, known in self._assigned_by.items())

    def _look_up(self, topic: str) -> tuple[str, int]:
        return self.key(topic), self.partitions(topic)

    def _assign(self) -> None:
        """Compute a new target assignment that moves few partitions, if one is due."""
        if self._target_epoch == self.generation or (
            self.clock.now < self._assigned_at + self.assignment_interval
        ):
            return
        self._assigned_at = self.clock.now
        self._target_epoch = self.generation
        self._target = self._plan()
        self.rebalances += 1

    def _subscribed(self, member: ConsumerGroupMember) -> tuple[str, ...]:
        return member.topics

    def _plan(self) -> dict[str, frozenset[TopicPartition]]:
        members = list(self.members.values())
        topics = sorted({topic for member in members for topic in self._subscribed(member)})
        self._assigned_by = {topic: self._look_up(topic) for topic in topics}
        had = {tp: id_ for id_, theirs in self._target.items() for tp in theirs}
        plan: dict[str, set[TopicPartition]] = {member_id: set() for member_id in self.members}
        for topic, (key, count) in self._assigned_by.items():
            readers = [m.member_id for m in members if topic in self._subscribed(m)]
            # Each reader's number of partitions at its last comparison; it only grows.
            loads = [(len(plan[reader]), place) for place, reader in enumerate(readers)]
            heapq.heapify(loads)
            of_topic = dict.fromkeys(readers, 0)
            most = -(-count // len(readers))
            for number in range(count):
                partition = TopicPartition(key, number)
                chosen = had.get(partition, "")
                if of_topic.get(chosen, most) >= most:
                    while (load := len(plan[readers[loads[0][1]]])) > loads[0][0]:
                        heapq.heapreplace(loads, (load, loads[0][1]))
                    chosen = readers[loads[0][1]]
                of_topic[chosen] += 1
                plan[chosen].add(partition)
        return {member_id: frozenset(given) for member_id, given in plan.items()}

    def _reconcile(
        self, member: ConsumerGroupMember, owned: frozenset[TopicPartition] | None
    ) -> None:
        match member.state:
            case BrokerMemberState.STABLE:
                if member.epoch != self._target_epoch:
                    self._step(member, member.epoch, owned)
            case BrokerMemberState.UNREVOKED:
                if owned is not None and not owned & member.pending:
                    # Brokers before 4.3 advance the member epoch although more partitions must be
                    # revoked.
                    self._step(member, member.epoch + (not self.lenient), owned)
            case BrokerMemberState.UNRELEASED:
                self._step(member, member.epoch, owned)
        if member.state is not BrokerMemberState.UNREVOKED and member.rebalance is not None:
            member.rebalance.cancel()

    def _step(
        self, member: ConsumerGroupMember, epoch: int, owned: frozenset[TopicPartition] | None
    ) -> None:
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
            self._since |= dict.fromkeys(free, epoch)
        if epoch != member.epoch:
            member.previous_epoch, member.epoch = member.epoch, epoch
        is_new = was != (member.state, member.epoch, member.pending)
        if member.state is BrokerMemberState.UNREVOKED and is_new and not member.is_classic:
            self._arm_rebalance(member)
        self._tell(member, before)

    def _tell(self, member: ConsumerGroupMember, before: frozenset[TopicPartition]) -> None:
        now = member.assigned | member.pending
        for partition in before - now:
            # One client may be two members if its LeaveGroup was lost.
            self._owners.pop(partition, None)
        self._owners |= dict.fromkeys(now - before, member.client)
        self.events.owned(self._owners)

    # --- timers ----------------------------------------------------------------------------------

    def arm_session(self, member: ConsumerGroupMember) -> None:
        """Renew a member's session."""
        if member.session is not None:
            member.session.cancel()
        timeout = self.session_timeout if member.session_timeout is None else member.session_timeout
        member.session = self.clock.after(
            timeout, lambda: self.remove_member(member, "its session expired")
        )

    def _arm_rebalance(self, member: ConsumerGroupMember) -> None:
        if member.rebalance is not None:
            member.rebalance.cancel()
        epoch = member.epoch
        member.rebalance = self.clock.after(
            member.rebalance_timeout, lambda: self._rebalance_expired(member, epoch)
        )

    def _rebalance_expired(self, member: ConsumerGroupMember, epoch: int) -> None:
        if member.epoch == epoch and member.state is BrokerMemberState.UNREVOKED:
            self.remove_member(member, "it did not release its partitions in time")

    def remove_member(self, member: ConsumerGroupMember, reason: str) -> None:
        """Remove a member whose timer has expired."""
        if self.members.get(member.member_id) is member:
            self.remove(member)
            self.events.member_removed(member.client, member.member_id, reason)

    def remove(self, member: ConsumerGroupMember) -> None:
        """Remove a member that has left or whose timer has expired."""
        member.cancel()
        del self.members[member.member_id]
        self._target.pop(member.member_id, None)
        before = member.assigned | member.pending
        member.assigned = member.pending = frozenset()
        self._tell(member, before)
        self.on_removed(member)
        self._bump()

    # --- offsets ---------------------------------------------------------------------------------

    def offset_commit(self, client: int, request: OffsetCommitRequest) -> OffsetCommitResponse:
        """Store offsets, if the member and its epoch are valid."""
        error = self._check_commit(request)
        return OffsetCommitResponse(
            errors=tuple(
                (
                    entry.partition,
                    self._offsets.store(client, entry, self.events)
                    if error is ErrorCode.none
                    else error,
                )
                for entry in request.entries
            )
        )

    def accepts(self, client: int, identity: GroupMetadata) -> bool:
        """Whether a commit of this client with this member id and epoch would be accepted."""
        member = self.members.get(identity.member_id)
        return (
            member is not None and member.client == client and identity.generation == member.epoch
        )

    def _check_commit(self, request: OffsetCommitRequest) -> ErrorCode:
        if request.generation < 0 and not self.members:
            return ErrorCode.none
        member = self.members.get(request.member_id)
        if member is None:
            return ErrorCode.unknown_member_id
        if request.generation == member.epoch:
            return ErrorCode.none
        theirs = member.assigned | member.pending
        partitions = [
            TopicPartition(self.key(topic), number)
            for topic, number in (e.partition for e in request.entries)
        ]
        older = self.lenient and all(
            partition in theirs and self._since[partition] <= request.generation
            for partition in partitions
        )
        if older and request.generation < member.epoch:
            return ErrorCode.none
        return ErrorCode.illegal_generation if member.is_classic else ErrorCode.stale_member_epoch

    def offset_fetch(self, client: int, request: OffsetFetchRequest) -> OffsetFetchResponse:
        """Read offsets; -1 for partitions without one."""
        if request.member_id is not None:
            member = self.members.get(request.member_id)
            if member is None:
                return OffsetFetchResponse(error=ErrorCode.unknown_member_id)
            if member.epoch != request.member_epoch:
                return OffsetFetchResponse(error=ErrorCode.stale_member_epoch)
        self.events.offsets_fetched(client, request.partitions)
        return self._offsets.fetch(request)

    # --- loading and unloading -------------------------------------------------------------------

    def unload(self) -> None:
        """The broker is no longer the coordinator. It delays no requests."""
        for member in self.members.values():
            member.cancel()

    def crash(self) -> None:
        """The broker ends."""
        self.unload()

    def load(self) -> None:
        """Restore the group from the log. Sessions and revocations get their full time again."""
        self.events.loaded()
        for member in self.members.values():
            self.arm_session(member)
            if member.state is BrokerMemberState.UNREVOKED and not member.is_classic:
                self._arm_rebalance(member)

    # --- becoming another kind of group ----------------------------------------------------------

    def share_offsets(self, offsets: CommittedGroupOffsets) -> None:
        """Use these offsets, which belong to the group and survive its conversion."""
        self._offsets = offsets

    def adopt(self, generation: int, members: Iterable[ConsumerGroupMember]) -> None:
        """Become a group with these members and assignments."""
        self.members = {member.member_id: member for member in members}
        self.generation = self._target_epoch = generation
        self._target = {id_: member.assigned for id_, member in self.members.items()}
        self._assigned_at = float("-inf")
        topics = {topic for member in self.members.values() for topic in self._subscribed(member)}
        self._assigned_by = {topic: self._look_up(topic) for topic in sorted(topics)}
        self._owners = {tp: m.client for m in self.members.values() for tp in sorted(m.assigned)}
        self._since = dict.fromkeys(self._owners, generation)
        for member in self.members.values():
            self.arm_session(member)
