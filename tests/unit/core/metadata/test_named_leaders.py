"""A Fetch response that names the leader of a partition that has moved (KIP-951)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.core.fetch.scripted_fetches import FetchWorld, asked, data, rejected
from unit.core.scripted_environment import metadata, topic, tp

from asyncrevoke.client.core.io.effects import Node
from asyncrevoke.client.core.io.response_checks import find_contradiction
from asyncrevoke.client.protocol.messages import (
    BrokerMetadata,
    ErrorCode,
    FetchedPartition,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    OffsetsForLeaderEpochRequest,
)

if TYPE_CHECKING:
    from unit.core.scripted_environment import ScriptedRequests

MOVED = (ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch)
NEW = BrokerMetadata(node_id=9, host="b9", port=9092)


def moved(leader: tuple[int, int], *addresses: BrokerMetadata, **options: str) -> FetchWorld:
    """Partition 0 is fetched from broker 1 in epoch 2, which responds that it has moved."""
    world = FetchWorld(4, **options)  # type: ignore[arg-type]
    world.assign(0, position=5)
    world.advance(1)
    world.respond_with_leaders(1, rejected(0, MOVED[0], leader), leaders=addresses)
    return world


def is_fetched_from(world: FetchWorld, node_id: int) -> bool:
    fetch = world.fetches().get(node_id)
    return fetch is not None and 0 in asked(fetch)


def has_asked(world: ScriptedRequests, kind: type[MetadataRequest]) -> bool:
    return bool(world.sends(kind))


@pytest.mark.parametrize("error", MOVED)
def test_the_named_leader_is_fetched_from_before_the_response_with_metadata(
    error: ErrorCode,
) -> None:
    world = FetchWorld(4)
    world.assign(0, 3, position=5)
    world.advance(1)
    world.respond_with_leaders(1, rejected(0, error, (2, 3)), data(3, "5+1"))
    fetch = world.fetches()[2]
    assert asked(fetch) == {0: 5}
    assert fetch.partitions[0].leader_epoch == 3
    # Metadata is asked for as well: other partitions may have moved with it.
    assert has_asked(world, MetadataRequest)
    world.respond(2, data(0, "5+2"))
    assert world.collect() == {0: [5, 6], 3: [5]}
    assert world.errors == []
    assert world.named("waiting to fetch") == world.named("fetching again") == []


def test_a_leader_that_metadata_does_not_list_is_reached_at_the_named_address() -> None:
    world = moved((9, 3), NEW)
    assert is_fetched_from(world, 9)
    assert world.fetch_of(9).node == Node(9, "b9", 9092)


def test_the_address_of_a_known_broker_is_that_of_the_metadata() -> None:
    world = moved((2, 3), BrokerMetadata(node_id=2, host="elsewhere", port=1))
    assert world.fetch_of(2).node == Node(2, "b2", 9092)


def test_a_fenced_epoch_is_replaced_at_the_same_leader() -> None:
    world = FetchWorld(4)
    world.assign(0, position=5)
    world.advance(1)
    world.respond_with_leaders(1, rejected(0, ErrorCode.fenced_leader_epoch, (1, 3)))
    assert world.fetches()[1].partitions[0].leader_epoch == 3


@pytest.mark.parametrize(
    ("leader", "addresses"),
    [
        pytest.param((-1, -1), (), id="no leader is named"),
        pytest.param((2, 2), (), id="the epoch is the known one"),
        pytest.param((2, 1), (), id="the epoch is older"),
        pytest.param((2, -1), (), id="no epoch is named"),
        pytest.param((-1, 3), (), id="only an epoch is named"),
        pytest.param((9, 3), (), id="no address is named"),
        pytest.param((9, 3), (BrokerMetadata(node_id=8, host="b8", port=9092),), id="of another"),
        pytest.param((9, 3), (BrokerMetadata(node_id=9, host="", port=9092),), id="no host"),
        pytest.param((9, 3), (BrokerMetadata(node_id=9, host="b9", port=0),), id="port 0"),
        pytest.param((9, 3), (BrokerMetadata(node_id=9, host="b9", port=65536),), id="port 65536"),
    ],
)
def test_what_cannot_be_true_is_ignored_and_metadata_is_awaited(
    leader: tuple[int, int], addresses: tuple[BrokerMetadata, ...]
) -> None:
    world = moved(leader, *addresses)
    assert world.sends(FetchRequest) == []
    assert has_asked(world, MetadataRequest)
    assert world.cluster.leader(tp(0)) == (Node(1, "b1", 9092), 2)
    world.respond_to_metadata(topic("orders", {0: 2}, epoch=3))
    world.plan()
    assert is_fetched_from(world, 2)


def test_a_leader_in_an_error_of_another_kind_is_ignored() -> None:
    world = FetchWorld(4)
    world.assign(0, position=5)
    world.advance(1)
    world.respond_with_leaders(1, rejected(0, ErrorCode.kafka_storage_error, (2, 3)))
    assert world.cluster.leader(tp(0)) == (Node(1, "b1", 9092), 2)


def test_a_leader_of_a_partition_that_was_not_asked_for_is_ignored() -> None:
    world = FetchWorld(4)
    world.assign(0, position=5)
    world.advance(1)
    world.respond_with_leaders(1, data(0, "5+1"), rejected(3, MOVED[0], (2, 3)))
    assert world.cluster.leader(tp(3)) == (Node(1, "b1", 9092), 2)


def test_metadata_of_an_older_epoch_does_not_undo_the_named_leader() -> None:
    world = moved((2, 3))
    world.respond_to_metadata(topic("orders", {0: 1}, epoch=2))
    assert world.cluster.leader(tp(0)) == (Node(2, "b2", 9092), 3)
    assert is_fetched_from(world, 2)


def test_metadata_of_a_newer_epoch_replaces_the_named_leader() -> None:
    world = moved((2, 3))
    world.respond_to_metadata(topic("orders", {0: 3}, epoch=4))
    assert world.cluster.leader(tp(0)) == (Node(3, "b3", 9092), 4)


def test_brokers_that_name_each_other_are_not_asked_without_a_delay() -> None:
    world = moved((2, 3))
    for send in world.sends(MetadataRequest):
        del world.open[send.request_id]
    fetches, start = 0, world.now
    while world.now - start < 20:
        for send in world.sends(FetchRequest):
            fetches += 1
            other = (send.node.node_id % 3 + 1, 3 + fetches)
            world.respond_with_leaders(send.node.node_id, rejected(0, MOVED[0], other))
        world.advance(0.05)
    assert 5 < fetches < 25
    assert world.named("waiting to fetch") != []


def test_a_position_after_a_newer_epoch_is_validated_at_the_named_leader() -> None:
    world = FetchWorld(4)
    world.assign(0, position=0)
    world.advance(1)
    world.respond(1, data(0, "0+3"))
    world.collect()
    world.advance(1)
    world.respond_with_leaders(1, rejected(0, MOVED[0], (2, 3)))
    send, request = world.only(OffsetsForLeaderEpochRequest)
    assert send.node.node_id == 2
    assert request.queries[0].leader_epoch == 3


def test_an_error_of_a_follower_may_name_the_leader_that_is_read_from_next() -> None:
    world = FetchWorld(4, client_rack="a")
    world.assign(0, position=5)
    world.advance(1)
    redirect = FetchedPartition(partition=tp(0), error=ErrorCode.none, preferred_read_replica=3)
    world.respond_with_leaders(1, redirect)
    world.respond_with_leaders(3, rejected(0, MOVED[0], (2, 3)))
    assert is_fetched_from(world, 2)


def test_more_addresses_than_any_cluster_has_make_the_response_invalid() -> None:
    request = FetchRequest(partitions=(), max_wait=0.5, min_bytes=1, max_bytes=1)
    for count, is_valid in ((10_000, True), (10_001, False)):
        response = FetchResponse(error=ErrorCode.none, leaders=(NEW,) * count)
        assert (find_contradiction(request, response) is None) is is_valid


def test_a_new_broker_is_forgotten_when_the_next_metadata_does_not_list_it() -> None:
    world = moved((9, 3), NEW)
    send, _ = world.only(MetadataRequest)
    world.reply(send, metadata(topic("orders", {0: 1}, epoch=2)))
    assert world.cluster.brokers.node(9) is None
    assert world.cluster.leader(tp(0)) is None
