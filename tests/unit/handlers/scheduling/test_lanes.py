"""Ordered lanes: what may run next."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Literal, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.handlers.scripted_source import ORDERS, OTHERS, busy_lanes, record

from asyncrevoke.client.model import Record, TopicPartition
from asyncrevoke.handlers.scheduling.lanes import LaneQueue

if TYPE_CHECKING:
    from asyncrevoke.handlers.policy.batch import Item
    from asyncrevoke.handlers.scheduling.partition_lanes import Entry

Lanes: TypeAlias = LaneQueue


def drop(lanes: Lanes, partition: TopicPartition, first: int | None = None) -> list[Item]:
    """What a revocation drops if nothing is requeued."""
    beyond = lanes.last_started(partition) + 1
    offset = beyond if first is None else min(beyond, first)
    return lanes.drop_unstarted_from(partition, offset, offset_of, lambda _: False)


def offset_of(item: Item) -> int:
    return item.offset


def take(lanes: Lanes) -> Entry:
    entry = lanes.take()
    assert entry is not None
    return entry


def take_all(lanes: Lanes) -> list[Entry]:
    return list(iter(lanes.take, None))


def offsets(entries: list[Entry]) -> list[int]:
    return [entry[1].offset for entry in entries]


def test_records_of_one_key_are_taken_one_after_another() -> None:
    lanes: Lanes = LaneQueue("key")
    lanes.put(ORDERS, [record(0, b"a"), record(1, b"b"), record(2, b"a")])
    first, second = take_all(lanes)
    assert (first[1].offset, second[1].offset) == (0, 1)
    assert lanes.take() is None
    lanes.free_lane(first)
    assert take(lanes)[1].offset == 2


def test_equal_keys_of_two_partitions_do_not_wait_for_each_other() -> None:
    lanes: Lanes = LaneQueue("key")
    lanes.put(ORDERS, [record(0, b"a")])
    lanes.put(OTHERS, [record(0, b"a", partition=OTHERS)])
    assert len(take_all(lanes)) == 2


def test_null_keys_share_one_lane_per_partition() -> None:
    lanes: Lanes = LaneQueue("key")
    lanes.put(ORDERS, [record(0, None), record(1, None), record(2, b"")])
    lanes.put(OTHERS, [record(7, None, partition=OTHERS)])
    assert offsets(take_all(lanes)) == [0, 7, 2], "partitions take turns"


def test_null_keys_may_opt_out_of_order() -> None:
    lanes: Lanes = LaneQueue("key", "unordered")
    lanes.put(ORDERS, [record(0, None), record(1, None), record(2, b"a"), record(3, b"a")])
    taken = take_all(lanes)
    assert offsets(taken) == [0, 1, 2]
    for entry in taken:
        lanes.free_lane(entry)
    assert take(lanes)[1].offset == 3


def test_a_partition_is_one_lane_whatever_the_keys() -> None:
    lanes: Lanes = LaneQueue("partition")
    lanes.put(ORDERS, [record(0, b"a"), record(1, b"b"), record(2, None)])
    lanes.put(OTHERS, [record(0, b"a", partition=OTHERS)])
    first, _ = take_all(lanes)
    lanes.free_lane(first)
    assert offsets(take_all(lanes)) == [1]


def test_without_order_nothing_waits() -> None:
    lanes: Lanes = LaneQueue(None)
    lanes.put(ORDERS, [record(0), record(1), record(2)])
    assert offsets(take_all(lanes)) == [0, 1, 2]
    assert busy_lanes(lanes) == 0


@pytest.mark.parametrize("order_by", ["key", "partition"])
def test_a_lane_without_entries_is_removed(order_by: Literal["key", "partition"]) -> None:
    lanes: Lanes = LaneQueue(order_by)
    lanes.put(ORDERS, [record(i, b"%d" % (i % 50)) for i in range(200)])
    while (entry := lanes.take()) is not None:
        lanes.free_lane(entry)
    assert (busy_lanes(lanes), lanes.queued, lanes.count_ready(1)) == (0, 0, 0)


def test_records_whose_handlers_never_await_take_no_place_in_a_lane() -> None:
    lanes: Lanes = LaneQueue("key")
    lanes.put(ORDERS, [record(0, b"a"), record(1, b"a"), record(2, b"b")])
    taken: list[Entry] = []
    while (entry := lanes.take()) is not None:
        assert busy_lanes(lanes) == 0
        taken.append(entry)
        lanes.free_lane(entry)
    assert offsets(taken) == [0, 1, 2]


def test_a_record_waits_for_the_one_of_its_key_that_was_taken_before_and_runs() -> None:
    lanes: Lanes = LaneQueue("key")
    lanes.put(ORDERS, [record(0, b"a"), record(1, b"b"), record(2, b"a"), record(3, b"a")])
    first = take(lanes)
    assert offsets([take(lanes)]) == [1]
    assert lanes.take() is None
    lanes.free_lane(first)
    second = take(lanes)
    assert lanes.take() is None
    lanes.free_lane(second)
    assert offsets([second, take(lanes)]) == [2, 3]


@pytest.mark.parametrize("pausing", [False, True])
def test_the_only_started_record_keeps_its_lane_when_it_is_requeued(pausing: bool) -> None:
    lanes: Lanes = LaneQueue("key")
    lanes.put(ORDERS, [record(0, b"a"), record(1, b"a"), record(2, b"b")])
    failed = take(lanes)
    if pausing:
        lanes.pause(ORDERS)
    lanes.requeue(failed)
    lanes.resume(ORDERS)
    again = take(lanes)
    assert offsets([again, take(lanes)]) == [0, 2]
    assert lanes.take() is None
    lanes.free_lane(again)
    assert offsets([take(lanes)]) == [1]


def test_dropping_the_lane_of_the_only_started_record_returns_the_records_behind_it() -> None:
    lanes: Lanes = LaneQueue("key")
    lanes.put(ORDERS, [record(0, b"a"), record(1, b"a"), record(2, b"b"), record(3, b"a")])
    assert [each.offset for each in lanes.drop_lane(take(lanes))] == [1, 3]
    assert (offsets(take_all(lanes)), lanes.queued) == ([2], 0)


def test_the_next_entry_of_a_busy_lane_runs_before_keys_that_were_put_later() -> None:
    lanes: Lanes = LaneQueue("key")
    lanes.put(ORDERS, [record(0, b"hot"), record(1, b"hot")])
    hot = take(lanes)
    lanes.put(ORDERS, [record(2, b"x"), record(3, b"y")])
    lanes.free_lane(hot)
    assert offsets(take_all(lanes)) == [1, 2, 3]


def test_the_next_entry_of_a_busy_lane_runs_after_keys_that_were_put_earlier() -> None:
    lanes: Lanes = LaneQueue("key")
    lanes.put(ORDERS, [record(0, b"hot")])
    hot = take(lanes)
    lanes.put(ORDERS, [record(1, b"x")])
    lanes.put(ORDERS, [record(2, b"hot")])
    lanes.free_lane(hot)
    assert offsets(take_all(lanes)) == [1, 2]


def test_a_revocation_drops_entries_after_the_last_started_offset() -> None:
    lanes: Lanes = LaneQueue("key")
    lanes.put(ORDERS, [record(0, b"a"), record(1, b"a"), record(2, b"b"), record(3, b"a")])
    first, _ = take_all(lanes)  # offsets 0 and 2
    assert sorted(each.offset for each in drop(lanes, ORDERS)) == [3]
    lanes.free_lane(first)
    assert offsets(take_all(lanes)) == [1], "below H, so it runs to its end"


def test_a_revocation_drops_every_entry_if_none_has_started() -> None:
    lanes: Lanes = LaneQueue("key")
    lanes.put(ORDERS, [record(5, b"a"), record(6, b"a"), record(9, b"b")])
    lanes.put(OTHERS, [record(0, b"a", partition=OTHERS)])
    assert sorted(each.offset for each in drop(lanes, ORDERS)) == [5, 6, 9]
    assert [entry[1].topic_partition for entry in take_all(lanes)] == [OTHERS]


def test_a_revocation_counts_entries_that_have_started_and_ended() -> None:
    lanes: Lanes = LaneQueue(None)
    lanes.put(ORDERS, [record(0), record(1)])
    for entry in take_all(lanes):
        lanes.free_lane(entry)
    lanes.put(ORDERS, [record(2), record(3)])
    assert [each.offset for each in drop(lanes, ORDERS)] == [2, 3]
    assert drop(lanes, ORDERS) == []


def test_a_revocation_keeps_entries_from_before_a_seek() -> None:
    lanes: Lanes = LaneQueue("key")
    lanes.put(ORDERS, [record(100, b"a"), record(101, b"a")])
    old = take(lanes)
    lanes.put(ORDERS, [record(0, b"a", tracker_id=2)])
    assert [each.offset for each in drop(lanes, ORDERS)] == [0]
    lanes.free_lane(old)
    assert offsets(take_all(lanes)) == [101]


def test_a_revocation_drops_gaps_from_an_offset_on() -> None:
    lanes: Lanes = LaneQueue("key")
    lanes.put(ORDERS, [record(i, b"b" if i == 6 else b"a") for i in range(9)])
    slow, _ = take_all(lanes)  # offsets 0 and 6
    dropped = drop(lanes, ORDERS, 3)
    assert sorted(each.offset for each in dropped) == [3, 4, 5, 7, 8]
    lanes.free_lane(slow)
    assert offsets(take_all(lanes)) == [1]


def test_a_revocation_keeps_started_entries_that_were_requeued() -> None:
    lanes: Lanes = LaneQueue("key")
    third = record(2, b"a")
    lanes.put(ORDERS, [record(0, b"a"), record(1, b"b"), third])
    failed, _ = take_all(lanes)
    lanes.requeue(failed)
    assert lanes.unstarted(ORDERS, lambda each: each.offset == 0) == [third]
    assert lanes.drop_unstarted_from(ORDERS, 0, offset_of, lambda each: each.offset == 0) == [third]
    assert take(lanes)[1] is failed[1]


@pytest.mark.parametrize("order_by", ["key", "partition", None])
def test_a_record_does_not_wait_behind_the_backlog_of_other_partitions(
    order_by: Literal["key", "partition"] | None,
) -> None:
    lanes: Lanes = LaneQueue(order_by)
    backlogs = [TopicPartition("orders", number) for number in range(6)]
    for partition in backlogs:
        keys = enumerate([b"%d" % key for key in range(300)])
        lanes.put(partition, [record(i, key, partition=partition) for i, key in keys])
    running = [take(lanes) for _ in range(64 if order_by != "partition" else 6)]
    lanes.put(OTHERS, [record(0, b"a", partition=OTHERS)])
    taken: list[Entry] = []
    for entry in running:  # each call ends once
        lanes.turn_ended()
        lanes.free_lane(entry)
        taken.append(take(lanes))
    assert OTHERS in [entry[0].partition for entry in taken][:7]


def test_partitions_alternate_by_chunks_in_a_long_turn_of_the_event_loop() -> None:
    lanes: Lanes = LaneQueue(None)
    for partition in (ORDERS, OTHERS):
        lanes.put(partition, [record(i, b"", partition=partition) for i in range(416)])
    taken = [entry[0].partition for entry in take_all(lanes)]
    assert taken.count(ORDERS) == taken.count(OTHERS) == 416
    changes = [at for at in range(1, 832) if taken[at] != taken[at - 1]]
    assert changes[:64] == list(range(1, 65)), "one by one"
    assert min(b - a for a, b in itertools.pairwise(changes[64:])) == 64


def test_partitions_alternate_by_small_chunks_after_a_turn_in_which_many_have_started() -> None:
    lanes: Lanes = LaneQueue(None)
    for partition in (ORDERS, OTHERS):
        lanes.put(partition, [record(i, b"", partition=partition) for i in range(416)])
    turns: list[list[TopicPartition]] = []
    for count in (128, 64, 64):
        turns.append([take(lanes)[0].partition for _ in range(count)])
        lanes.turn_ended()
    runs = [[len(list(run)) for _, run in itertools.groupby(turn)] for turn in turns]
    assert runs[1] == [16] * 4, "each partition has two turns among the 64 that came later"
    assert runs[2] == [1] * 64, "few have started in the turn before"


def test_during_a_revocation_the_longest_lane_runs_last() -> None:
    """One worker: the lagging key runs, and has most of what is left."""
    lanes: Lanes = LaneQueue("key")
    keys = [b"slow", b"slow", b"slow", b"x", b"y", b"x", b"slow", b"fast"]
    lanes.put(ORDERS, [record(i, key) for i, key in enumerate(keys)])
    entries = [take(lanes) for _ in range(4)]  # slow 0, x 3, y 4, fast 7
    assert offsets(entries) == [0, 3, 4, 7]
    slow, x, y, fast = entries
    assert drop(lanes, ORDERS) == []
    lanes.run_longest_lane_last(ORDERS)
    lanes.free_lane(x)
    lanes.free_lane(slow)
    lanes.free_lane(y)
    lanes.free_lane(fast)
    order: list[int] = []
    while (following := lanes.take()) is not None:
        order.append(following[1].offset)
        lanes.free_lane(following)
    assert order == [5, 1, 2, 6], "the other key, then the lagging one"


def test_during_a_revocation_a_ready_entry_of_the_longest_lane_moves_behind_the_others() -> None:
    lanes: Lanes = LaneQueue("key")
    keys = [b"slow", b"slow", b"slow", b"x", b"y", b"x", b"z"]
    lanes.put(ORDERS, [record(i, key) for i, key in enumerate(keys)])
    slow = take(lanes)
    lanes.requeue(slow)
    lanes.put(ORDERS, [record(9, b"high")])
    taken = take_all(lanes)
    assert offsets(taken) == [0, 3, 4, 6, 9]
    lanes.free_lane(taken[0])  # slow 1 is ready
    drop(lanes, ORDERS)
    lanes.run_longest_lane_last(ORDERS)
    lanes.free_lane(taken[1])  # x 5 is ready
    assert offsets(take_all(lanes)) == [5, 1]


def test_after_a_withdrawn_revocation_lanes_run_in_the_order_of_puts() -> None:
    lanes: Lanes = LaneQueue("key")
    lanes.put(
        ORDERS, [record(i, key) for i, key in enumerate([b"a", b"a", b"a", b"b", b"b", b"c"])]
    )
    taken = take_all(lanes)
    assert drop(lanes, ORDERS) == []
    lanes.run_longest_lane_last(ORDERS)
    lanes.put(ORDERS, [record(6, b"d"), record(7, b"a")])
    for entry in taken:
        lanes.free_lane(entry)
    order: list[int] = []
    while (following := lanes.take()) is not None:
        order.append(following[1].offset)
        lanes.free_lane(following)
    assert sorted(order) == [1, 2, 4, 6, 7]
    assert order.index(1) < order.index(2) < order.index(7)
    assert (busy_lanes(lanes), lanes.queued) == (0, 0)


def test_a_seek_keeps_the_order_of_a_key() -> None:
    lanes: Lanes = LaneQueue("key")
    lanes.put(ORDERS, [record(100, b"a")])
    old = take(lanes)
    lanes.put(ORDERS, [record(0, b"a", tracker_id=2)])
    assert lanes.take() is None
    lanes.free_lane(old)
    assert take(lanes)[1].tracker_id == 2


def test_a_lane_whose_entry_never_ends_stays_busy_until_all_are_dropped() -> None:
    lanes: Lanes = LaneQueue("key")
    lanes.put(ORDERS, [record(0, b"a"), record(1, b"a"), record(2, b"b")])
    take_all(lanes)
    assert lanes.take() is None
    assert [each.offset for each in lanes.drop_all()] == [1]


def test_a_lost_partition_s_entries_are_dropped_and_no_others() -> None:
    lanes: Lanes = LaneQueue("key")
    lanes.put(ORDERS, [record(0, b"a"), record(1, b"a"), record(2, b"b")])
    lanes.put(OTHERS, [record(0, b"a", partition=OTHERS), record(1, b"a", partition=OTHERS)])
    running = take(lanes)
    assert sorted(each.offset for each in lanes.drop_partition(ORDERS)) == [1, 2]
    lanes.free_lane(running)
    assert [entry[1].topic_partition for entry in take_all(lanes)] == [OTHERS]


def test_a_partition_assigned_again_waits_for_running_entries_of_the_same_key() -> None:
    lanes: Lanes = LaneQueue("key")
    lanes.put(ORDERS, [record(0, b"a")])
    cancelled = take(lanes)
    lanes.drop_partition(ORDERS)
    lanes.put(ORDERS, [record(0, b"a", tracker_id=2)])
    assert lanes.take() is None
    lanes.free_lane(cancelled)
    assert take(lanes)[1].tracker_id == 2


def lane_of(each: Item, order_by: str | None, null_keys: str) -> object:
    if order_by is None or (order_by == "key" and each.key is None and null_keys == "unordered"):
        return each.topic, each.partition, each.offset, each.tracker_id
    return each.topic, each.partition, each.key if order_by == "key" else None


@settings(max_examples=150)
@given(st.data())
def test_any_sequence_of_calls_keeps_the_order_and_loses_nothing(data: st.DataObject) -> None:
    order_by: Literal["key", "partition"] | None = data.draw(
        st.sampled_from(["key", "partition", None])
    )
    null_keys: Literal["ordered", "unordered"] = data.draw(
        st.sampled_from(["ordered", "unordered"])
    )
    lanes: Lanes = LaneQueue(order_by, null_keys)
    partitions = [ORDERS, OTHERS, TopicPartition("clicks", 0)]
    next_offset = dict.fromkeys(partitions, 0)
    paused: set[TopicPartition] = set()
    queued: list[Record] = []
    running: list[Entry] = []
    highest: dict[TopicPartition, int] = dict.fromkeys(partitions, -1)

    def started(entry: Entry) -> None:
        mine = lane_of(entry[1], order_by, null_keys)
        assert entry[1].topic_partition not in paused
        same = [each for each in queued if lane_of(each, order_by, null_keys) == mine]
        assert same[0] is entry[1], "the oldest of its lane comes first"
        assert all(lane_of(one[1], order_by, null_keys) != mine for one in running)
        queued.remove(same[0])
        running.append(entry)
        partition = entry[1].topic_partition
        highest[partition] = max(highest[partition], entry[1].offset)

    for _ in range(data.draw(st.integers(1, 40))):
        partition = data.draw(st.sampled_from(partitions))
        actions = ["put", "put", "take", "take", "done", "drain", "lose", "pause", "resume"]
        if partition in paused:
            actions = ["take", "done", "resume", "lose"]  # nothing new comes of it
        match data.draw(st.sampled_from(actions)):
            case "put":
                keys = data.draw(st.lists(st.sampled_from([b"a", b"b", None]), max_size=6))
                begin = next_offset[partition]
                records = [
                    record(begin + 2 * i, key, partition=partition) for i, key in enumerate(keys)
                ]
                next_offset[partition] = begin + 2 * len(keys)
                lanes.put(partition, records)
                queued.extend(records)
            case "take":
                entry = lanes.take()
                if entry is not None:
                    started(entry)
            case "done" if running:
                lanes.free_lane(running.pop(data.draw(st.integers(0, len(running) - 1))))
            case "pause":
                lanes.pause(partition)
                paused.add(partition)
            case "resume":
                lanes.resume(partition)
                paused.discard(partition)
            case "drain":
                first = data.draw(st.none() | st.integers(0, 20))
                expected = [
                    each
                    for each in queued
                    if each.topic_partition == partition
                    and (
                        each.offset > highest[partition]
                        or (first is not None and each.offset >= first)
                    )
                ]
                dropped = sorted(drop(lanes, partition, first), key=lambda each: each.offset)
                assert dropped == expected
                queued = [each for each in queued if each not in dropped]
            case "lose":
                dropped = lanes.drop_partition(partition)
                expected = [each for each in queued if each.topic_partition == partition]
                assert sorted(dropped, key=lambda each: each.offset) == expected
                queued = [each for each in queued if each not in dropped]
            case _:
                pass
        assert lanes.queued == len(queued)
    for partition in sorted(paused):
        lanes.resume(partition)
    paused.clear()
    while running or lanes.count_ready(1):
        if (entry := lanes.take()) is not None:
            started(entry)
        else:
            lanes.free_lane(running.pop())
    assert not queued
    assert busy_lanes(lanes) == 0
