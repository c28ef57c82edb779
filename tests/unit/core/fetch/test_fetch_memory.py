"""Fetching within the memory that is left for buffers."""

from __future__ import annotations

from unit.core.fetch.scripted_fetches import FetchWorld, asked, data

from asyncrevoke.client.core.io.effects import Channel
from asyncrevoke.client.protocol.messages import (
    FetchRequest,
)


def test_buffered_and_reserved_bytes_stay_within_the_buffer_memory() -> None:
    mib = 1024 * 1024
    world = FetchWorld(9, buffer_memory=3 * mib, max_partition_fetch_bytes=mib)
    world.assign(*range(9))
    fetches = world.fetches()
    assert sorted(fetches) == [1, 2, 3]
    assert sum(request.max_bytes for request in fetches.values()) <= 3 * mib
    # One broker fills the memory with data that nobody takes.
    at = 0
    for _ in range(30):
        if 1 not in world.fetches():
            break
        batch = f"{at}+3000"
        world.respond(1, *(data(n, batch) for n in asked(world.fetches()[1])))
        at += 3000
    assert 1 not in world.fetches()
    held = sum(i.buffer.size for i in world.instances.values() if i.buffer is not None)
    reserved = sum(request.max_bytes for request in world.fetches().values())
    assert held + reserved <= 3 * mib + 3 * 300_000


def test_with_the_memory_used_up_an_empty_partition_is_still_fetched_for() -> None:
    world = FetchWorld(2, buffer_memory=1000, max_partition_fetch_bytes=500)
    world.assign(0)
    world.respond(1, data(0, "0+100"))
    assert world.fetches() == {}
    world.assign(1)
    assert asked(world.fetches()[2]) == {1: 0}
    world.wait_out(2)
    assert asked(world.fetches()[2]) == {1: 0}
    assert 1 not in world.fetches()


def test_with_the_memory_used_up_only_those_that_have_nothing_are_fetched_for() -> None:
    world = FetchWorld(7, buffer_memory=900, max_partition_fetch_bytes=500)
    world.assign(0, 3, 6)
    world.respond(1, data(0, "0+8"), data(3, "0+1"))
    assert asked(world.fetches()[1]) == {6: 0}


def test_large_records_are_not_buffered_beyond_a_partitions_share_of_the_memory() -> None:
    world = FetchWorld(4, buffer_memory=100_000, max_partition_fetch_bytes=10_000)
    world.assign(0, 3)
    world.respond(1, data(0, "0+499"))
    assert asked(world.fetches(Channel.FETCH_BUSY)[1]) == {0: 499}
    world.respond(1, data(0, "499+2"))
    assert world.fetches(Channel.FETCH_BUSY) == {}
    assert asked(world.fetches()[1]) == {3: 0}


def test_memory_is_given_back_by_collecting_seeking_and_removing() -> None:
    world = FetchWorld(3, buffer_memory=100_000)
    for end in ("collect", "seek", "remove"):
        (instance,) = world.assign(0)
        world.respond(1, data(0, "0+2000"))
        assert world.fetching.memory.used == 200_000
        if end == "collect":
            world.collect(2000)
        elif end == "seek":
            world.place(instance, 5)
        world.fetching.remove(instance)
        assert world.fetching.memory.used == 0
        for send in world.sends(FetchRequest):
            world.fail(send)
        world.advance(30)


def test_the_buffered_records_of_a_size_are_estimated_by_the_average_record() -> None:
    world = FetchWorld(2)
    memory = world.fetching.memory
    world.assign(0, 1)
    assert memory.records_in(1000) == 0
    world.respond(1, data(0, "0+300"))
    world.respond(2, data(1, "0+100"))
    assert memory.records_in(1000) == 10, "records of 100 bytes"
    world.collect(400)
    assert memory.records_in(1000) == 0
