"""A broker that does not respond and closes nothing: who is asked next, and what is dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.core.scripted_environment import BOOTSTRAP, NODES, ScriptedRequests, topic

from asyncrevoke.client.core.io.effects import (
    BrokerProbed,
    BrokerThrottled,
    Channel,
    ConnectionSilent,
    DropSilentConnections,
    Failed,
    FailureKind,
    Node,
    OtherBroker,
    ProbeBroker,
    Replied,
    Send,
)
from asyncrevoke.client.core.io.outbox import Outbox
from asyncrevoke.client.core.metadata.brokers import SilentBrokers
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
)

if TYPE_CHECKING:
    from asyncrevoke.client.core.io.outbox import Reply

SILENCE_TIMEOUT = 3.0
BEAT = HeartbeatRequest(group_id="g", generation=1, member_id="m", group_instance_id=None)


def ignore(_now: float, _reply: Reply) -> None:
    """Nobody waits."""


class Watched(ScriptedRequests):
    """The coordinator is broker 1, which also leads a partition."""

    def __init__(self) -> None:
        super().__init__()
        self.outbox.set_silence_timeout(SILENCE_TIMEOUT)
        self.silent_brokers = SilentBrokers(self.outbox, self.cluster, self.coordinator)
        self.know(topic("orders", {0: 1, 1: 2}))
        self.coordinator.call_when_known("test", lambda _now: None, self.now)
        self.name(1)
        self.advance(10)

    def name(self, number: int) -> None:
        """The response to FindCoordinator names this broker."""
        send, _ = self.only(FindCoordinatorRequest)
        node = NODES[number]
        self.see(
            Replied(
                send.request_id,
                FindCoordinatorResponse(
                    error=ErrorCode.none, node_id=node.node_id, host=node.host, port=node.port
                ),
            )
        )

    def see(
        self,
        event: ConnectionSilent | BrokerThrottled | OtherBroker | BrokerProbed | Replied | Failed,
    ) -> None:
        if isinstance(event, (Replied, Failed)):
            del self.open[event.request_id]
        self.silent_brokers.handle(self.now, event)
        self.outbox.route(self.now, event)
        self.sync()

    def beat(self, node: Node) -> Send:
        self.outbox.send(BEAT, node, Channel.HEARTBEAT, 10.0, ignore)
        return self.sends(HeartbeatRequest)[-1]

    def silent(self, node: Node) -> None:
        self.see(ConnectionSilent(node, self.now - SILENCE_TIMEOUT))


def test_a_silent_coordinator_is_looked_for_at_other_brokers_and_stays_the_coordinator() -> None:
    world = Watched()
    world.beat(NODES[1])
    world.silent(NODES[1])
    search, _ = world.only(FindCoordinatorRequest)
    assert search.node != NODES[1]
    assert world.coordinator.node == NODES[1]
    assert world.only(MetadataRequest)[0].node != NODES[1]


def test_a_throttled_connection_is_no_failure_and_is_logged_when_it_is_news() -> None:
    world = Watched()
    throttled = BrokerThrottled(NODES[1], "Fetch", 20.0)
    world.see(throttled)
    world.advance(5.0)
    world.see(BrokerThrottled(NODES[1], "Fetch", 1.0))
    address = f"{NODES[1].host}:{NODES[1].port}"
    assert world.cluster.brokers.throttled(world.now) == {address: pytest.approx(15.0)}
    lines = world.named("throttled by a quota")
    assert [line.level for line in lines] == ["info", "debug"]
    assert [line.fields["seconds"] for line in lines] == [20.0, 1.0]
    assert NODES[1] not in world.cluster.brokers.failed
    assert not world.sends(FindCoordinatorRequest)
    world.advance(15.1)
    assert world.cluster.brokers.throttled(world.now) == {}
    world.advance(60.0)
    world.see(throttled)
    assert world.named("throttled by a quota")[-1].level == "info"


def test_another_broker_at_an_address_leads_to_the_bootstrap_addresses() -> None:
    world = Watched()
    world.see(OtherBroker(NODES[2]))
    assert {node for node, _ in world.resets} == {*NODES.values(), *BOOTSTRAP}
    send, _ = world.only(MetadataRequest)
    assert send.node in BOOTSTRAP
    (event,) = world.named("connecting to the bootstrap addresses again")
    assert event.fields["reason"] == f"{NODES[2].address} is not broker 2 of the cluster any more"


def test_bootstrap_addresses_that_lead_to_another_broker_again_are_left_alone_for_10_s() -> None:
    world = Watched()
    asked: list[Node] = []
    for _ in range(60):
        world.see(OtherBroker(NODES[2]))
        for send in world.sends(MetadataRequest):
            asked.append(send.node)
            world.respond_to_metadata(topic("orders", {0: 1, 1: 2}))
        world.advance(0.5)
    assert len(asked) == 3
    assert set(asked) <= set(BOOTSTRAP)
    assert len(world.named("connecting to the bootstrap addresses again")) == 3


def test_it_is_looked_for_every_second_until_another_one_is_named_or_it_responds() -> None:
    world = Watched()
    beat = world.beat(NODES[1])
    world.silent(NODES[1])
    for _ in range(5):
        world.name(1)
        assert not world.sends(FindCoordinatorRequest)
        world.advance(1.3)
    world.name(1)
    world.see(Replied(beat.request_id, HeartbeatResponse(error=ErrorCode.none)))
    world.advance(10)
    assert not world.sends(FindCoordinatorRequest)


def test_another_coordinator_frees_what_waits_for_the_silent_one() -> None:
    world = Watched()
    beat = world.beat(NODES[1])
    world.silent(NODES[1])
    world.name(2)
    assert world.coordinator.node == NODES[2]
    assert set(world.resets) == {
        (NODES[1], channel) for channel in (Channel.JOIN, Channel.HEARTBEAT, Channel.COMMIT)
    }
    # What then fails says nothing of the new one.
    world.see(Failed(beat.request_id, FailureKind.DISCONNECTED))
    world.coordinator.mark_unknown(world.now, "Heartbeat: gone", NODES[1])
    assert world.coordinator.node == NODES[2]


def test_a_broker_that_responds_on_a_new_connection_loses_those_that_were_silent() -> None:
    world = Watched()
    world.silent(NODES[1])
    world.silent(NODES[1])
    (probe,) = world.probes
    assert probe == ProbeBroker(NODES[1], SILENCE_TIMEOUT)
    world.see(BrokerProbed(NODES[1], world.now, reachable=True))
    (drop,) = world.dropped
    # What has received something in the later half of the silence is alive.
    assert drop == DropSilentConnections(NODES[1], world.now - SILENCE_TIMEOUT / 2, world.now)


def test_a_broker_that_does_not_respond_there_either_loses_nothing_yet() -> None:
    world = Watched()
    world.silent(NODES[1])
    world.see(BrokerProbed(NODES[1], world.now, reachable=False))
    assert not world.dropped
    world.silent(NODES[1])
    assert len(world.probes) == 2


def test_a_coordinator_that_responds_on_a_new_connection_is_asked_there_again_at_once() -> None:
    world = Watched()
    beat = world.beat(NODES[1])
    world.silent(NODES[1])
    # Others are asked for the coordinator meanwhile, over connections that may be dead as well.
    assert world.only(FindCoordinatorRequest)[0].node != NODES[1]
    world.see(BrokerProbed(NODES[1], world.now, reachable=True))
    world.see(Failed(beat.request_id, FailureKind.DISCONNECTED))
    world.coordinator.no_response(world.now, "Heartbeat: gone", NODES[1])
    assert world.coordinator.node == NODES[1]


def test_a_coordinator_that_fails_again_on_a_new_connection_is_looked_for() -> None:
    world = Watched()
    world.silent(NODES[1])
    world.see(BrokerProbed(NODES[1], world.now, reachable=True))
    for _ in range(4):  # a request on each channel of the group, and one more
        world.coordinator.no_response(world.now, "Heartbeat: gone", NODES[1])
    assert world.coordinator.node is None


def test_a_leader_that_does_not_respond_is_asked_about_every_second_until_it_is_deposed() -> None:
    world = Watched()
    world.silent(NODES[2])
    for _ in range(3):
        world.respond_to_metadata(topic("orders", {0: 1, 1: 2}))
        assert not world.sends(MetadataRequest)
        world.advance(1.0)
    world.respond_to_metadata(topic("orders", {0: 1, 1: 1}))
    assert {node for node, _ in world.resets} == {NODES[2]}
    assert {channel for _, channel in world.resets} == set(Channel)


@pytest.mark.parametrize("kind", [FailureKind.SILENT, FailureKind.UNREACHABLE])
def test_a_broker_that_did_not_respond_is_not_asked_next(kind: FailureKind) -> None:
    world = Watched()
    for _ in range(3):
        beat = world.beat(NODES[1])
        world.see(Failed(beat.request_id, kind, "gone"))
        assert world.cluster.brokers.any_node() != NODES[1]


def test_an_unused_coordinator_is_not_looked_up() -> None:
    world = Watched()
    world.advance(60)
    assert not world.sends(FindCoordinatorRequest)


def test_requests_carry_the_silence_limit_of_the_group() -> None:
    outbox = Outbox(15.0)
    outbox.send(BEAT, NODES[1], Channel.HEARTBEAT, 10.0, ignore)
    outbox.set_silence_timeout(3.0)
    outbox.send(BEAT, NODES[1], Channel.HEARTBEAT, 10.0, ignore)
    sends = [effect for effect in outbox.take() if isinstance(effect, Send)]
    assert [send.silence_timeout for send in sends] == [15.0, 3.0]
