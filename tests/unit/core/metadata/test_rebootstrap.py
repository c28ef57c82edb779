"""The consumer goes back to the bootstrap addresses (KIP-899, KIP-1102)."""

from __future__ import annotations

from unit.core.scripted_environment import (
    BOOTSTRAP,
    BROKERS,
    NODES,
    ScriptedRequests,
    topic,
    tp,
)

from asyncrevoke.client.core.io.effects import Channel, FailureKind, Node
from asyncrevoke.client.protocol.messages import (
    BrokerMetadata,
    ErrorCode,
    MetadataRequest,
    MetadataResponse,
)

EVENT = "connecting to the bootstrap addresses again"
REQUIRED = MetadataResponse(error=ErrorCode.rebootstrap_required, brokers=BROKERS, topics=())


def refreshed() -> ScriptedRequests:
    """A cluster that is known, with a request for metadata under way."""
    world = ScriptedRequests()
    world.know(topic("orders", {0: 1}, epoch=4))
    world.advance(1)
    world.cluster.refresh(world.now, "test")
    return world


def fail_for(world: ScriptedRequests, seconds: float, *, responds: bool) -> list[Node]:
    """Fail each request for metadata; with ``responds`` the brokers respond to others. Returns
    the brokers that were asked."""
    asked: list[Node] = []
    until = world.now + seconds
    while world.now < until:
        for send in world.sends(MetadataRequest):
            asked.append(send.node)
            world.fail(send, FailureKind.TIMEOUT, "timed out")
        if responds:
            for node in NODES.values():
                world.cluster.brokers.note_success(node)
        world.advance(0.5)
    return asked


def test_the_bootstrap_addresses_are_asked_soon_after_the_last_known_broker_is_gone() -> None:
    world = refreshed()
    asked = fail_for(world, 10, responds=False)
    assert set(asked[:3]) == set(NODES.values())
    assert set(asked[3:5]) == set(BOOTSTRAP)
    assert world.named(EVENT) == []


def test_brokers_that_respond_to_all_but_metadata_are_left_after_five_minutes() -> None:
    world = refreshed()
    asked = fail_for(world, 290, responds=True)
    assert set(asked) == set(NODES.values())
    assert (world.named(EVENT), world.resets) == ([], [])
    asked = fail_for(world, 20, responds=False)
    assert set(asked) & set(BOOTSTRAP)
    (event,) = world.named(EVENT)
    assert event.level == "warning"
    assert {node for node, _ in world.resets} == {*NODES.values(), *BOOTSTRAP}
    assert {channel for _, channel in world.resets} == set(Channel)


def test_five_minutes_begin_with_the_first_failure_after_a_response() -> None:
    world = refreshed()
    fail_for(world, 200, responds=True)
    world.advance(3)
    world.respond_to_metadata(topic("orders", {0: 1}, epoch=4))
    world.advance(500)
    fail_for(world, 200, responds=True)
    assert world.named(EVENT) == []


def test_a_cluster_that_has_never_responded_is_asked_at_its_bootstrap_addresses_only() -> None:
    world = ScriptedRequests()
    world.cluster.start(world.now)
    assert set(fail_for(world, 700, responds=False)) == set(BOOTSTRAP)
    assert world.named(EVENT) == []


def test_a_broker_that_requires_it_is_left_for_the_bootstrap_addresses_at_once() -> None:
    world = refreshed()
    world.reply(world.only(MetadataRequest)[0], REQUIRED)
    assert {node for node, _ in world.resets} == {*NODES.values(), *BOOTSTRAP}
    assert world.cluster.leader(tp(0)) is None
    assert world.cluster.partitions("orders") == (0,)
    world.advance(0.2)
    send, _ = world.only(MetadataRequest)
    assert send.node in BOOTSTRAP
    new = BrokerMetadata(node_id=1, host="new", port=9092)
    orders = topic("orders", {0: 1}, epoch=4)
    world.reply(send, MetadataResponse(brokers=(new,), topics=(orders,)))
    assert world.cluster.leader(tp(0)) == (Node(1, "new", 9092), 4)


def test_brokers_that_require_it_again_and_again_are_asked_ever_more_slowly() -> None:
    world = refreshed()
    asked: list[Node] = []
    start = world.now
    while world.now - start < 60:
        for send in world.sends(MetadataRequest):
            asked.append(send.node)
            world.reply(send, REQUIRED)
        world.advance(0.05)
    assert set(asked[1:]) == set(BOOTSTRAP)
    assert 20 < len(asked) < 60


def test_a_response_with_another_error_is_no_description_of_the_cluster() -> None:
    world = refreshed()
    broken = MetadataResponse(error=ErrorCode.unknown_server_error, brokers=BROKERS[:1], topics=())
    world.reply(world.only(MetadataRequest)[0], broken)
    assert world.cluster.brokers.node(2) == NODES[2]
    assert world.resets == []
    (waiting,) = world.named("waiting for a broker that responds")
    assert waiting.fields["reason"] == "unknown_server_error"
