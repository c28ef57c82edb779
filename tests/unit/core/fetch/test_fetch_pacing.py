"""When a fetch is sent: behind a long poll, and after empty responses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs
from unit.core.fetch import scripted_fetches
from unit.core.fetch.scripted_fetches import FetchWorld, asked, data, rejected
from wire.frames.raw_batches import raw_batch, record

from asyncrevoke.client.core.fetch import responses
from asyncrevoke.client.core.io.effects import Channel, FailureKind
from asyncrevoke.client.core.partition.instance import PartitionInstance
from asyncrevoke.client.errors import TopicAuthorizationError
from asyncrevoke.client.protocol.messages import ErrorCode, FetchRequest, FetchResponse
from asyncrevoke.client.protocol.records import decode_batches

if TYPE_CHECKING:
    import pytest


def test_a_partition_that_was_emptied_does_not_wait_behind_a_parked_fetch() -> None:
    world = FetchWorld(4)
    world.assign(0, 3)
    world.respond(1, data(0, "0+12000"))
    assert world.fetches(Channel.FETCH_BUSY) == {}, "it has enough"
    assert asked(world.fetches()[1]) == {3: 0}
    while world.fetching.collector.is_ready:
        world.collect()
    fetch = world.fetches(Channel.FETCH_BUSY)[1]
    assert asked(fetch) == {0: 12000}
    assert fetch.max_wait <= 0.1


def test_a_new_partition_is_fetched_for_at_once_and_joins_the_long_poll_at_its_next_turn() -> None:
    world = FetchWorld(7)
    world.assign(0, 3)
    world.advance(0.1)
    world.assign(6)
    assert asked(world.fetches(Channel.FETCH_BUSY)[1]) == {6: 0}
    turns = 0
    while Channel.FETCH_BUSY in {send.channel for send in world.sends(FetchRequest)}:
        fetch = world.fetches(Channel.FETCH_BUSY)[1]
        world.advance(fetch.max_wait)
        world.respond(1, data(6, ""))
        turns += 1
        assert turns < 10
    assert asked(world.fetches()[1]) == {0: 0, 3: 0}
    world.respond(1)
    assert asked(world.fetches()[1]) == {0: 0, 3: 0, 6: 0}
    assert world.fetches(Channel.FETCH_BUSY) == {}


def test_a_partition_does_not_wait_for_a_long_poll_that_never_ends() -> None:
    world = FetchWorld(4)
    world.assign(0)
    world.advance(world.config.fetch_max_wait - 0.01)
    world.assign(3)
    assert world.fetches(Channel.FETCH_BUSY) == {}, "it joins the next one"
    world.advance(0.2)
    assert asked(world.fetches(Channel.FETCH_BUSY)[1]) == {3: 0}


def throttle(world: FetchWorld, seconds: float, *, channel: Channel = Channel.FETCH) -> None:
    """Respond to the fetch at broker 1 as one does whose quota is exceeded (KIP-219)."""
    (send,) = [
        send
        for send in world.sends(FetchRequest)
        if send.node.node_id == 1 and send.channel is channel
    ]
    world.reply(send, FetchResponse(error=ErrorCode.none, throttle_time=seconds))
    world.plan()


def test_nothing_is_fetched_of_a_broker_before_its_throttle_time_is_over() -> None:
    world = FetchWorld(5)
    world.assign(0, 1)
    throttle(world, 20.0)
    world.assign(3, 4)
    world.advance(19.9)
    assert {send.node.node_id for send in world.sends(FetchRequest)} == {2}
    world.advance(0.2)
    assert asked(world.fetches()[1]) == {0: 0, 3: 0}
    assert not world.named("waiting to fetch")


def test_a_throttle_time_holds_for_both_connections_that_fetch() -> None:
    world = FetchWorld(7)
    world.assign(0)
    world.advance(0.1)
    world.assign(3)
    assert asked(world.fetches(Channel.FETCH_BUSY)[1]) == {3: 0}
    throttle(world, 5.0)
    throttle(world, 1.0, channel=Channel.FETCH_BUSY)
    world.advance(4.9)
    assert not world.sends(FetchRequest)
    world.advance(0.2)
    assert asked(world.fetches()[1]) == {0: 0, 3: 0}


def test_a_seek_while_fetches_are_throttled_is_in_the_next_one() -> None:
    world = FetchWorld(1)
    world.assign(0)
    throttle(world, 5.0)
    world.place(world.instances[0], 700)
    world.advance(5.1)
    assert asked(world.fetches()[1]) == {0: 700}


def test_a_response_that_was_too_large_for_the_link_is_asked_for_in_smaller_parts() -> None:
    world = FetchWorld(1)
    world.assign(0)
    sizes = [world.fetches()[1].max_bytes]
    for _ in range(3):
        world.fail(world.fetch_of(1), FailureKind.TIMEOUT)
        world.plan()
        world.advance(3)
        fetch = world.fetches()[1]
        assert fetch.partitions[0].max_bytes == fetch.max_bytes
        sizes.append(fetch.max_bytes)
    assert sizes == [2**20, 2**19, 2**18, 2**17]
    for offset in range(3):
        world.respond(1, data(0, f"{offset}+1"))
    assert world.fetches()[1].max_bytes == 2**20


def test_a_broker_that_responds_at_once_with_nothing_is_not_asked_in_a_hot_loop() -> None:
    world = FetchWorld(1)
    world.assign(0)
    requests = 0
    start = world.now
    while world.now - start < 10:
        if world.fetches():
            requests += 1
            world.respond(1, data(0, "", high_watermark=500))
        world.advance(0.001)
    assert 10 < requests < 60


def test_batches_that_lead_nowhere_do_not_loop_hot() -> None:
    world = FetchWorld(1)
    world.assign(0, position=10)
    for _ in range(20):
        if not world.fetches():
            break
        world.respond(1, data(0, "0+10"))
    assert world.fetches() == {}


def test_planning_again_sends_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    world = FetchWorld(300)
    world.assign(*range(300))
    calls = 0

    def count(_instance: PartitionInstance) -> bool:
        nonlocal calls
        calls += 1
        return False

    monkeypatch.setattr(PartitionInstance, "is_blocked", property(count))
    for _ in range(50):
        world.plan()
    assert calls == 0
    for send in world.sends(FetchRequest):
        world.respond(send.node.node_id, data(send.node.node_id - 1, "0+5"))
    calls = 0
    world.collect(10)
    assert calls < 20


def test_a_response_of_many_batches_is_handled_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "_BATCHES_AT_ONCE", 2)
    world = FetchWorld(10)
    instances = world.assign(0, 3, 6, 9)
    world.respond(1, data(0, "0+1 1+1"), data(3, "0+1 1+1"), data(6, "0+3"), data(9, "0+1"))
    assert [instance.buffer.fetch_position for instance in instances if instance.buffer] == [
        2,
        2,
        0,
        0,
    ]
    assert world.fetches() == {}, "the fetch is not over"
    world.advance(0.0)
    world.plan()
    assert world.woken == 1
    assert asked(world.fetches()[1]) == {0: 2, 3: 2, 6: 3, 9: 1}
    assert world.collect() == {0: [0, 1], 3: [0, 1], 6: [0, 1, 2], 9: [0]}
    assert world.fetching.memory.used == 0


def test_a_seek_between_the_parts_of_a_response_drops_the_old_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(responses, "_BATCHES_AT_ONCE", 2)
    world = FetchWorld(7)
    _, removed, sought = world.assign(0, 3, 6)
    world.respond(1, data(0, "0+1 1+1 2+1"), data(3, "0+3"), data(6, "0+3"))
    world.place(sought, 100)
    world.fetching.remove(removed)
    world.advance(0.0)
    world.plan()
    assert asked(world.fetches()[1])[6] == 100
    assert world.collect() == {0: [0, 1, 2]}


def test_an_error_in_a_later_part_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "_BATCHES_AT_ONCE", 2)
    world = FetchWorld(4)
    world.assign(0, 3)
    world.respond(1, data(0, "0+1 1+1 2+1"), rejected(3, ErrorCode.topic_authorization_failed))
    assert world.errors == []
    world.advance(0.0)
    (error,) = world.errors
    assert isinstance(error, TopicAuthorizationError)


def test_more_bytes_than_were_requested_of_a_partition_are_fetched_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scripted_fetches, "decode", decode_batches)
    world = FetchWorld(1, max_partition_fetch_bytes=1000)
    world.assign(0)
    records = b"".join(raw_batch(record(), base_offset=number) for number in range(5000))
    world.respond(1, structs.replace(data(0, ""), records=records))
    (taken,) = world.collect().values()
    size = len(raw_batch(record()))
    assert taken == list(range(1000 // size))
    assert asked(world.fetches()[1]) == {0: len(taken)}


def test_a_first_batch_that_exceeds_the_limit_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripted_fetches, "decode", decode_batches)
    world = FetchWorld(1, max_partition_fetch_bytes=1000)
    world.assign(0)
    records = raw_batch(record(value=bytes(5000))) + raw_batch(record(), base_offset=1)
    world.respond(1, structs.replace(data(0, ""), records=records))
    assert world.collect() == {0: [0]}
    assert asked(world.fetches()[1]) == {0: 1}
