"""Members of both protocols in a group that the coordinator converts, one request at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from simulation.brokers.converting_group import ConvertingGroup
from simulation.brokers.coordinator_events import CoordinatorEvents
from simulation.brokers.simulated_classic_group import SimulatedClassicGroup
from simulation.brokers.simulated_consumer_group import ConsumerGroupOptions
from simulation.brokers.simulation_clock import SimulationClock

from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.messages import (
    CommitEntry,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ErrorCode,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    OffsetCommitRequest,
    Response,
    SyncGroupRequest,
    SyncGroupResponse,
)
from asyncrevoke.client.protocol.subscription import (
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from asyncrevoke.testing.fake_kafka.consumer_group import by_id, by_key
from asyncrevoke.testing.fake_kafka.group_state import GroupState

if TYPE_CHECKING:
    from collections.abc import Iterable


E = ErrorCode


COUNT = 4


ALL = frozenset(TopicPartition("orders", number) for number in range(COUNT))


Partitions = frozenset[TopicPartition]


class ReceivedResponses(CoordinatorEvents):
    def __init__(self) -> None:
        self.conversions: list[tuple[dict[TopicPartition, int], tuple[int, ...]]] = []
        self.removed: list[tuple[int, str]] = []

    def converted(self, owners: dict[TopicPartition, int], behind: tuple[int, ...]) -> None:
        self.conversions.append((owners, behind))

    def member_removed(self, client: int, member_id: str, reason: str) -> None:
        self.removed.append((client, reason))


@dataclass
class ConvertibleGroup:
    clock: SimulationClock = field(default_factory=SimulationClock)
    heard: ReceivedResponses = field(default_factory=ReceivedResponses)
    assignment_interval: float = 0.0

    def __post_init__(self) -> None:
        options = ConsumerGroupOptions(lambda _topic: COUNT, 6.0, self.assignment_interval)
        self.coordinator = ConvertingGroup(SimulatedClassicGroup(self.clock), options)
        self.coordinator.events = self.heard
        self.clients = 0

    def client(self) -> int:
        self.clients += 1
        return self.clients - 1

    def wait(self, seconds: float = 0.05) -> None:
        self.clock.run_until(self.clock.now + seconds)


class ScriptedClassicMember:
    """A classic member that sends only what the test calls."""

    def __init__(self, group: ConvertibleGroup, instance_id: str | None = None) -> None:
        self.group = group
        self.client = group.client()
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.protocol = "cooperative-sticky"
        self.leads = False
        self.members: list[str] = []
        self.responses: list[Response] = []

    def join(self, owned: Iterable[TopicPartition] = ()) -> ErrorCode | None:
        """Send a JoinGroup; None while it is parked."""
        subscription = Subscription(topics=("orders",), owned=tuple(sorted(owned)))
        request = JoinGroupRequest(
            group_id="group",
            session_timeout=6.0,
            rebalance_timeout=8.0,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocols=((self.protocol, encode_subscription(subscription)),),
        )
        self.responses.clear()
        self.group.coordinator.join_group(self.client, request, self.responses.append)
        return self.joined()

    def joined(self) -> ErrorCode | None:
        """The error of the response to the last JoinGroup."""
        if not self.responses:
            return None
        response = self.responses[-1]
        assert isinstance(response, JoinGroupResponse)
        if response.error is E.member_id_required:
            self.member_id = response.member_id
            return self.join()
        if response.error is E.none:
            self.member_id, self.generation = response.member_id, response.generation
            self.leads = response.leader == response.member_id
            self.members = [member.member_id for member in response.members]
        return response.error

    def sync(self, assignments: dict[str, Partitions] | None = None) -> Partitions | ErrorCode:
        """Send a SyncGroup; what is assigned, or why nothing is."""
        given = assignments or {}
        request = SyncGroupRequest(
            group_id="group",
            generation=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_name=self.protocol,
            assignments=tuple((id_, encode_assignment(sorted(tps))) for id_, tps in given.items()),
        )
        responses: list[Response] = []
        self.group.coordinator.sync_group(request, responses.append)
        self.group.wait()
        assert len(responses) == 1
        assert isinstance(responses[0], SyncGroupResponse)
        if responses[0].error is not E.none:
            return responses[0].error
        return frozenset(decode_assignment(responses[0].assignment)[0])

    def beat(self) -> ErrorCode:
        request = HeartbeatRequest(
            group_id="group",
            generation=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        return self.group.coordinator.heartbeat(request).error

    def commit(self, number: int, offset: int) -> ErrorCode:
        return commit(self.group, self.member_id, self.generation, number, offset)

    def leave(self) -> ErrorCode:
        request = LeaveGroupRequest(
            group_id="group", member_id=self.member_id, group_instance_id=self.instance_id
        )
        return self.group.coordinator.leave_group(request).error


class ScriptedKip848Member:
    """A KIP-848 member that sends only what the test calls."""

    def __init__(self, group: ConvertibleGroup, instance_id: str | None = None) -> None:
        self.group = group
        self.client = group.client()
        self.instance_id = instance_id
        self.member_id = f"modern{self.client}"
        self.epoch = 0
        self.assigned: Partitions = frozenset()

    def beat(self, owned: Partitions | None = None) -> ErrorCode:
        response = self._ask(self.epoch, owned)
        if response.error is E.none:
            self.epoch = response.member_epoch
            if response.assignment is not None:
                self.assigned = by_key(response.assignment)
        return response.error

    def leave(self) -> ErrorCode:
        return self._ask(-1, None).error

    def _ask(self, epoch: int, owned: Partitions | None) -> ConsumerGroupHeartbeatResponse:
        joins = epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id="group",
            member_id=self.member_id,
            member_epoch=epoch,
            group_instance_id=self.instance_id,
            rebalance_timeout=8.0 if joins else None,
            topics=("orders",) if joins else None,
            owned=() if joins else None if owned is None else by_id(owned),
        )
        return self.group.coordinator.consumer_heartbeat(self.client, request)


def commit(
    group: ConvertibleGroup, member_id: str, generation: int, number: int, offset: int
) -> ErrorCode:
    request = OffsetCommitRequest(
        group_id="group",
        generation=generation,
        member_id=member_id,
        group_instance_id=None,
        entries=(CommitEntry(partition=TopicPartition("orders", number), offset=offset),),
    )
    return group.coordinator.offset_commit(request).errors[0][1]


def classic_group(
    assignment_interval: float = 0.0,
) -> tuple[ConvertibleGroup, ScriptedClassicMember]:
    """A classic group of one, which has everything."""
    group = ConvertibleGroup(assignment_interval=assignment_interval)
    member = ScriptedClassicMember(group)
    member.join()
    group.wait()
    assert member.joined() is E.none
    assert member.sync({member.member_id: ALL}) == ALL
    assert group.coordinator.state is GroupState.STABLE
    return group, member


def converted_group() -> tuple[ConvertibleGroup, ScriptedClassicMember, ScriptedKip848Member]:
    """The same, with a member by KIP-848 that has just joined, and is to get half of it."""
    group, member = classic_group()
    modern = ScriptedKip848Member(group)
    assert modern.beat() is E.none
    return group, member, modern


def shared() -> tuple[ConvertibleGroup, ScriptedClassicMember, ScriptedKip848Member]:
    """Each of the two has half, and knows it."""
    group, member, modern = converted_group()
    member.join(ALL)
    kept = member.sync()
    assert isinstance(kept, frozenset)
    member.join(kept)
    assert member.sync() == kept
    assert modern.beat() is E.none
    return group, member, modern
