"""A group that its members make classic, or one whose coordinator assigns, by Kafka's rules (4.x).

The first member that joins by KIP-848 converts a classic group: each member owns what the leader
assigned last, a pending JoinGroup gets the response to join again, and classic members are
served from then on by :class:`~classic_members.ClassicMembers`. When the last KIP-848 member has
left, and classic ones remain, the group is classic again, and rebalances. It is also classic again
when that member is a static one that returns by the classic protocol; then it rebalances only if
the target assignment is not the newest one, and else each member owns what the target gives it. An
empty group takes the protocol of the next member that joins. Offsets are kept.

When it converts, the coordinator does not know of partitions that a classic member still owns
although the last assignment no longer has them (it drains), or whose assignment was dropped by a
join that began too early. The converted group takes these for free.

Some partitions have no owner until the next rebalance (:attr:`ConvertingGroup.unread`): those that
were added after the last assignment of a leader, if a static member with a known subscription
converts the group; and those that a member still waits for when the group becomes classic without a
rebalance, or was given by a JoinGroup that no SyncGroup has followed, since the coordinator takes
that member for their owner, does not report them to it, and waits for no SyncGroup any longer.
Further conversions by static members do not change that. The rebalance of a group that becomes
classic is not in the log: a coordinator that loads the log before the rebalance has ended knows
neither of it nor of the member that has left, whose partitions then have no owner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.brokers.classic_members import ClassicMembers
from simulation.brokers.convertible_group import ConvertibleGroup
from simulation.brokers.simulated_consumer_group import ConvertibleMember

from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.messages import (
    JOIN_EPOCH,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribeGroupsResponse,
    ErrorCode,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from asyncrevoke.client.protocol.subscription import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from asyncrevoke.testing.fake_kafka.group_state import GroupMember, GroupState, Reply

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from simulation.brokers.coordinator_events import CoordinatorEvents
    from simulation.brokers.simulated_classic_group import SimulatedClassicGroup
    from simulation.brokers.simulated_consumer_group import ConsumerGroupOptions

    from asyncrevoke.client.model import GroupMetadata, OffsetAndMetadata
    from asyncrevoke.client.protocol.messages import Response


class ConvertingGroup:
    """Both kinds of group, of which one is in use. They share their offsets."""

    def __init__(self, classic: SimulatedClassicGroup, options: ConsumerGroupOptions) -> None:
        self._classic = classic
        self._options = options
        self._epochs = ConvertibleGroup(classic.clock, options, self, classic.stored_offsets)
        self._by_epochs = False
        self._guests = ClassicMembers(self._epochs, classic.new_member_id, self._names)
        self.conversions = 0
        # Members taken for owners of partitions that they never received, and in which epoch or
        # generation that is so.
        self._untold: dict[TopicPartition, str | None] = {}
        self._untold_at = -1

    # --- facts -----------------------------------------------------------------------------------

    @property
    def _group(self) -> SimulatedClassicGroup | ConvertibleGroup:
        return self._epochs if self._by_epochs else self._classic

    @property
    def events(self) -> CoordinatorEvents:
        """Who hears of what happens."""
        return self._classic.events

    @events.setter
    def events(self, events: CoordinatorEvents) -> None:
        self._classic.events = self._epochs.events = events

    @property
    def members(self) -> Mapping[str, GroupMember] | Mapping[str, ConvertibleMember]:
        """The members by their ids."""
        return self._group.members

    @property
    def state(self) -> GroupState:
        """The state of the group, in the words of a classic one."""
        return self._group.state

    @property
    def generation(self) -> int:
        """The generation, or the epoch."""
        return self._group.generation

    @property
    def protocol(self) -> str | None:
        """What the group has in common."""
        return self._group.protocol

    @property
    def leader(self) -> str | None:
        """The id of the member that assigns, if one does."""
        return self._group.leader

    @property
    def rebalances(self) -> int:
        """How often partitions were assigned anew."""
        return self._classic.rebalances + self._epochs.rebalances

    @property
    def unread(self) -> frozenset[TopicPartition]:
        """The partitions that stay without a reader until the next rebalance."""
        return self._names(self._still_untold())

    def _still_untold(self) -> dict[TopicPartition, str | None]:
        # Once a rebalance has ended that epoch is over, unless it is forgotten with its group.
        assigned_at = self._epochs.target_epoch if self._by_epochs else self._classic.generation
        if self._untold_at != assigned_at:
            return {}
        # A static member that returns with another id receives what it owns.
        return {
            tp: owner
            for tp, owner in self._untold.items()
            if owner is None or owner in self.members
        }

    @property
    def offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets."""
        return self._classic.offsets

    def accepts(self, client: int, identity: GroupMetadata) -> bool:
        """Whether a commit of this client with this identity would be stored."""
        return self._group.accepts(client, identity)

    # --- requests --------------------------------------------------------------------------------

    def consumer_heartbeat(
        self, client: int, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatResponse:
        """Respond to a heartbeat of KIP-848, which may convert the group."""
        if not self._by_epochs:
            if request.member_epoch != JOIN_EPOCH:
                return ConsumerGroupHeartbeatResponse(error=ErrorCode.group_id_not_found)
            if self._classic.members and self._classic.protocol is None:
                # Nobody has agreed on a protocol yet, of which the coordinator makes no error.
                return ConsumerGroupHeartbeatResponse(error=ErrorCode.unknown_server_error)
            self._become_epochs()
        return self._epochs.consumer_heartbeat(client, request)

    def join_group(self, client: int, request: JoinGroupRequest, reply: Reply) -> None:
        """Respond to a JoinGroup."""
        if self._by_epochs and not self._epochs.members:
            self._by_epochs = False
            self._classic.adopt(0, ())
        if self._by_epochs:
            self._join_epochs(client, request, reply)
        else:
            self._classic.join_group(client, request, reply)

    def _join_epochs(self, client: int, request: JoinGroupRequest, reply: Reply) -> None:
        epochs = self._epochs
        was_mixed = any(not member.is_classic for member in epochs.members.values())
        response = self._guests.join_group(client, request)
        members = list(epochs.members.values())
        if was_mixed and all(member.is_classic for member in members):
            # The last one by epochs was replaced by its own instance, which has joined last.
            members.sort(key=lambda member: member.member_id == response.member_id)
            self._become_classic(members, rebalance=epochs.target_epoch < epochs.generation)
        reply(response)

    def sync_group(self, request: SyncGroupRequest, reply: Reply) -> None:
        """Respond to a SyncGroup."""
        if self._by_epochs:
            response = self._guests.sync_group(request)
            self._told(request, response)
            reply(response)
        else:

            def received(response: Response) -> None:
                self._told(request, response)
                reply(response)

            self._classic.sync_group(request, received)

    def _told(self, request: SyncGroupRequest, response: Response) -> None:
        if isinstance(response, SyncGroupResponse) and response.error is ErrorCode.none:
            mine = [tp for tp, owner in self._untold.items() if owner == request.member_id]
            for partition in mine:
                del self._untold[partition]

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Respond to a heartbeat of a classic member."""
        return (self._guests if self._by_epochs else self._classic).heartbeat(request)

    def leave_group(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        """Respond to a LeaveGroup."""
        return (self._guests if self._by_epochs else self._classic).leave_group(request)

    def describe(self) -> DescribeGroupsResponse:
        """The classic group, which there is none of while members have epochs."""
        if self._by_epochs:
            return DescribeGroupsResponse(error=ErrorCode.none, state="Dead")
        return self._classic.describe()

    def offset_commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        """Store offsets."""
        return self._group.offset_commit(request)

    def check_txn_commit(self, request: OffsetCommitRequest) -> ErrorCode:
        """Whether the offsets of a transaction are accepted."""
        return self._group.check_txn_commit(request)

    def offset_fetch(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        """Read offsets."""
        return self._group.offset_fetch(request)

    # --- loading and unloading -------------------------------------------------------------------

    def unload(self) -> None:
        """The broker is no longer the coordinator."""
        self._group.unload()

    def crash(self) -> None:
        """The broker is gone."""
        self._group.crash()

    def load(self) -> None:
        """Become what the log says; a conversion is in it."""
        self._group.load()

    # --- conversions -----------------------------------------------------------------------------

    def _become_epochs(self) -> None:
        classic, untold = self._classic, self._still_untold()
        members = [
            ConvertibleMember(
                known.member_id,
                known.client,
                known.instance_id,
                known.rebalance_timeout,
                decode_subscription(dict(known.protocols)[classic.protocol or ""]).topics,
                epoch=classic.generation,
                previous_epoch=classic.generation,
                assigned=self._assigned(known),
                protocols=known.protocols,
                session_timeout=known.session_timeout,
            )
            for known in classic.members.values()
        ]
        classic.end(ErrorCode.rebalance_in_progress)
        self._by_epochs = True
        self._epochs.adopt(classic.generation if members else 0, members)
        self._untold = untold | dict.fromkeys(self._existing(members) - self._epochs.owners.keys())
        self._untold_at = self._epochs.target_epoch
        if members:
            self.conversions += 1
            self.events.converted(dict(self._epochs.owners), ())

    def _existing(self, members: Iterable[ConvertibleMember]) -> set[TopicPartition]:
        """All partitions of what these are subscribed to."""
        return {
            TopicPartition(self._options.key(topic), number)
            for member in members
            for topic in member.topics
            for number in range(self._options.partitions(topic))
        }

    def _assigned(self, member: GroupMember) -> frozenset[TopicPartition]:
        if not member.assignment:
            return frozenset()
        given = decode_assignment(member.assignment)[0]
        return frozenset(TopicPartition(self._options.key(topic), n) for topic, n in given)

    def member_removed(self, member: ConvertibleMember) -> None:
        """Become a classic group if the last KIP-848 member was removed."""
        left = list(self._epochs.members.values())
        if left and not member.is_classic and all(other.is_classic for other in left):
            self._become_classic(left, rebalance=True)

    def _become_classic(self, left: Iterable[ConvertibleMember], *, rebalance: bool) -> None:
        epochs, untold = self._epochs, self._still_untold()
        left = list(left)
        members = [
            GroupMember(
                known.member_id,
                known.client,
                known.instance_id,
                known.session_timeout or epochs.session_timeout,
                known.rebalance_timeout,
                known.protocols,
                is_new=False,
                assignment=encode_assignment(sorted(self._names(epochs.target(known)))),
            )
            for known in left
        ]
        waiting: dict[TopicPartition, str | None] = {
            tp: known.member_id
            for known in left
            if known.epoch == epochs.generation
            for tp in sorted(self._guests.unreported(known))
        }
        nobodys = self._existing(left).difference(*(epochs.target(known) for known in left))
        self._untold = untold | dict.fromkeys(nobodys) | waiting
        self._untold_at = epochs.generation
        behind = tuple(known.client for known in left if known.epoch != epochs.generation)
        owners = dict(epochs.owners)
        if not rebalance:
            owners = {tp: known.client for known in left for tp in sorted(epochs.target(known))}
        epochs.unload()
        self._by_epochs = False
        self.conversions += 1
        self._classic.adopt(epochs.generation, members, rebalance=rebalance)
        self.events.converted(owners, behind)

    def _names(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Those of topics that exist, by the names of these."""
        names = (
            (tp, TopicPartition(tp.topic.partition("+")[0], tp.partition)) for tp in partitions
        )
        return frozenset(named for tp, named in names if self._options.key(named.topic) == tp.topic)
