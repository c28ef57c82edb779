"""A client that sends single requests of a test to the simulated cluster."""

from random import Random
from typing import TypeVar

from simulation.brokers.faulty_brokers import FaultyBrokers
from simulation.brokers.simulated_classic_group import SimulatedClassicGroup
from simulation.brokers.simulation_clock import SimulationClock
from simulation.cluster.network import Network

from asyncrevoke.client.core.io.effects import Channel, Event, Failed, Node, Replied, Send
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.messages import (
    CommitEntry,
    ErrorCode,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    Request,
    Response,
    SyncGroupRequest,
    SyncGroupResponse,
)

R = TypeVar("R", bound=Response)
ORDERS = TopicPartition("orders", 0)


class ScriptedCluster:
    """A clock, brokers and a network."""

    def __init__(self, brokers: int = 1, initial_delay: float = 0.0) -> None:
        self.clock = SimulationClock()
        self.group = SimulatedClassicGroup(self.clock, initial_delay=initial_delay)
        self.brokers = FaultyBrokers(self.clock, Random(1), brokers, self.group)
        self.network = Network(self.clock, Random(2), self.brokers)
        self.brokers.create_topic("orders", 2)
        self._clients = 0

    def client(self) -> "ScriptedClient":
        self._clients += 1
        return ScriptedClient(self, self._clients - 1)

    def wait(self, seconds: float) -> None:
        self.clock.run_until(self.clock.now + seconds)


class ScriptedClient:
    """``ask`` waits for the response in virtual time, ``send`` does not."""

    beside = False

    def __init__(self, cluster: ScriptedCluster, client: int) -> None:
        self.cluster = cluster
        self.client = client
        self.events: dict[int, list[Event]] = {}
        self.member_id = ""
        self.generation = -1
        self._requests = 0

    def receive(self, event: Event) -> None:
        assert isinstance(event, (Replied, Failed))
        self.events.setdefault(event.request_id, []).append(event)

    def send(
        self,
        message: Request,
        channel: Channel = Channel.METADATA,
        timeout: float = 60.0,
        broker: int | None = None,
    ) -> int:
        self._requests += 1
        number = self.cluster.brokers.coordinator if broker is None else broker
        node = Node(number, f"broker-{number}", 9092)
        self.cluster.network.send(self, Send(self._requests, message, node, channel, timeout))
        return self._requests

    def response(self, request: int) -> Event | None:
        events = self.events.get(request, [])
        assert len(events) <= 1, "a request has one response"
        return events[0] if events else None

    def ask(
        self,
        message: Request,
        kind: type[R],
        channel: Channel = Channel.METADATA,
        within: float = 60,
    ) -> R:
        request = self.send(message, channel)
        self.cluster.clock.run_until(
            self.cluster.clock.now + within, lambda: request in self.events
        )
        event = self.response(request)
        assert isinstance(event, Replied), event
        assert isinstance(event.message, kind), event
        return event.message

    # --- what members send -----------------------------------------------------------------------

    def join_request(self, **changes: object) -> JoinGroupRequest:
        fields: dict[str, object] = {
            "group_id": "group",
            "session_timeout": 6.0,
            "rebalance_timeout": 10.0,
            "member_id": self.member_id,
            "group_instance_id": None,
            "protocols": (("range", b"metadata"),),
        }
        return JoinGroupRequest(**(fields | changes))  # type: ignore[arg-type]

    def get_id(self, **changes: object) -> None:
        response = self.ask(self.join_request(**changes), JoinGroupResponse)
        assert response.error is ErrorCode.member_id_required
        self.member_id = response.member_id

    def joined(self, response: JoinGroupResponse) -> None:
        self.generation = response.generation

    def sync_request(self, assignments: dict[str, bytes] | None = None) -> SyncGroupRequest:
        return SyncGroupRequest(
            group_id="group",
            generation=self.generation,
            member_id=self.member_id,
            group_instance_id=None,
            protocol_name="range",
            assignments=tuple((assignments or {}).items()),
        )

    def become_sole_member(self) -> None:
        self.get_id()
        self.joined(self.ask(self.join_request(), JoinGroupResponse, Channel.JOIN))
        self.ask(self.sync_request({self.member_id: b"all"}), SyncGroupResponse, Channel.JOIN)

    def heartbeat(self, generation: int | None = None) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id="group",
            generation=self.generation if generation is None else generation,
            member_id=self.member_id,
            group_instance_id=None,
        )

    def commit_request(
        self, offset: int, generation: int | None = None, member_id: str | None = None
    ) -> OffsetCommitRequest:
        return OffsetCommitRequest(
            group_id="group",
            generation=self.generation if generation is None else generation,
            member_id=self.member_id if member_id is None else member_id,
            group_instance_id=None,
            entries=(CommitEntry(partition=ORDERS, offset=offset),),
        )

    def commit(
        self, offset: int, generation: int | None = None, member_id: str | None = None
    ) -> object:
        response = self.ask(
            self.commit_request(offset, generation, member_id),
            OffsetCommitResponse,
            Channel.COMMIT,
        )
        return response.errors[0][1]
