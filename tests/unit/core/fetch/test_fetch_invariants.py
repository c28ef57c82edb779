"""What fetching promises, whatever the brokers send: turns, memory, and no waiting for others."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.core.fetch.scripted_fetches import FetchWorld, asked, data
from unit.core.scripted_environment import BROKERS, NODES, metadata, topic, tp
from wire.frames.corrupt_records import batch

from asyncrevoke.client.core.io.effects import FailureKind, Send
from asyncrevoke.client.errors import CorruptRecordError
from asyncrevoke.client.protocol.messages import (
    BrokerMetadata,
    ErrorCode,
    FetchedPartition,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
)
from asyncrevoke.client.protocol.records import decode_batches

MIB = 2**20


def fill(world: FetchWorld, send: Send, each: int, end: int = 10**9) -> None:
    """Respond to a fetch as brokers do: partition by partition until ``max_bytes``, but at least
    one record of ``each`` bytes, and up to the ``end`` of the log."""
    assert isinstance(send.message, FetchRequest)
    left, responses = send.message.max_bytes, list[FetchedPartition]()
    for entry in send.message.partitions:
        count = min(left, entry.max_bytes) // each
        if not responses and not count:
            count = 1
        count = min(count, end - entry.offset)
        left -= count * each
        text = f"{entry.offset}+{count}x{each}" if count > 0 else ""
        responses.append(data(entry.partition.partition, text))
    world.reply(send, FetchResponse(error=ErrorCode.none, partitions=tuple(responses)))
    world.plan()


def fetches(world: FetchWorld) -> list[Send]:
    return world.sends(FetchRequest)


def held(world: FetchWorld) -> int:
    return sum(i.buffer.size for i in world.instances.values() if i.buffer is not None)


def under_way(world: FetchWorld) -> int:
    return sum(s.message.max_bytes for s in fetches(world) if isinstance(s.message, FetchRequest))


@settings(max_examples=50)
@given(
    partitions=st.integers(1, 25),
    limit=st.integers(1, 12),
    arrivals=st.lists(
        st.lists(st.tuples(st.integers(0, 24), st.integers(1, 9)), max_size=6),
        min_size=1,
        max_size=60,
    ),
)
def test_no_partition_with_data_waits_for_more_polls_than_it_takes_to_serve_all(
    partitions: int, limit: int, arrivals: list[list[tuple[int, int]]]
) -> None:
    world = FetchWorld(partitions)
    world.assign(*range(partitions))
    waited = dict.fromkeys(range(partitions), 0)
    for arriving in arrivals:
        for drawn, count in arriving:
            number = drawn % partitions
            sends = [s for s in fetches(world) if number in asked_of(s)]
            for send in sends:
                offset = asked_of(send)[number]
                others = [data(n, "") for n in asked_of(send) if n != number]
                response = (data(number, f"{offset}+{count}"), *others)
                world.reply(send, FetchResponse(error=ErrorCode.none, partitions=response))
                world.plan()
        ready = [
            n for n, i in world.instances.items() if i.buffer is not None and i.buffer.buffered
        ]
        served = world.collect(limit)
        assert sum(map(len, served.values())) <= limit
        for number in ready:
            waited[number] = 0 if number in served else waited[number] + 1
            assert waited[number] < -(-partitions // limit), "it waits longer than a round"


def asked_of(send: Send) -> dict[int, int]:
    assert isinstance(send.message, FetchRequest)
    return asked(send.message)


def test_ten_thousand_partitions_stay_within_the_memory_and_all_get_their_turn() -> None:
    limit = 64 * MIB
    world = FetchWorld(10_000, buffer_memory=limit, max_partition_fetch_bytes=MIB)
    world.assign(*range(10_000))
    seen: set[int] = set()
    for _ in range(40):
        for send in fetches(world):
            fill(world, send, 10_000, end=2)
            # With the memory used up, one fetch for what has nothing is allowed beyond it.
            assert held(world) + under_way(world) <= limit + MIB
        seen.update(world.collect(10_000))
        if len(seen) == 10_000:
            break
        # A broker that responds at once and with nothing is left alone for a while.
        world.advance(0.6)
        world.plan()
    assert len(seen) == 10_000


def test_records_larger_than_the_whole_memory_are_delivered_one_at_a_time() -> None:
    world = FetchWorld(6, buffer_memory=MIB, max_partition_fetch_bytes=MIB // 2)
    world.assign(*range(6))
    delivered: dict[int, int] = dict.fromkeys(range(6), 0)
    for _ in range(60):
        for send in fetches(world):
            fill(world, send, 5 * MIB)
        # One for each long poll that was under way, and one for what has nothing.
        assert held(world) <= (len(NODES) + 1) * 5 * MIB
        for number, offsets in world.collect(500).items():
            delivered[number] += len(offsets)
        if min(delivered.values()) >= 5:
            return
        world.advance(0.1)
        world.plan()
    raise AssertionError(f"delivered: {delivered}")


def test_a_broker_that_does_not_respond_delays_no_other_broker() -> None:
    world = FetchWorld(3)
    world.assign(0, 1, 2)
    (silent,) = [s for s in fetches(world) if s.node == NODES[1]]
    got = {1: 0, 2: 0}
    for _ in range(50):
        for send in fetches(world):
            if send is not silent:
                fill(world, send, 1000)
        for number, offsets in world.collect(500).items():
            got[number] += len(offsets)
    assert min(got.values()) > 5000
    assert silent in fetches(world)


def nearer(number: int, replica: int) -> FetchedPartition:
    return FetchedPartition(
        partition=tp(number), error=ErrorCode.none, preferred_read_replica=replica
    )


def test_the_leader_is_asked_again_when_the_lease_of_a_replica_is_over() -> None:
    world = FetchWorld(1, metadata_max_age=60.0, client_rack="here")
    world.assign(0)
    world.respond(1, nearer(0, 3))
    until = world.now + 60.0
    while world.now < until - 1:
        assert list(world.fetches()) == [3]
        world.wait_out(3)
        refresh(world)
    world.advance(2.0)
    refresh(world)
    for _ in range(2):
        if 3 in world.fetches():
            world.wait_out(3)
    assert list(world.fetches()) == [1]


def refresh(world: FetchWorld) -> None:
    for send in world.sends(MetadataRequest):
        world.reply(send, metadata(topic("orders", {0: 1}, epoch=2)))
        world.plan()


def test_a_replica_that_cannot_be_reached_is_left_for_the_leader() -> None:
    world = FetchWorld(1, client_rack="here")
    world.assign(0)
    world.respond(1, nearer(0, 3))
    world.fail(world.fetch_of(3), FailureKind.UNREACHABLE)
    world.plan()
    assert list(world.fetches()) == [1]


def test_a_new_leader_is_asked_though_a_replica_was_preferred_before() -> None:
    world = FetchWorld(1, client_rack="here")
    world.assign(0)
    request = world.fetches()[1]
    assert request.rack == "here"
    world.respond(1, nearer(0, 3))
    world.wait_out(3)
    world.cluster.refresh(world.now, "a test")
    world.advance(0.2)
    world.reply(world.only(MetadataRequest)[0], metadata(topic("orders", {0: 2}, epoch=3)))
    world.wait_out(3)
    # The replica is of the same partition: it stays, and is asked with the epoch of the leader.
    assert world.fetches()[3].partitions[0].leader_epoch == 3


def test_while_the_preferred_replica_is_unknown_the_leader_is_read_and_metadata_is_refreshed() -> (
    None
):
    world = FetchWorld(1, client_rack="here")
    world.assign(0)
    offset, fetched, refreshed, sent_away = 0, 0, 0, 0
    start = world.now
    while world.now - start < 60:
        for send in world.sends(MetadataRequest):
            refreshed += 1
            world.reply(send, metadata(topic("orders", {0: 1}, epoch=2)))
            world.plan()
        request = world.fetches().get(1)
        if request is not None:
            fetched += 1
            assert fetched < 300
            if request.rack:
                sent_away += 1
                world.respond(1, nearer(0, 9))
            elif world.now - start >= offset:
                world.respond(1, data(0, f"{offset}+1"))
                assert world.collect() == {0: [offset]}
                offset += 1
            else:
                world.wait_out(1)
        else:
            world.advance(0.01)
    assert offset >= 59, "records flow, one a second"
    assert 5 <= sent_away <= 20
    assert 5 <= refreshed <= 20
    (line, *_) = world.named("reading from the leader: the nearest replica cannot be used")
    assert line.fields["replica"] == 9
    assert len(world.named("reading from the leader: the nearest replica cannot be used")) <= 6


def test_a_preferred_replica_is_read_as_soon_as_the_metadata_lists_it() -> None:
    world = FetchWorld(1, client_rack="here")
    world.assign(0)
    world.advance(0.5)
    world.respond(1, nearer(0, 4))
    assert world.fetches()[1].rack == "", "the leader is asked for records"
    added = (*BROKERS, BrokerMetadata(node_id=4, host="b4", port=9092))
    world.reply(
        world.only(MetadataRequest)[0],
        MetadataResponse(brokers=added, topics=(topic("orders", {0: 1}, epoch=2),)),
    )
    world.respond(1, data(0, "0+1"))
    assert list(world.fetches()) == [4]
    world.respond(4, data(0, "1+1"))
    assert world.collect() == {0: [0, 1]}
    (line,) = world.named("reading from the nearest replica again")
    assert line.fields["replica"] == 4


def test_a_leader_that_names_itself_as_preferred_replica_is_asked_without_a_rack() -> None:
    world = FetchWorld(4, client_rack="here")
    world.assign(0, 3)
    world.advance(0.5)
    assert asked(world.fetches()[1]) == {0: 0, 3: 0}
    world.respond(1, nearer(0, 1), data(3, ""))
    request = world.fetches()[1]
    assert (request.rack, asked(request)) == ("", {0: 0, 3: 0})
    assert world.sends(MetadataRequest)
    world.advance(0.2)
    world.respond(1, data(0, "0+2"))
    assert world.collect() == {0: [0, 1]}
    assert world.fetches()[1].rack == "here", "it is asked again later"


@pytest.mark.parametrize("named", [1, 3, 9])
def test_a_broker_that_sends_us_away_without_a_rack_too_is_asked_later_and_later(
    named: int,
) -> None:
    world = FetchWorld(1, client_rack="here")
    world.assign(0)
    fetched, start = 0, world.now
    while world.now - start < 60:
        refresh(world)
        found = world.fetches()
        if not found:
            world.advance(0.01)
        for node in found:
            fetched += 1
            assert fetched <= 60
            # Broker 3 sends us back to broker 1.
            world.respond(node, nearer(0, named if node == 1 else 1))
    assert fetched >= 5


@pytest.mark.parametrize(
    "error", [ErrorCode.not_leader_or_follower, ErrorCode.unknown_topic_or_partition]
)
def test_what_a_replica_rejects_is_read_from_the_leader_at_once(error: ErrorCode) -> None:
    world = FetchWorld(1, client_rack="here")
    world.assign(0)
    offset, rejections, start = 0, 0, world.now
    while world.now - start < 60:
        refresh(world)
        found = world.fetches()
        if 3 in found:
            rejections += 1
            assert rejections <= 20
            world.respond(3, FetchedPartition(partition=tp(0), error=error))
        elif 1 in found and found[1].rack:
            world.respond(1, nearer(0, 3))
        elif 1 in found and world.now - start >= offset:
            world.respond(1, data(0, f"{offset}+1"))
            assert world.collect() == {0: [offset]}
            offset += 1
        elif 1 in found:
            world.wait_out(1)
        else:
            world.advance(0.01)
    assert offset >= 59
    assert rejections >= 5


def test_attempts_to_reach_a_replica_that_is_silent_take_a_small_share_of_the_time() -> None:
    world = FetchWorld(1, client_rack="here", request_timeout=10.0)
    world.assign(0)
    lost, start = 0.0, world.now
    while world.now - start < 600:
        refresh(world)
        found = world.fetches()
        if 3 in found:
            world.advance(10.5)
            world.fail(world.fetch_of(3), FailureKind.TIMEOUT)
            world.plan()
            lost += 10.5
            assert lost <= 80
        elif 1 in found and found[1].rack:
            world.respond(1, nearer(0, 3))
        elif 1 in found:
            world.wait_out(1)
        else:
            world.advance(0.01)
    assert lost > 0


@pytest.mark.parametrize("magic", [0, 1])
def test_records_of_an_older_format_are_an_error_that_says_what_to_do(magic: int) -> None:
    world = FetchWorld(1)
    world.fetching._responses._decode = decode_batches
    world.assign(0)
    old = bytearray(batch(3))
    old[16] = magic
    send = world.fetch_of(1)
    response = msgspec.structs.replace(data(0, ""), records=bytes(old))
    world.reply(send, FetchResponse(error=ErrorCode.none, partitions=(response,)))
    (error,) = world.errors
    assert isinstance(error, CorruptRecordError)
    assert f"message format v{magic} is not supported, only v2" in str(error)
    assert "rewrite the topic" in str(error)
    assert "seek past it" in str(error)
