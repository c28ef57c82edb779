"""Classic members in a group whose coordinator assigns, by the rules of Kafka's (4.x).

A member's generation is its member epoch. The coordinator responds to each JoinGroup at once, and
no member leads. A JoinGroup has the member's subscription and owned partitions, and is one step
towards the target assignment, as a heartbeat of KIP-848 is; the SyncGroup that follows returns the
assignment. A heartbeat requests a JoinGroup if there is a newer target, if a partition has to be
revoked, or if all partitions that the member waits for are free. A member that does not rejoin
within its rebalance timeout is evicted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.brokers.coordinator_events import NO_SYNC
from simulation.brokers.simulated_consumer_group import ConvertibleMember

from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from asyncrevoke.client.protocol.subscription import (
    decode_subscription,
    encode_assignment,
)
from asyncrevoke.testing.fake_kafka.classic_group import rejected
from asyncrevoke.testing.fake_kafka.consumer_group import BrokerMemberState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from simulation.brokers.convertible_group import ConvertibleGroup

    from asyncrevoke.testing.fake_kafka.group_state import Protocols


class ClassicMembers:
    """Responds to classic members of ``group``. ``new_id(client, instance_id)`` makes a member id;
    ``names(partitions)`` are those of existing topics, by their names."""

    def __init__(
        self,
        group: ConvertibleGroup,
        new_id: Callable[[int, str | None], str],
        names: Callable[[Iterable[TopicPartition]], frozenset[TopicPartition]],
    ) -> None:
        self._group = group
        self._new_id = new_id
        self._names = names
        # What each member had before the JoinGroup that it has sent no SyncGroup after.
        self._reported: dict[str, frozenset[TopicPartition]] = {}

    # --- JoinGroup -------------------------------------------------------------------------------

    def join_group(self, client: int, request: JoinGroupRequest) -> JoinGroupResponse:
        """One step towards the target."""
        if not self._supports(request.protocols):
            return rejected(ErrorCode.inconsistent_group_protocol, request.member_id)
        group = self._group
        last = [member for member in group.members.values() if not member.is_classic]
        member = self._find_or_add(client, request)
        if not isinstance(member, ConvertibleMember):
            return member
        # It takes the place of the last one by KIP-848: the group becomes a classic one.
        converts = len(last) == 1 and last[0] is member
        subscription = decode_subscription(request.protocols[0][1])
        member.protocols = request.protocols
        member.session_timeout = request.session_timeout
        member.rebalance_timeout = request.rebalance_timeout
        key = group.options.key
        owned = frozenset(TopicPartition(key(topic), n) for topic, n in subscription.owned)
        if member.must_sync is None:
            self._reported[member.member_id] = member.assigned
        group.advance(member, subscription.topics, owned, may_assign=not converts)
        if member.must_join is not None:
            member.must_join.cancel()
            member.must_join = None
        if member.must_sync is not None:
            member.must_sync.cancel()
        member.must_sync = group.clock.after(
            request.rebalance_timeout,
            lambda: group.evict(member, NO_SYNC),
        )
        return JoinGroupResponse(
            error=ErrorCode.none,
            generation=member.epoch,
            protocol_name=member.protocols[0][0],
            member_id=member.member_id,
        )

    def _supports(self, protocols: Protocols) -> bool:
        classic = [member for member in self._group.members.values() if member.is_classic]
        return any(
            all(name in dict(member.protocols) for member in classic) for name, _ in protocols
        )

    def _find_or_add(
        self, client: int, request: JoinGroupRequest
    ) -> ConvertibleMember | JoinGroupResponse:
        group, instance_id = self._group, request.group_instance_id
        member_id = request.member_id or self._new_id(client, instance_id)
        if instance_id is None:
            if not request.member_id:
                return rejected(ErrorCode.member_id_required, member_id)
            return group.members.get(member_id) or group.add(member_id, client, None)
        found = next((m for m in group.members.values() if m.instance_id == instance_id), None)
        if not request.member_id:
            if found is None:
                return group.add(member_id, client, instance_id)
            return group.replace(found, client, member_id)
        error = _fencing(found, member_id)
        if found is None or error is not ErrorCode.none:
            return rejected(error, member_id)
        return found

    # --- SyncGroup, Heartbeat, LeaveGroup --------------------------------------------------------

    def sync_group(self, request: SyncGroupRequest) -> SyncGroupResponse:
        """What the member may use."""
        member = self._check(request.member_id, request.group_instance_id, request.generation)
        if isinstance(member, ErrorCode):
            return SyncGroupResponse(error=member)
        if request.protocol_name != member.protocols[0][0]:
            return SyncGroupResponse(error=ErrorCode.inconsistent_group_protocol)
        group = self._group
        if group.target_epoch > member.epoch and member.state is not BrokerMemberState.UNREVOKED:
            self._wants_join(member)
            return SyncGroupResponse(error=ErrorCode.rebalance_in_progress)
        if member.must_sync is not None:
            member.must_sync.cancel()
            member.must_sync = None
        group.arm_session(member)
        assigned = sorted(self._names(member.assigned))
        return SyncGroupResponse(error=ErrorCode.none, assignment=encode_assignment(assigned))

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Whether the member should join again."""
        member = self._check(request.member_id, request.group_instance_id, request.generation)
        if isinstance(member, ErrorCode):
            return HeartbeatResponse(error=member)
        self._group.arm_session(member)
        if (
            member.epoch < self._group.target_epoch
            or member.state is BrokerMemberState.UNREVOKED
            or (member.state is BrokerMemberState.UNRELEASED and not self._waits_for_others(member))
        ):
            self._wants_join(member)
            return HeartbeatResponse(error=ErrorCode.rebalance_in_progress)
        return HeartbeatResponse(error=ErrorCode.none)

    def leave_group(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        """Remove a classic member."""
        member = self._check(request.member_id, request.group_instance_id, None)
        if isinstance(member, ErrorCode):
            return LeaveGroupResponse(error=member)
        self._group.remove(member)
        return LeaveGroupResponse(error=ErrorCode.none)

    def _check(
        self, member_id: str, instance_id: str | None, generation: int | None
    ) -> ConvertibleMember | ErrorCode:
        group = self._group
        member = group.members.get(member_id)
        if instance_id is not None:
            member = next((m for m in group.members.values() if m.instance_id == instance_id), None)
            error = _fencing(member, member_id)
            if error is not ErrorCode.none:
                return error
        if member is None or not member.is_classic:
            return ErrorCode.unknown_member_id
        if generation is not None and generation != member.epoch:
            return ErrorCode.illegal_generation
        return member

    def unreported(self, member: ConvertibleMember) -> frozenset[TopicPartition]:
        """The partitions of a classic member's target that no SyncGroup has returned."""
        awaits_sync = member.must_sync is not None
        known = self._reported[member.member_id] if awaits_sync else member.assigned
        return self._group.target(member) - known

    def _waits_for_others(self, member: ConvertibleMember) -> bool:
        owners = self._group.owners
        return any(tp in owners for tp in self._group.target(member) - member.assigned)

    def _wants_join(self, member: ConvertibleMember) -> None:
        if member.must_join is None:
            member.must_join = self._group.clock.after(
                member.rebalance_timeout,
                lambda: self._group.evict(member, "it did not rejoin in time"),
            )


def _fencing(member: ConvertibleMember | None, member_id: str) -> ErrorCode:
    if member is None:
        return ErrorCode.unknown_member_id
    return ErrorCode.none if member.member_id == member_id else ErrorCode.fenced_instance_id
