from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from unit.core.scripted_world import BROKERS, NODES, ScriptedRequests, topic, tp

from asyncrevoke.core.fetch.fetcher import Fetcher
from asyncrevoke.core.io.effects import Channel, FailureKind
from asyncrevoke.core.io.wall_clock import WallClock
from asyncrevoke.core.partition.instance import InstanceTransition, PartitionInstance
from asyncrevoke.core.partition.offset_tracker import OffsetTracker
from asyncrevoke.core.partition.record_buffer import RecordBuffer
from asyncrevoke.errors import CorruptRecordError, PartitionsError, TopicAuthorizationError
from asyncrevoke.model import Record, TopicPartition
from asyncrevoke.protocol.messages import (
    ErrorCode,
    FetchedPartition,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
)
from asyncrevoke.protocol.records import CorruptBatch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Unpack

    from asyncrevoke.config import ConsumerOptions
    from asyncrevoke.core.io.effects import Send


@dataclasses.dataclass
class Batch:
    """``count`` records from ``base_offset`` on, of ``each`` bytes."""

    base_offset: int
    count: int
    each: int = 100
    leader_epoch: int = 0
    corrupt: bool = False
    checksum: int = 0

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.count

    @property
    def size(self) -> int:
        return self.count * self.each

    @property
    def unpacked_size(self) -> int:
        return self.size

    def decode(self, topic: str, partition: int, tracker_id: int, from_offset: int) -> list[Record]:
        if self.corrupt:
            raise CorruptBatch("the checksum is wrong")
        return [
            Record(topic, partition, offset, 0, 0, None, None, (), tracker_id)
            for offset in range(max(self.base_offset, from_offset), self.next_offset)
        ]


def decode(fetched: FetchedPartition, read_committed: bool) -> list[Batch]:
    """Bytes like ``b"10+5x99 20+1!"``: records 10 to 14 of 99 bytes, a corrupt one at 20."""
    batches: list[Batch] = []
    for word in bytes(fetched.records).decode().split():
        if word == "broken":
            raise CorruptBatch("no header")
        base, _, count = word.rstrip("!").partition("+")
        count, _, each = count.partition("x")
        batches.append(Batch(int(base), int(count), int(each or 100), corrupt=word.endswith("!")))
    return batches


def data(number: int, records: str, *, high_watermark: int = 10**6) -> FetchedPartition:
    return FetchedPartition(
        partition=tp(number),
        error=ErrorCode.none,
        high_watermark=high_watermark,
        last_stable_offset=high_watermark - 1,
        log_start_offset=0,
        records=records.encode(),
    )


def refused(number: int, error: ErrorCode) -> FetchedPartition:
    return FetchedPartition(partition=tp(number), error=error)


class FetchWorld(ScriptedRequests):
    """A cluster of three brokers; partition n of "orders" is led by broker n % 3 + 1."""

    def __init__(self, partitions: int = 3, **options: Unpack[ConsumerOptions]) -> None:
        super().__init__(**options)
        # What the reactions of the other rooms answer.
        self.is_poll_waiting = False
        self.capacity: dict[TopicPartition, int] = {}
        self.fetching = Fetcher(
            self.outbox, self.config, self.cluster, decode, WallClock(0.0), self, self
        )
        self.know(topic("orders", {n: n % 3 + 1 for n in range(partitions)}, epoch=2))
        self.out_of_range: list[PartitionInstance] = []
        self.truncated: list[tuple[int, int | None, int]] = []
        self.instances: dict[int, PartitionInstance] = {}

    def metadata_refreshed(self, now: float) -> None:
        self.fetching.leaders_known(now)

    def partition_capacity(self, instance: PartitionInstance, round_number: int) -> int:
        return self.capacity.get(instance.partition, 10**6)

    def position_out_of_range(self, now: float, instance: PartitionInstance) -> None:
        self.out_of_range.append(instance)

    def log_truncated(
        self, now: float, instance: PartitionInstance, offset: int | None, leader_epoch: int
    ) -> None:
        self.truncated.append((instance.partition.partition, offset, leader_epoch))

    def log_end_known(self, now: float, instance: PartitionInstance) -> None:
        pass

    def position_passed(self, now: float, instance: PartitionInstance) -> None:
        pass

    def place(self, instance: PartitionInstance, position: int) -> None:
        tracker_id = 1 if instance.tracker is None else instance.tracker.tracker_id + 1
        instance.tracker = OffsetTracker(tracker_id, position)
        instance.buffer = RecordBuffer(instance.partition, tracker_id, position)
        self.fetching.add(instance)

    def assign(
        self, *numbers: int, position: int = 0, blocked: Sequence[int] = ()
    ) -> list[PartitionInstance]:
        for number in numbers:
            instance = PartitionInstance(tp(number), number)
            instance.transition(InstanceTransition.POSITIONED)
            instance.seek_pending = number in blocked
            self.instances[number] = instance
            self.place(instance, position)
        self.plan()
        return [self.instances[number] for number in numbers]

    def plan(self) -> None:
        self.fetching.plan(self.now)
        self.sync()

    def fetches(self, channel: Channel = Channel.FETCH) -> dict[int, FetchRequest]:
        """The open long polls by node, or the fetches for busy partitions."""
        found: dict[int, FetchRequest] = {}
        for send in self.sends(FetchRequest):
            assert isinstance(send.message, FetchRequest)
            if send.channel is channel:
                assert send.node.node_id not in found, "two fetches on one connection"
                found[send.node.node_id] = send.message
        return found

    def fetch_of(self, node_id: int, number: int | None = None) -> Send:
        """The open fetch at this node that asks for this partition, or the long poll."""
        (send,) = [
            send
            for send in self.sends(FetchRequest)
            if isinstance(send.message, FetchRequest)
            and send.node.node_id == node_id
            and (send.channel is Channel.FETCH if number is None else number in asked(send.message))
        ]
        return send

    def answer(self, node_id: int, *partitions: FetchedPartition) -> None:
        """Answer the fetch at this node; partitions not named come back empty."""
        first = partitions[0].partition.partition if partitions else None
        send = self.fetch_of(node_id, first)
        assert isinstance(send.message, FetchRequest)
        named = {fetched.partition for fetched in partitions}
        rest = [p for p in send.message.partitions if p.partition not in named]
        empty = [data(p.partition.partition, "", high_watermark=p.offset) for p in rest]
        response = FetchResponse(error=ErrorCode.none, partitions=(*partitions, *empty))
        self.reply(send, response)
        self.plan()

    def wait_out(self, node_id: int) -> None:
        """Let the broker wait as long as it may, and answer with nothing."""
        message = self.fetch_of(node_id).message
        assert isinstance(message, FetchRequest)
        self.advance(message.max_wait)
        self.answer(node_id)

    def drain(self, limit: int = 500) -> dict[int, list[int]]:
        taken = self.fetching.drain(self.now, limit)
        self.plan()
        return {
            partition.partition: [record.offset for record in records]
            for partition, records in taken.items()
        }


def asked(request: FetchRequest) -> dict[int, int]:
    return {p.partition.partition: p.offset for p in request.partitions}


def test_each_broker_gets_one_fetch_for_the_partitions_it_leads() -> None:
    world = FetchWorld(5)
    world.assign(0, 1, 2, 3, position=7)
    fetches = world.fetches()
    assert {node: asked(request) for node, request in fetches.items()} == {
        1: {0: 7, 3: 7},
        2: {1: 7},
        3: {2: 7},
    }
    first = fetches[1].partitions[0]
    assert (first.leader_epoch, first.max_bytes) == (2, world.config.max_partition_fetch_bytes)
    assert world.fetch_of(1).timeout == world.config.fetch_max_wait + world.config.request_timeout


def test_what_was_fetched_is_drained_in_order_and_fetched_further() -> None:
    world = FetchWorld(1)
    (instance,) = world.assign(0)
    assert not world.fetching.has_deliverable
    world.answer(1, data(0, "0+3 3+2", high_watermark=99))
    assert world.woken == 1
    assert world.fetching.has_deliverable
    assert (instance.high_watermark, instance.last_stable_offset, instance.log_start) == (99, 98, 0)
    assert asked(world.fetches()[1]) == {0: 5}
    assert world.drain(4) == {0: [0, 1, 2, 3]}
    assert world.drain() == {0: [4]}
    assert not world.fetching.has_deliverable
    assert instance.tracker is not None
    assert instance.tracker.position == 0, "the drain moves the buffers and nothing else"


def test_a_poll_is_shared_fairly_between_partitions() -> None:
    world = FetchWorld(3)
    world.assign(0, 1, 2)
    world.answer(1, data(0, "0+1000"))
    world.answer(2, data(1, "0+20"))
    world.answer(3, data(2, "0+1000"))
    assert {n: len(offsets) for n, offsets in world.drain(300).items()} == {0: 140, 1: 20, 2: 140}


def test_between_the_water_marks_nothing_is_fetched() -> None:
    # Two polls of 10 for one partition; small answers, so that only records count.
    world = FetchWorld(1, max_poll_records=10, max_partition_fetch_bytes=200)
    world.assign(0)
    world.answer(1, data(0, "0+15"))
    assert asked(world.fetches()[1]) == {0: 15}, "still filling up to the high water mark"
    world.answer(1, data(0, "15+25"))
    assert world.fetches() == {}
    world.drain(15)
    assert world.fetches() == {}, "25 are left, and the low water mark is 20"
    world.drain(6)
    assert asked(world.fetches()[1]) == {0: 40}


def test_the_next_answer_is_fetched_while_half_of_the_last_one_is_left() -> None:
    world = FetchWorld(1, max_poll_records=10, max_partition_fetch_bytes=10_000)
    world.assign(0)
    world.answer(1, data(0, "0+100"))
    assert world.fetches() == {}
    # A batch is held until its last record is taken.
    world.drain(10)
    assert world.fetches() == {}
    world.drain(85)
    assert len(world.fetches()) == 1


def test_with_more_partitions_each_buffers_less() -> None:
    world = FetchWorld(3, max_poll_records=30, max_partition_fetch_bytes=200)
    world.assign(0, 1, 2)
    # The quiet ones need no share, but for the next of them that gets something.
    world.answer(1, data(0, "0+60"))
    world.answer(2, data(1, "0+60"))
    world.answer(3, data(2, "0+40"))
    assert world.fetches() == {}
    world.drain(3 * 19)
    assert 3 not in world.fetches()
    world.drain(6)
    assert 3 in world.fetches()


def test_busy_partitions_leave_the_long_poll_to_the_quiet_ones() -> None:
    world = FetchWorld(10)
    world.assign(0, 3, 6, 9)
    assert list(asked(world.fetches()[1])) == [0, 3, 6, 9]
    world.answer(1, data(0, "0+1"))
    assert list(asked(world.fetches()[1])) == [3, 6, 9]
    assert asked(world.fetches(Channel.FETCH_BUSY)[1]) == {0: 1}
    world.answer(1, data(0, "1+1"))
    assert asked(world.fetches(Channel.FETCH_BUSY)[1]) == {0: 2}
    assert list(asked(world.fetches()[1])) == [3, 6, 9], "it is parked all the while"


def test_what_a_waiting_poll_drains_is_asked_for_with_the_others_in_one_fetch() -> None:
    world = FetchWorld(10)
    world.is_poll_waiting = True
    world.assign(0, 3, 6, 9)
    world.answer(1, data(0, "0+1"))
    assert world.fetches() == {}
    world.fetching.polled()
    assert world.drain() == {0: [0]}
    assert asked(world.fetches()[1]) == {3: 0, 6: 0, 9: 0, 0: 1}
    assert world.fetches(Channel.FETCH_BUSY) == {}


def test_a_poll_that_waits_and_does_not_come_holds_fetches_back_for_a_moment_only() -> None:
    world = FetchWorld(10)
    world.is_poll_waiting = True
    world.assign(0, 3)
    world.answer(1, data(0, "0+1"))
    assert world.fetches() == {}
    world.advance(0.006)
    assert 3 in asked(world.fetches()[1])


def test_an_answer_without_records_is_followed_at_once_though_a_poll_waits() -> None:
    world = FetchWorld(3)
    world.is_poll_waiting = True
    world.assign(0)
    world.wait_out(1)
    assert asked(world.fetches()[1]) == {0: 0}


def test_many_quiet_partitions_are_not_listed_again_for_a_poll_that_waits() -> None:
    world = FetchWorld(3 * 33)
    world.is_poll_waiting = True
    world.assign(*range(0, 3 * 33, 3))
    world.answer(1, data(0, "0+1"))
    world.fetching.polled()
    world.drain()
    assert asked(world.fetches(Channel.FETCH_BUSY)[1]) == {0: 1}
    assert 0 not in asked(world.fetches()[1])


def test_partitions_that_got_nothing_come_first_in_the_next_fetch() -> None:
    world = FetchWorld(10)
    world.assign(0, 3, 6, 9)
    world.answer(1, data(0, "0+1"))
    world.answer(1, data(3, "0+1"))
    assert list(asked(world.fetches()[1])) == [6, 9, 3]
    world.answer(1, data(6, "0+1"))
    assert list(asked(world.fetches()[1])) == [9, 3, 6]


def test_a_stale_answer_is_discarded_after_a_seek() -> None:
    world = FetchWorld(1)
    (instance,) = world.assign(0)
    world.place(instance, 50)
    world.plan()
    world.answer(1, data(0, "0+3"))
    assert world.drain() == {}
    assert asked(world.fetches()[1]) == {0: 50}


def test_a_stale_answer_is_discarded_when_only_the_buffer_was_replaced() -> None:
    world = FetchWorld(1)
    (instance,) = world.assign(0)
    assert instance.tracker is not None
    instance.buffer = RecordBuffer(instance.partition, instance.tracker.tracker_id, 0)
    world.fetching.add(instance)
    world.answer(1, data(0, "0+3"))
    assert world.drain() == {}


def test_nothing_is_kept_or_delivered_of_a_partition_that_is_being_revoked() -> None:
    world = FetchWorld(1)
    (instance,) = world.assign(0)
    world.answer(1, data(0, "0+3"))
    instance.transition(InstanceTransition.REVOKE)
    world.answer(1, data(0, "3+3"))
    assert not world.fetching.has_deliverable
    assert world.drain() == {}
    assert world.fetches() == {}
    instance.transition(InstanceTransition.WITHDRAW)
    world.advance(0.1)
    world.plan()
    assert world.drain() == {0: [0, 1, 2]}
    assert asked(world.fetches()[1]) == {0: 3}


def test_an_error_is_not_believed_of_a_position_that_was_left() -> None:
    world = FetchWorld(1)
    (instance,) = world.assign(0)
    world.place(instance, 50)
    world.answer(1, refused(0, ErrorCode.offset_out_of_range))
    assert world.out_of_range == []
    assert asked(world.fetches()[1]) == {0: 50}


def test_an_answer_for_a_partition_that_is_gone_is_ignored() -> None:
    world = FetchWorld(1)
    (instance,) = world.assign(0)
    world.fetching.remove(instance)
    world.answer(1, data(0, "0+3"))
    assert world.drain() == {}
    assert world.fetches() == {}


def test_a_paused_partition_keeps_its_data_and_is_not_fetched() -> None:
    world = FetchWorld(1)
    (instance,) = world.assign(0)
    instance.paused = True
    world.answer(1, data(0, "0+3"))
    assert not world.fetching.has_deliverable
    assert world.drain() == {}
    assert world.fetches() == {}
    instance.paused = False
    world.fetching.add(instance)
    assert world.drain() == {0: [0, 1, 2]}
    assert asked(world.fetches()[1]) == {0: 3}


def test_a_blocked_partition_is_seen_soon_after_it_is_let_through() -> None:
    world = FetchWorld(2)
    blocked, _ = world.assign(0, 1, blocked=[0])
    assert list(world.fetches()) == [2]
    world.plan()
    blocked.seek_pending = False
    world.plan()
    world.advance(0.02)
    assert 1 in world.fetches()


def test_a_paused_partition_costs_no_timers_while_nothing_happens() -> None:
    world = FetchWorld(1)
    (instance,) = world.assign(0)
    instance.paused = True
    world.answer(1, data(0, ""))
    world.advance(1)
    assert "fetching" not in world.timers


def test_no_more_is_taken_than_there_is_room_for() -> None:
    world = FetchWorld(2)
    world.capacity = {tp(0): 3, tp(1): 500}
    world.assign(0, 1)
    world.answer(1, data(0, "0+100"))
    world.answer(2, data(1, "0+100"))
    assert {n: len(offsets) for n, offsets in world.drain(50).items()} == {0: 3, 1: 47}


# --- memory --------------------------------------------------------------------------------------


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
        world.answer(1, *(data(n, batch) for n in asked(world.fetches()[1])))
        at += 3000
    assert 1 not in world.fetches()
    held = sum(i.buffer.size for i in world.instances.values() if i.buffer is not None)
    reserved = sum(request.max_bytes for request in world.fetches().values())
    assert held + reserved <= 3 * mib + 3 * 300_000


def test_with_the_memory_used_up_an_empty_partition_is_still_fetched_for() -> None:
    world = FetchWorld(2, buffer_memory=1000, max_partition_fetch_bytes=500)
    world.assign(0)
    world.answer(1, data(0, "0+100"))
    assert world.fetches() == {}
    world.assign(1)
    assert asked(world.fetches()[2]) == {1: 0}
    world.wait_out(2)
    assert asked(world.fetches()[2]) == {1: 0}
    assert 1 not in world.fetches()


def test_with_the_memory_used_up_only_those_that_have_nothing_are_fetched_for() -> None:
    world = FetchWorld(7, buffer_memory=900, max_partition_fetch_bytes=500)
    world.assign(0, 3, 6)
    world.answer(1, data(0, "0+8"), data(3, "0+1"))
    assert asked(world.fetches()[1]) == {6: 0}


def test_large_records_are_not_buffered_beyond_a_partitions_share_of_the_memory() -> None:
    world = FetchWorld(4, buffer_memory=100_000, max_partition_fetch_bytes=10_000)
    world.assign(0, 3)
    world.answer(1, data(0, "0+499"))
    assert asked(world.fetches(Channel.FETCH_BUSY)[1]) == {0: 499}
    world.answer(1, data(0, "499+2"))
    assert world.fetches(Channel.FETCH_BUSY) == {}
    assert asked(world.fetches()[1]) == {3: 0}


def test_memory_is_given_back_by_draining_seeking_and_removing() -> None:
    world = FetchWorld(3, buffer_memory=100_000)
    for end in ("drain", "seek", "remove"):
        (instance,) = world.assign(0)
        world.answer(1, data(0, "0+2000"))
        assert world.fetching.buffered_bytes == 200_000
        if end == "drain":
            world.drain(2000)
        elif end == "seek":
            world.place(instance, 5)
        world.fetching.remove(instance)
        assert world.fetching.buffered_bytes == 0
        for send in world.sends(FetchRequest):
            world.fail(send)
        world.advance(30)


# --- pacing --------------------------------------------------------------------------------------


def test_a_partition_that_was_drained_does_not_wait_behind_a_parked_fetch() -> None:
    world = FetchWorld(4)
    world.assign(0, 3)
    world.answer(1, data(0, "0+12000"))
    assert world.fetches(Channel.FETCH_BUSY) == {}, "it has enough"
    assert asked(world.fetches()[1]) == {3: 0}
    while world.fetching.has_deliverable:
        world.drain()
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
        world.answer(1, data(6, ""))
        turns += 1
        assert turns < 10
    assert asked(world.fetches()[1]) == {0: 0, 3: 0}
    world.answer(1)
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


def test_an_answer_that_was_too_large_for_the_link_is_asked_for_in_smaller_parts() -> None:
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
        world.answer(1, data(0, f"{offset}+1"))
    assert world.fetches()[1].max_bytes == 2**20


def test_a_broker_that_answers_at_once_with_nothing_is_not_asked_in_a_hot_loop() -> None:
    world = FetchWorld(1)
    world.assign(0)
    requests = 0
    start = world.now
    while world.now - start < 10:
        if world.fetches():
            requests += 1
            world.answer(1, data(0, "", high_watermark=500))
        world.advance(0.001)
    assert 10 < requests < 60


def test_batches_that_lead_nowhere_do_not_loop_hot() -> None:
    world = FetchWorld(1)
    world.assign(0, position=10)
    for _ in range(20):
        if not world.fetches():
            break
        world.answer(1, data(0, "0+10"))
    assert world.fetches() == {}


def test_planning_again_sends_nothing_and_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
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
        world.answer(send.node.node_id, data(send.node.node_id - 1, "0+5"))
    calls = 0
    world.drain(10)
    assert calls < 20


# --- errors --------------------------------------------------------------------------------------


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
    world.answer(1, refused(0, error), data(3, "5+1"))
    assert asked(world.fetches()[1]) == {3: 6}
    assert world.drain() == {3: [5]}
    world.answer_metadata(topic("orders", {0: 2, 3: 1}, epoch=3))
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
            world.answer(1, refused(0, ErrorCode.not_leader_or_follower))
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
    world.answer_metadata(topic("orders", {0: -1}, epoch=3))
    world.assign(0)
    assert world.fetches() == {}
    assert world.named("waiting to fetch")[0].fields["reason"] == "its leader is unknown"
    world.advance(0.2)
    world.answer_metadata(topic("orders", {0: 3}, epoch=4))
    world.plan()
    assert asked(world.fetches()[3]) == {0: 0}


def test_a_lost_connection_is_tried_again_after_a_backoff_while_other_brokers_go_on() -> None:
    world = FetchWorld(2)
    world.assign(0, 1)
    world.fail(world.fetch_of(1), FailureKind.DISCONNECTED, "reset by peer")
    world.plan()
    assert list(world.fetches()) == [2]
    world.answer(2, data(1, "0+1"))
    assert world.drain() == {1: [0]}
    line = world.named("waiting for a broker to fetch from")[0]
    assert (line.fields["node"], line.fields["reason"]) == ("b1:9092", "reset by peer")
    world.advance(0.2)
    assert 1 in world.fetches()
    world.answer(1, data(0, "0+1"))
    assert len(world.named("fetching again")) == 1


def test_an_offset_out_of_range_is_reported_once_and_waits_for_a_new_position() -> None:
    world = FetchWorld(1)
    (instance,) = world.assign(0, position=5)
    world.answer(1, refused(0, ErrorCode.offset_out_of_range))
    world.advance(60)
    assert world.out_of_range == [instance]
    assert world.fetches() == {}
    world.place(instance, 90)
    world.plan()
    assert asked(world.fetches()[1]) == {0: 90}


def test_what_is_buffered_is_delivered_before_an_offset_out_of_range_is_reported() -> None:
    world = FetchWorld(1)
    world.assign(0)
    world.answer(1, data(0, "0+5"))
    world.answer(1, refused(0, ErrorCode.offset_out_of_range))
    assert world.out_of_range == []
    assert world.drain() == {0: [0, 1, 2, 3, 4]}
    assert asked(world.fetches()[1]) == {0: 5}
    world.answer(1, refused(0, ErrorCode.offset_out_of_range))
    assert len(world.out_of_range) == 1


def test_refused_access_is_reported_once_and_tried_slowly_until_it_is_granted() -> None:
    world = FetchWorld(1)
    world.assign(0)
    for _ in range(3):
        world.answer(1, refused(0, ErrorCode.topic_authorization_failed))
        world.advance(9)
        assert world.fetches() == {}
        world.advance(1)
    assert [type(error) for error in world.errors] == [TopicAuthorizationError]
    world.answer(1, data(0, "0+1"))
    assert world.drain() == {0: [0]}
    world.answer(1, refused(0, ErrorCode.topic_authorization_failed))
    assert len(world.errors) == 2


def test_one_error_tells_of_all_partitions_that_may_not_be_read() -> None:
    world = FetchWorld(6)
    world.assign(0, 3)
    topic_refused = ErrorCode.topic_authorization_failed
    world.answer(1, refused(0, topic_refused), refused(3, topic_refused))
    (error,) = world.errors
    assert isinstance(error, TopicAuthorizationError)
    assert error.partitions == {tp(0), tp(3)}
    assert "grant READ" in str(error)


def test_a_leader_that_moves_is_no_warning_and_one_that_stays_away_is() -> None:
    world = FetchWorld(1)
    world.assign(0)
    world.answer(1, refused(0, ErrorCode.fenced_leader_epoch))
    world.advance(0.2)
    assert world.named("waiting to fetch") == []
    world.answer(1, refused(0, ErrorCode.not_leader_or_follower))
    (line,) = world.named("waiting to fetch")
    assert line.fields["reason"] == "not_leader_or_follower"


def test_an_error_that_will_not_pass_is_reported_and_tried_slowly() -> None:
    world = FetchWorld(1)
    world.assign(0)
    world.answer(1, refused(0, ErrorCode.unsupported_compression_type))
    (error,) = world.errors
    assert isinstance(error, PartitionsError)
    assert "unsupported_compression_type" in str(error)
    world.advance(10)
    assert 1 in world.fetches()


def test_a_partition_that_the_answer_leaves_out_is_asked_for_again() -> None:
    world = FetchWorld(1)
    world.assign(0)
    world.reply(world.fetch_of(1), FetchResponse(error=ErrorCode.none, partitions=()))
    world.plan()
    world.advance(0.2)
    assert 1 in world.fetches()


def test_a_corrupt_batch_is_reported_with_its_offset_while_the_others_flow_and_heals() -> None:
    world = FetchWorld(2)
    (instance, _) = world.assign(0, 1)
    world.answer(1, data(0, "0+3 3+3! 6+3"))
    world.answer(2, data(1, "0+5"))
    assert world.drain() == {0: [0, 1, 2], 1: [0, 1, 2, 3, 4]}
    (error,) = world.errors
    assert isinstance(error, CorruptRecordError)
    assert (error.offset, error.partitions) == (3, frozenset({tp(0)}))
    assert instance.buffer is not None
    assert instance.buffer.position == 3
    assert world.drain() == {}
    for send in world.sends(FetchRequest):
        if send.node == NODES[1]:
            world.answer(1)  # the fetch that was under way when it was noticed
    world.advance(0.2)
    assert asked(world.fetches()[1]) == {0: 3}
    world.answer(1, data(0, "3+3 6+3"))
    assert world.drain() == {0: [3, 4, 5, 6, 7, 8]}
    assert len(world.errors) == 1


def test_an_answer_to_a_fetch_beyond_a_corrupt_batch_is_dropped_with_that_batch() -> None:
    world = FetchWorld(1)
    (instance,) = world.assign(0)
    world.answer(1, data(0, "0+3 3+3! 6+3"))
    assert asked(world.fetches()[1]) == {0: 9}
    assert world.drain() == {0: [0, 1, 2]}
    world.answer(1, data(0, "9+3"))
    assert instance.buffer is not None
    assert (instance.buffer.position, instance.buffer.buffered) == (3, 0)
    assert world.drain() == {}
    world.advance(0.2)
    assert asked(world.fetches()[1]) == {0: 3}
    world.answer(1, data(0, "3+3 6+3 9+3"))
    assert world.drain() == {0: [*range(3, 12)]}


def test_a_batch_that_stays_corrupt_is_fetched_again_later_and_later() -> None:
    world = FetchWorld(1)
    world.assign(0)
    fetched = 0
    start = world.now
    while world.now - start < 60:
        if world.fetches():
            fetched += 1
            world.answer(1, data(0, "0+3!"))
        if world.fetching.has_deliverable:
            assert world.drain() == {}
        world.advance(0.05)
    assert 5 <= len(world.errors) <= 30
    assert fetched <= 30


def test_bytes_that_cannot_be_split_are_reported_once_per_poll() -> None:
    world = FetchWorld(1)
    world.assign(0, position=7)
    for _ in range(3):
        world.answer(1, data(0, "broken"))
        world.advance(5)
    (error,) = world.errors
    assert isinstance(error, CorruptRecordError)
    assert error.offset == 7
    world.drain()
    world.answer(1, data(0, "broken"))
    assert len(world.errors) == 2


def test_bytes_that_cannot_be_split_do_not_hide_the_records_before_them() -> None:
    world = FetchWorld(1)
    world.assign(0)
    world.answer(1, data(0, "0+2"))
    world.answer(1, data(0, "broken"))
    assert world.errors == []
    assert world.drain() == {0: [0, 1]}
    world.advance(1)
    world.answer(1, data(0, "broken"))
    assert len(world.errors) == 1


def test_a_replica_nearer_to_us_is_read_and_left_at_its_first_error() -> None:
    world = FetchWorld(1, client_rack="here")
    world.assign(0)
    assert world.fetches()[1].rack == "here"
    nearer = FetchedPartition(partition=tp(0), error=ErrorCode.none, preferred_read_replica=3)
    world.answer(1, nearer)
    assert list(world.fetches()) == [3]
    world.answer(3, refused(0, ErrorCode.offset_out_of_range))
    world.advance(0.2)
    assert list(world.fetches()) == [1]
    assert world.out_of_range == []


def test_an_unknown_replica_is_not_asked() -> None:
    world = FetchWorld(1)
    world.assign(0)
    unknown = len(BROKERS) + 5
    world.answer(
        1,
        FetchedPartition(partition=tp(0), error=ErrorCode.none, preferred_read_replica=unknown),
    )
    world.advance(1)
    assert list(world.fetches()) == [1]
