"""Responses that batches and delivered values are views of, within the memory of the buffers."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections import Counter
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, cast

import pytest
from unit.core.fetch.scripted_fetches import FetchWorld
from unit.core.scripted_environment import tp
from unit.protocol.test_value_views import Written, built, plain

from asyncrevoke.client.core.io.effects import Channel
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
)
from asyncrevoke.client.protocol.receive_buffers import ReceiveBuffer, ReceiveBuffers
from asyncrevoke.client.protocol.records import decode_batches

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.client.config.consumer_options import ValueAs
    from asyncrevoke.client.core.io.effects import Send
    from asyncrevoke.client.model import Record

MIB = 2**20
KIB = 2**10
KEPT = "views of delivered records keep fetch responses in memory; copy what is kept"


class ViewWorld(FetchWorld):
    """Brokers whose responses are received into buffers."""

    def __init__(
        self, partitions: int = 4, *, value_as: ValueAs = "view", buffer_memory: int = 64 * MIB
    ) -> None:
        super().__init__(partitions, value_as=value_as, buffer_memory=buffer_memory)
        decode = partial(decode_batches, views=value_as == "view")
        self.fetching._responses._decode = decode
        self.buffers = ReceiveBuffers(buffer_memory // 2)

    def respond_with_bytes(self, send: Send, batches: Mapping[int, bytes]) -> None:
        """Respond with these bytes of each partition."""
        frame = memoryview(self.buffers.take(max(sum(map(len, batches.values())), 1)))
        at, partitions = 0, list[FetchedPartition]()
        for number, data in batches.items():
            frame[at : at + len(data)] = data
            partitions.append(
                FetchedPartition(
                    partition=tp(number),
                    error=ErrorCode.none,
                    high_watermark=10**6,
                    last_stable_offset=10**6,
                    log_start_offset=0,
                    records=frame[at : at + len(data)],
                )
            )
            at += len(data)
        self.buffers.remember(frame)
        self.buffers.free_unused()
        buffer = cast("ReceiveBuffer", frame.obj)
        self.reply(
            send,
            FetchResponse(error=ErrorCode.none, partitions=tuple(partitions), buffer=buffer),
        )

    def give(self, node_id: int, batches: Mapping[int, bytes]) -> None:
        self.respond_with_bytes(self.fetch_of(node_id, next(iter(batches))), batches)
        self.plan()

    def take(self, limit: int = 500) -> list[Record]:
        taken = self.fetching.collector.collect(self.now, limit)
        self.plan()
        return [record for records in taken.values() for record in records]

    @property
    def used(self) -> int:
        return self.fetching.memory.used


def value(size: int, first: int = 0, count: int = 1) -> bytes:
    return built([plain(size)] * count, first=first)


def test_a_response_counts_once_until_its_last_view_is_gone() -> None:
    world = ViewWorld()
    world.assign(0, 3)
    world.give(1, {0: value(MIB), 3: value(2 * MIB)})
    capacity = world.used
    assert 3 * MIB < capacity < 3.3 * MIB
    records = world.take()
    assert len(records) == 2
    assert world.used == capacity
    kept = cast("memoryview", records[0].view)[5:10]
    records.clear()
    assert world.used == capacity
    del kept
    assert world.used == 0


@pytest.mark.parametrize("value_as", ["bytes", "view"])
def test_the_memory_of_a_response_is_returned_when_its_partitions_are_revoked(
    value_as: ValueAs,
) -> None:
    world = ViewWorld(value_as=value_as)
    world.assign(0, 3)
    world.give(1, {0: value(MIB), 3: value(MIB)})
    for number in (0, 3):
        assert world.used > 2 * MIB
        world.fetching.remove(world.instances.pop(number))
    assert world.used == 0


def test_views_that_were_delivered_count_after_their_partition_is_revoked() -> None:
    world = ViewWorld()
    (instance,) = world.assign(0)
    world.give(1, {0: value(MIB)})
    records = world.take()
    world.fetching.remove(instance)
    assert world.used > MIB
    records.clear()
    assert world.used == 0


def test_records_given_as_bytes_keep_no_response() -> None:
    world = ViewWorld(value_as="bytes")
    world.assign(0)
    world.give(1, {0: value(MIB)})
    records = world.take()
    assert type(records[0].value) is bytes
    assert world.used == 0


def test_small_records_of_a_large_response_do_not_keep_it() -> None:
    world = ViewWorld()
    world.assign(0, 3)
    world.give(1, {0: value(4 * MIB), 3: value(100, count=50)})
    records = [each for each in world.take() if each.partition == 3]
    assert len(records) == 50
    assert world.used == 0


def test_no_other_partition_is_fetched_for_while_views_use_the_memory_up() -> None:
    world = ViewWorld(buffer_memory=4 * MIB)
    world.assign(0)
    world.give(1, {0: value(4 * MIB)})
    records = world.take()
    world.assign(1)
    assert set(world.fetches()) == {1}
    records.clear()
    world.plan()
    assert set(world.fetches()) == {1, 2}


def test_a_paused_partition_does_not_keep_the_response_when_the_memory_is_used_up() -> None:
    world = ViewWorld(7, value_as="bytes", buffer_memory=8 * MIB)
    world.assign(0, 3, 6)
    world.instances[3].seek_pending = True
    world.give(1, {0: value(7 * MIB), 3: value(100 * KIB), 6: value(MIB)})
    world.take()
    assert 100 * KIB < world.used < 110 * KIB


def test_a_view_that_is_kept_for_a_minute_is_logged_once() -> None:
    world = ViewWorld()
    world.assign(0)
    world.give(1, {0: value(MIB)})
    records = world.take()
    for _ in range(5):
        world.advance(10)
        world.plan()
    assert not world.named(KEPT)
    for _ in range(5):
        world.advance(10)
        world.plan()
    assert len(world.named(KEPT)) == 1
    assert len(records) == 1


def test_an_undelivered_batch_is_copied_after_a_minute_and_not_logged() -> None:
    world = ViewWorld()
    world.assign(0, 3)
    world.instances[3].seek_pending = True
    world.give(1, {0: value(MIB), 3: value(100 * KIB)})
    world.take()
    assert world.used > MIB
    world.advance(70)
    world.plan()
    assert 100 * KIB < world.used < 110 * KIB
    assert not world.named(KEPT)


def test_a_batch_that_exceeds_the_limits_is_delivered_and_logged_once() -> None:
    world = ViewWorld(buffer_memory=MIB)
    world.assign(0)
    for offset in range(3):
        world.give(1, {0: value(5 * MIB, offset)})
        assert [each.offset for each in world.take()] == [offset]
    (logged,) = world.named("record batch exceeds max_partition_fetch_bytes; fetched all the same")
    assert logged.level == "info"
    assert logged.fields["partition"] == "orders-0"
    assert 5 * MIB < int(str(logged.fields["bytes"])) < 5.1 * MIB


@pytest.mark.parametrize(("size", "is_sent"), [(2 * MIB, True), (100 * KIB, False)])
def test_the_next_fetch_is_sent_before_a_large_response_is_drained(
    size: int, is_sent: bool
) -> None:
    world = ViewWorld()
    world.assign(0)
    world.is_poll_waiting = True
    world.give(1, {0: value(size)})
    assert bool(world.sends(FetchRequest)) is is_sent


@pytest.mark.parametrize("size", [MIB - KIB, 100 * KIB])
def test_two_fetches_share_the_partitions_after_a_large_response(size: int) -> None:
    world = ViewWorld(10)
    world.assign(0, 3, 6, 9)
    world.give(1, dict.fromkeys((0, 3, 6, 9), value(size)))
    world.take()
    fetches = {Channel.FETCH: [0, 3], Channel.FETCH_BUSY: [6, 9]}
    if size == 100 * KIB:
        fetches = {Channel.FETCH: [0, 3, 6, 9]}
    for offset in range(1, 4):
        sent = world.sends(FetchRequest)
        assert {send.channel: list(asked(send)) for send in sent} == fetches
        for send in sent:
            # Each half stays on its connection.
            world.respond_with_bytes(send, dict.fromkeys(asked(send), value(size, offset)))
            world.plan()
            world.take()


def test_a_single_partition_has_one_fetch_in_flight() -> None:
    world = ViewWorld()
    world.assign(0)
    for offset in range(3):
        world.give(1, {0: value(2 * MIB, offset)})
        (send,) = world.sends(FetchRequest)
        assert send.channel is Channel.FETCH


def asked(send: Send) -> dict[int, int]:
    """The partitions of a fetch, and their offsets."""
    assert isinstance(send.message, FetchRequest)
    return {
        partition.partition.partition: partition.offset for partition in send.message.partitions
    }


class Log(NamedTuple):
    """Batches that are written again and again, and how many records each has."""

    batches: list[tuple[bytes, int]]

    @classmethod
    def mixed(cls, rng: random.Random) -> Log:
        """Records of 100 bytes to 5 MB, compressed and not."""
        batches: list[tuple[bytes, int]] = []
        for size, count in ((100, 100), (10_000, 10), (100_000, 3), (MIB, 1), (5_000_000, 1)):
            for compression in (0, 3, 4):
                values = [rng.randbytes(size // 2) + bytes(size // 2) for _ in range(count)]
                records: list[Written] = [(None, each, []) for each in values]
                batches.append((built(records, compression), count))
        rng.shuffle(batches)
        return cls(batches)

    def size(self, number: int) -> int:
        """Bytes of the batch of this number."""
        return len(self.batches[number % len(self.batches)][0])

    def write(self, frame: memoryview, offset: int, number: int) -> tuple[int, int]:
        """Write the batch of this number; returns its bytes and the next offset."""
        data, count = self.batches[number % len(self.batches)]
        frame[: len(data)] = data
        struct.pack_into(">q", frame, 0, offset)
        return len(data), offset + count


def respond_with_batches(world: ViewWorld, send: Send, log: Log, numbers: Counter[int]) -> None:
    """Respond as a broker does: within the limits, except for a first batch."""
    request = cast("FetchRequest", send.message)
    at, chosen = 0, list[tuple[FetchPartition, int]]()
    for entry in request.partitions:
        number, begin = entry.partition.partition, at
        while True:
            size = log.size(numbers[number])
            most = min(request.max_bytes, begin + entry.max_bytes)
            if at + size > most and (at or begin < at):
                break
            chosen.append((entry, numbers[number]))
            numbers[number] += 1
            at += size
    frame = memoryview(world.buffers.take(max(at, 1)))
    at, partitions = 0, list[FetchedPartition]()
    for entry, batches in groupby(chosen, itemgetter(0)):
        begin, offset = at, entry.offset
        for _, number in batches:
            size, offset = log.write(frame[at:], offset, number)
            at += size
        partitions.append(
            FetchedPartition(
                partition=entry.partition,
                error=ErrorCode.none,
                high_watermark=10**6,
                last_stable_offset=10**6,
                log_start_offset=0,
                records=frame[begin:at],
            )
        )
    world.buffers.remember(frame)
    world.buffers.free_unused()
    buffer = cast("ReceiveBuffer", frame.obj)
    response = FetchResponse(error=ErrorCode.none, partitions=tuple(partitions), buffer=buffer)
    del frame
    world.reply(send, response)


@pytest.mark.parametrize("value_as", ["bytes", "view"])
@pytest.mark.parametrize("seed", [1, 2])
def test_records_of_all_sizes_take_no_more_than_the_buffer_memory_and_one_fetch(
    value_as: ValueAs, seed: int
) -> None:
    memory = 24 * MIB
    rng = random.Random(seed)
    log = Log.mixed(rng)
    world = ViewWorld(6, value_as=value_as, buffer_memory=memory)
    world.assign(*range(6))
    numbers = Counter({number: number for number in range(6)})
    delivered = most_delivered = 0
    tracemalloc.start()
    try:
        for _ in range(60):
            for send in world.sends(FetchRequest):
                respond_with_batches(world, send, log, numbers)
                world.plan()
            records = world.take(rng.choice((1, 5, 50)))
            delivered += len(records)
            most_delivered = max(
                most_delivered, sum(len(record.value or b"") for record in records)
            )
            del records
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert delivered > 300
    assert world.errors == []
    # What is delivered in one step, and a batch that is decompressed, come on top.
    assert peak < memory + memory // 2 + most_delivered + 10 * MIB
