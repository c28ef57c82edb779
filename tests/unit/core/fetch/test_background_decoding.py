"""Large batches are decoded elsewhere: nobody else waits, and nothing is lost or out of order."""

from __future__ import annotations

import asyncio
import random
import threading
from typing import TYPE_CHECKING

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.core.fetch.scripted_fetches import FetchWorld, ScriptedBatch, asked, data
from unit.core.scripted_environment import tp
from unit.runtime.scripted_core import ScriptedCore, ScriptedSockets, make_driver
from wire.frames.corrupt_records import fetched

from asyncrevoke.client.core.io.effects import BatchDecoded, DecodeBatch
from asyncrevoke.client.core.partition.instance import InstanceTransition
from asyncrevoke.client.core.partition.record_buffer import LARGE_BATCH
from asyncrevoke.client.errors import CorruptRecordError
from asyncrevoke.client.protocol.messages import ErrorCode, FetchRequest, FetchResponse
from asyncrevoke.client.protocol.records import RecordBatch, decode_batches

if TYPE_CHECKING:
    from typing import Unpack

    from asyncrevoke.client.config import ConsumerOptions
    from asyncrevoke.client.model import Record

MIB = 2**20
VALUE = random.Random(1).randbytes(1000) * 1000


class Decodes(FetchWorld):
    """A world in which decoding takes until ``decoded`` is called."""

    def __init__(self, partitions: int = 3, **options: Unpack[ConsumerOptions]) -> None:
        super().__init__(partitions, **options)
        self.decodes = []

    @property
    def under_way(self) -> list[tuple[int, int]]:
        """Partition and base offset of what is being decoded."""
        assert self.decodes is not None
        return [(d.partition.partition, d.batch.base_offset) for d in self.decodes]

    def decoded(self, number: int = 0) -> None:
        """One of them is done."""
        assert self.decodes is not None
        self.outbox.route(self.now, self.decodes.pop(number).run())
        self.plan()


def large(base: int, count: int = 10, size: int = 2 * MIB) -> str:
    return f"{base}+{count}x{size // count}"


def test_a_partition_whose_next_batch_is_large_waits_for_it_and_the_others_do_not() -> None:
    world = Decodes()
    world.assign(0, 1)
    world.respond(1, data(0, f"0+3 {large(3)} 13+4"))
    world.respond(2, data(1, "0+5"))
    assert world.under_way == []
    assert world.collect() == {0: [0, 1, 2], 1: [0, 1, 2, 3, 4]}
    assert world.under_way == [(0, 3)]
    assert not world.fetching.collector.is_ready
    assert world.collect() == {}
    woken = world.woken
    world.decoded()
    assert world.woken == woken + 1
    assert world.collect() == {0: [*range(3, 17)]}


def test_the_next_large_batch_is_decoded_while_records_of_this_one_are_handled() -> None:
    world = Decodes()
    world.assign(0)
    world.respond(1, data(0, f"{large(0)} {large(10)} 20+1"))
    assert world.under_way == [(0, 0)]
    world.decoded()
    assert world.under_way == [], "one after the other"
    assert world.collect(9) == {0: [*range(9)]}
    assert world.under_way == []
    assert world.collect(500) == {0: [9]}
    assert world.under_way == [(0, 10)]
    world.decoded()
    assert world.collect(500) == {0: [*range(10, 21)]}


def test_small_batches_are_decoded_in_passing() -> None:
    world = Decodes()
    world.assign(0)
    world.respond(1, data(0, f"0+1x{LARGE_BATCH} 1+1x{LARGE_BATCH + 1}"))
    assert world.collect() == {0: [0]}
    assert world.under_way == [(0, 1)]


def test_what_is_decoded_and_not_taken_has_half_of_the_memory_or_is_one() -> None:
    world = Decodes(6, buffer_memory=16 * MIB)
    world.assign(*range(6))
    for number in range(6):
        world.respond(number % 3 + 1, data(number, large(0, size=3 * MIB)))
    assert world.under_way == [(0, 0), (1, 0)]
    world.decoded()
    world.decoded()
    # A third one would take them beyond 8 MiB.
    assert world.under_way == []
    assert len(world.collect(10)) == 2
    assert world.under_way == [], "both have some left"
    collected = world.collect(10)
    assert sorted(collected) == [0, 1]
    assert world.under_way == [(2, 0), (3, 0)]


def test_one_that_is_larger_than_the_memory_has_its_turn() -> None:
    world = Decodes(3, buffer_memory=4 * MIB)
    world.assign(0, 1)
    world.respond(1, data(0, large(0, size=40 * MIB)))
    world.respond(2, data(1, large(0, size=40 * MIB)))
    assert world.under_way == [(0, 0)]
    assert world.fetching.memory.used >= 40 * MIB
    world.decoded()
    assert world.under_way == []
    assert list(world.collect()) == [0]
    assert world.under_way == [(1, 0)]
    world.decoded()
    assert list(world.collect()) == [1]
    assert world.fetching.memory.used == 0


def test_the_buffer_of_a_paused_partition_delays_no_other_partition() -> None:
    world = Decodes(3, buffer_memory=4 * MIB)
    first, _ = world.assign(0, 1)
    world.respond(1, data(0, large(0, size=3 * MIB)))
    world.respond(2, data(1, large(0, size=3 * MIB)))
    world.decoded()
    assert world.under_way == []
    first.paused = True
    world.plan()
    assert world.under_way == [(1, 0)]


def test_a_partition_that_is_revoked_meanwhile_keeps_its_records_for_a_withdrawal() -> None:
    world = Decodes()
    (instance,) = world.assign(0)
    world.respond(1, data(0, f"{large(0)} 10+2"))
    instance.transition(InstanceTransition.REVOKE)
    world.decoded()
    assert world.collect() == {}
    instance.transition(InstanceTransition.WITHDRAW)
    world.fetching.add(instance)
    world.plan()
    assert world.collect() == {0: [*range(12)]}


def test_of_a_partition_that_is_gone_nothing_comes() -> None:
    world = Decodes()
    (instance,) = world.assign(0)
    world.respond(1, data(0, large(0)))
    old = world.fetch_of(1, 0)
    world.fetching.remove(instance)
    assert world.fetching.memory.used == 0
    world.reply(old, FetchResponse(error=ErrorCode.none))
    world.assign(0, position=4)
    world.respond(1, data(0, large(0)))
    assert world.under_way == [(0, 0), (0, 0)], "the new assignment waits for nobody"
    world.decoded()
    assert not world.fetching.collector.is_ready
    world.decoded()
    assert world.collect() == {0: [*range(4, 10)]}


def test_after_a_seek_what_was_decoded_for_the_old_position_is_forgotten() -> None:
    world = Decodes()
    (instance,) = world.assign(0)
    world.respond(1, data(0, large(0)))
    world.place(instance, 105)
    world.plan()
    world.respond(1)
    world.respond(1, data(0, large(100)))
    assert world.under_way == [(0, 0)]
    world.decoded()
    assert world.under_way == [(0, 100)]
    assert world.collect() == {}
    world.decoded()
    assert world.collect() == {0: [105, 106, 107, 108, 109]}


def test_a_large_batch_that_is_corrupt_is_reported_and_fetched_again() -> None:
    world = Decodes()
    world.assign(0)
    world.respond(1, data(0, f"0+2 {large(2)}!"))
    assert world.collect() == {0: [0, 1]}
    world.decoded()
    assert world.errors == []
    assert world.collect() == {}
    (error,) = world.errors
    assert isinstance(error, CorruptRecordError)
    assert (error.partitions, error.offset) == (frozenset({tp(0)}), 2)
    assert world.fetching.memory.used == 0
    for send in world.sends(FetchRequest):
        world.reply(send, FetchResponse(error=ErrorCode.none))
    world.advance(1.0)
    world.plan()
    assert asked(world.fetches()[1]) == {0: 2}
    world.respond(1, data(0, large(2)))
    world.decoded()
    assert world.collect() == {0: [*range(2, 12)]}


@settings(max_examples=60)
@given(
    sizes=st.lists(st.lists(st.booleans(), min_size=1, max_size=5), min_size=1, max_size=5),
    seed=st.integers(0, 2**32),
    limit=st.integers(1, 40),
)
def test_whatever_is_done_first_each_partition_comes_whole_and_in_order(
    sizes: list[list[bool]], seed: int, limit: int
) -> None:
    world = Decodes(len(sizes), buffer_memory=8 * MIB)
    world.assign(*range(len(sizes)))
    chance = random.Random(seed)
    for number, batches in enumerate(sizes):
        words = [
            large(10 * n) if is_large else f"{10 * n}+10" for n, is_large in enumerate(batches)
        ]
        world.respond(number % 3 + 1, data(number, " ".join(words)))
    came: dict[int, list[int]] = {number: [] for number in range(len(sizes))}
    for _ in range(2000):
        if world.under_way and chance.random() < 0.5:
            world.decoded(chance.randrange(len(world.under_way)))
        for number, offsets in world.collect(limit).items():
            came[number] += offsets
    assert came == {n: [*range(10 * len(batches))] for n, batches in enumerate(sizes)}
    assert world.fetching.memory.used == 0


def packed(compression: int) -> RecordBatch:
    """40 MB of records."""
    builder = DefaultRecordBatchBuilder(2, compression, 0, -1, -1, -1, 2**30)
    for number in range(40):
        builder.append(number, 1000, None, VALUE, [])
    (one,) = decode_batches(fetched(bytes(builder.build())), read_committed=False)
    assert one.unpacked_size >= 40 * len(VALUE)
    return one


@pytest.mark.parametrize("compression", range(5), ids=["none", "gzip", "snappy", "lz4", "zstd"])
async def test_the_event_loop_runs_while_tens_of_megabytes_are_decoded(compression: int) -> None:
    core = ScriptedCore()
    driver, _ = make_driver(core, ScriptedSockets())
    driver.start()
    try:
        core.effects.append(DecodeBatch(1, packed(compression), tp(0), 7, 0))
        driver.flush()
        ticks = 0
        async with asyncio.timeout(60):
            while not core.events:
                await asyncio.sleep(0)
                ticks += 1
        # The first turn starts it, and the last one brings the result.
        assert ticks > 3
        (event,) = core.events
        assert isinstance(event, BatchDecoded)
        assert isinstance(event.records, list)
        assert [record.value == VALUE for record in event.records] == [True] * 40
    finally:
        await driver.aclose()


async def test_closing_does_not_wait_for_what_is_being_decoded() -> None:
    began, ends = threading.Event(), threading.Event()

    class Endless(ScriptedBatch):
        def decode(
            self, topic: str, partition: int, tracker_id: int, from_offset: int
        ) -> list[Record]:
            began.set()
            assert ends.wait(60)
            return []

    core = ScriptedCore()
    driver, _ = make_driver(core, ScriptedSockets())
    driver.start()
    core.effects.append(DecodeBatch(1, Endless(0, 1), tp(0), 7, 0))
    driver.flush()
    try:
        assert await asyncio.to_thread(began.wait, 60)
        await driver.aclose()
        assert core.events == []
        assert driver.error is None
    finally:
        ends.set()
