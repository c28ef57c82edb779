"""Errors of fetches: of a connection, a leader, a partition, a batch, a replica."""

from __future__ import annotations

from itertools import pairwise

import pytest
from unit.core.fetch.scripted_fetches import FetchWorld, asked, data, rejected
from unit.core.scripted_environment import BROKERS, NODES, topic, tp

from asyncrevoke.client.core.io.effects import FailureKind
from asyncrevoke.client.errors import CorruptRecordError, PartitionsError, TopicAuthorizationError
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    FetchedPartition,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.leader_not_available,
        ErrorCode.kafka_storage_error,
        ErrorCode.unknown_server_error,
    ],
)
def test_a_partition_that_moved_is_asked_for_at_its_new_leader(error: ErrorCode) -> None:
    world = FetchWorld(4)
    world.assign(0, 3, position=5)
    world.advance(1)
    world.respond(1, rejected(0, error), data(3, "5+1"))
    assert asked(world.fetches()[1]) == {3: 6}
    assert world.collect() == {3: [5]}
    world.respond_to_metadata(topic("orders", {0: 2, 3: 1}, epoch=3))
    world.plan()
    assert asked(world.fetches()[2]) == {0: 5}
    assert world.fetches()[2].partitions[0].leader_epoch == 3
    assert world.errors == []


def test_without_a_new_leader_the_partition_is_fetched_again_every_three_seconds_at_most() -> None:
    world = FetchWorld(1)
    world.assign(0)
    times: list[float] = []
    start = world.now
    while world.now - start < 60:
        for _ in world.sends(FetchRequest):
            times.append(world.now)
            world.respond(1, rejected(0, ErrorCode.not_leader_or_follower))
        for send in world.sends(MetadataRequest):
            del world.open[send.request_id]
        world.advance(0.05)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps[0] < 0.5
    assert 1.0 < max(gaps) < 3.1
    assert len(world.named("waiting to fetch")) >= 4


def test_a_partition_without_leader_waits_for_one_and_says_so() -> None:
    world = FetchWorld(1)
    world.cluster.refresh(world.now, "test")
    world.advance(0.2)
    world.respond_to_metadata(topic("orders", {0: -1}, epoch=3))
    world.assign(0)
    assert world.fetches() == {}
    assert world.named("waiting to fetch")[0].fields["reason"] == "its leader is unknown"
    world.advance(0.2)
    world.respond_to_metadata(topic("orders", {0: 3}, epoch=4))
    world.plan()
    assert asked(world.fetches()[3]) == {0: 0}


def test_a_lost_connection_is_tried_again_after_a_backoff_while_other_brokers_continue() -> None:
    world = FetchWorld(2)
    world.assign(0, 1)
    world.fail(world.fetch_of(1), FailureKind.DISCONNECTED, "reset by peer")
    world.plan()
    assert list(world.fetches()) == [2]
    world.respond(2, data(1, "0+1"))
    assert world.collect() == {1: [0]}
    line = world.named("waiting for a broker to fetch from")[0]
    assert (line.fields["node"], line.fields["reason"]) == ("b1:9092", "reset by peer")
    world.advance(0.2)
    assert 1 in world.fetches()
    world.respond(1, data(0, "0+1"))
    assert len(world.named("fetching again")) == 1


def test_an_offset_out_of_range_is_reported_once_and_waits_for_a_new_position() -> None:
    world = FetchWorld(1)
    (instance,) = world.assign(0, position=5)
    world.respond(1, rejected(0, ErrorCode.offset_out_of_range))
    world.advance(60)
    assert world.out_of_range == [instance]
    assert world.fetches() == {}
    world.place(instance, 90)
    world.plan()
    assert asked(world.fetches()[1]) == {0: 90}


def test_what_is_buffered_is_delivered_before_an_offset_out_of_range_is_reported() -> None:
    world = FetchWorld(1)
    world.assign(0)
    world.respond(1, data(0, "0+5"))
    world.respond(1, rejected(0, ErrorCode.offset_out_of_range))
    assert world.out_of_range == []
    assert world.collect() == {0: [0, 1, 2, 3, 4]}
    assert asked(world.fetches()[1]) == {0: 5}
    world.respond(1, rejected(0, ErrorCode.offset_out_of_range))
    assert len(world.out_of_range) == 1


def test_rejected_access_is_reported_once_and_tried_slowly_until_it_is_granted() -> None:
    world = FetchWorld(1)
    world.assign(0)
    for _ in range(3):
        world.respond(1, rejected(0, ErrorCode.topic_authorization_failed))
        world.advance(9)
        assert world.fetches() == {}
        world.advance(1)
    assert [type(error) for error in world.errors] == [TopicAuthorizationError]
    world.respond(1, data(0, "0+1"))
    assert world.collect() == {0: [0]}
    world.respond(1, rejected(0, ErrorCode.topic_authorization_failed))
    assert len(world.errors) == 2


def test_one_error_names_all_partitions_that_may_not_be_read() -> None:
    world = FetchWorld(6)
    world.assign(0, 3)
    topic_rejected = ErrorCode.topic_authorization_failed
    world.respond(1, rejected(0, topic_rejected), rejected(3, topic_rejected))
    (error,) = world.errors
    assert isinstance(error, TopicAuthorizationError)
    assert error.partitions == {tp(0), tp(3)}
    assert "grant READ" in str(error)


def test_a_leader_that_moves_is_no_warning_and_one_that_stays_away_is() -> None:
    world = FetchWorld(1)
    world.assign(0)
    world.respond(1, rejected(0, ErrorCode.fenced_leader_epoch))
    world.advance(0.2)
    assert world.named("waiting to fetch") == []
    world.respond(1, rejected(0, ErrorCode.not_leader_or_follower))
    (line,) = world.named("waiting to fetch")
    assert line.fields["reason"] == "not_leader_or_follower"


def test_an_error_that_will_not_pass_is_reported_and_tried_slowly() -> None:
    world = FetchWorld(1)
    world.assign(0)
    world.respond(1, rejected(0, ErrorCode.unsupported_compression_type))
    (error,) = world.errors
    assert isinstance(error, PartitionsError)
    assert "unsupported_compression_type" in str(error)
    world.advance(10)
    assert 1 in world.fetches()


def test_a_partition_that_the_response_leaves_out_is_requested_again() -> None:
    world = FetchWorld(1)
    world.assign(0)
    world.reply(world.fetch_of(1), FetchResponse(error=ErrorCode.none, partitions=()))
    world.plan()
    world.advance(0.2)
    assert 1 in world.fetches()


def test_a_corrupt_batch_is_reported_with_its_offset_while_the_others_flow_and_heals() -> None:
    world = FetchWorld(2)
    (instance, _) = world.assign(0, 1)
    world.respond(1, data(0, "0+3 3+3! 6+3"))
    world.respond(2, data(1, "0+5"))
    assert world.collect() == {0: [0, 1, 2], 1: [0, 1, 2, 3, 4]}
    (error,) = world.errors
    assert isinstance(error, CorruptRecordError)
    assert (error.offset, error.partitions) == (3, frozenset({tp(0)}))
    assert instance.buffer is not None
    assert instance.buffer.position == 3
    assert world.collect() == {}
    for send in world.sends(FetchRequest):
        if send.node == NODES[1]:
            world.respond(1)  # the fetch that was under way when it was noticed
    world.advance(0.2)
    assert asked(world.fetches()[1]) == {0: 3}
    world.respond(1, data(0, "3+3 6+3"))
    assert world.collect() == {0: [3, 4, 5, 6, 7, 8]}
    assert len(world.errors) == 1


def test_a_response_to_a_fetch_beyond_a_corrupt_batch_is_dropped_with_that_batch() -> None:
    world = FetchWorld(1)
    (instance,) = world.assign(0)
    world.respond(1, data(0, "0+3 3+3! 6+3"))
    assert asked(world.fetches()[1]) == {0: 9}
    assert world.collect() == {0: [0, 1, 2]}
    world.respond(1, data(0, "9+3"))
    assert instance.buffer is not None
    assert (instance.buffer.position, instance.buffer.buffered) == (3, 0)
    assert world.collect() == {}
    world.advance(0.2)
    assert asked(world.fetches()[1]) == {0: 3}
    world.respond(1, data(0, "3+3 6+3 9+3"))
    assert world.collect() == {0: [*range(3, 12)]}


def test_a_batch_that_stays_corrupt_is_fetched_again_later_and_later() -> None:
    world = FetchWorld(1)
    world.assign(0)
    fetched = 0
    start = world.now
    while world.now - start < 60:
        if world.fetches():
            fetched += 1
            world.respond(1, data(0, "0+3!"))
        if world.fetching.collector.is_ready:
            assert world.collect() == {}
        world.advance(0.05)
    assert 5 <= len(world.errors) <= 30
    assert fetched <= 30


def test_bytes_that_cannot_be_split_are_reported_once_per_poll() -> None:
    world = FetchWorld(1)
    world.assign(0, position=7)
    for _ in range(3):
        world.respond(1, data(0, "broken"))
        world.advance(5)
    (error,) = world.errors
    assert isinstance(error, CorruptRecordError)
    assert error.offset == 7
    world.collect()
    world.respond(1, data(0, "broken"))
    assert len(world.errors) == 2


def test_bytes_that_cannot_be_split_do_not_hide_the_records_before_them() -> None:
    world = FetchWorld(1)
    world.assign(0)
    world.respond(1, data(0, "0+2"))
    world.respond(1, data(0, "broken"))
    assert world.errors == []
    assert world.collect() == {0: [0, 1]}
    world.advance(1)
    world.respond(1, data(0, "broken"))
    assert len(world.errors) == 1


def test_a_replica_nearer_to_us_is_read_and_left_at_its_first_error() -> None:
    world = FetchWorld(1, client_rack="here")
    world.assign(0)
    assert world.fetches()[1].rack == "here"
    nearer = FetchedPartition(partition=tp(0), error=ErrorCode.none, preferred_read_replica=3)
    world.respond(1, nearer)
    assert list(world.fetches()) == [3]
    world.respond(3, rejected(0, ErrorCode.offset_out_of_range))
    world.advance(0.2)
    assert list(world.fetches()) == [1]
    assert world.out_of_range == []


def test_an_unknown_replica_is_not_asked() -> None:
    world = FetchWorld(1)
    world.assign(0)
    unknown = len(BROKERS) + 5
    world.respond(
        1,
        FetchedPartition(partition=tp(0), error=ErrorCode.none, preferred_read_replica=unknown),
    )
    world.advance(1)
    assert list(world.fetches()) == [1]
