"""What is fetched for which partitions, and how it is shared between them."""

from __future__ import annotations

from unit.core.fetch.scripted_fetches import FetchWorld, asked, data, rejected
from unit.core.scripted_environment import tp

from asyncrevoke.client.core.io.effects import Channel
from asyncrevoke.client.core.partition.instance import InstanceTransition
from asyncrevoke.client.core.partition.record_buffer import RecordBuffer
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
)


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


def test_what_was_fetched_is_collected_in_order_and_fetched_further() -> None:
    world = FetchWorld(1)
    (instance,) = world.assign(0)
    assert not world.fetching.collector.is_ready
    world.respond(1, data(0, "0+3 3+2", high_watermark=99))
    assert world.woken == 1
    assert world.fetching.collector.is_ready
    assert (instance.high_watermark, instance.last_stable_offset, instance.log_start) == (99, 98, 0)
    assert asked(world.fetches()[1]) == {0: 5}
    assert world.collect(4) == {0: [0, 1, 2, 3]}
    assert world.collect() == {0: [4]}
    assert not world.fetching.collector.is_ready
    assert instance.tracker is not None
    assert instance.tracker.position == 0, "collecting moves the buffers and nothing else"


def test_nothing_is_fetched_from_the_end_of_a_range_on() -> None:
    world = FetchWorld(1)
    (instance,) = world.assign(0)
    instance.set_fetch_end(5)
    world.respond(1, data(0, "0+3", high_watermark=99))
    assert asked(world.fetches()[1]) == {0: 3}
    world.respond(1, data(0, "3+4", high_watermark=99))
    assert world.fetches() == {}, "no fetch waits at the broker for what nobody reads"
    assert world.collect() == {0: [0, 1, 2, 3, 4, 5, 6]}
    assert world.fetches() == {}


def test_a_poll_is_shared_fairly_between_partitions() -> None:
    world = FetchWorld(3)
    world.assign(0, 1, 2)
    world.respond(1, data(0, "0+1000"))
    world.respond(2, data(1, "0+20"))
    world.respond(3, data(2, "0+1000"))
    assert {n: len(offsets) for n, offsets in world.collect(300).items()} == {0: 140, 1: 20, 2: 140}


def test_between_the_water_marks_nothing_is_fetched() -> None:
    # Two polls of 10 for one partition; small responses, so that only records count.
    world = FetchWorld(1, max_poll_records=10, max_partition_fetch_bytes=200)
    world.assign(0)
    world.respond(1, data(0, "0+15"))
    assert asked(world.fetches()[1]) == {0: 15}, "still filling up to the high water mark"
    world.respond(1, data(0, "15+25"))
    assert world.fetches() == {}
    world.collect(15)
    assert world.fetches() == {}, "25 are left, and the low water mark is 20"
    world.collect(6)
    assert asked(world.fetches()[1]) == {0: 40}


def test_the_next_fetch_is_sent_while_half_of_the_last_response_is_left() -> None:
    world = FetchWorld(1, max_poll_records=10, max_partition_fetch_bytes=10_000)
    world.assign(0)
    world.respond(1, data(0, "0+100"))
    assert world.fetches() == {}
    # A batch is held until its last record is taken.
    world.collect(10)
    assert world.fetches() == {}
    world.collect(85)
    assert len(world.fetches()) == 1


def test_with_more_partitions_each_buffers_less() -> None:
    world = FetchWorld(3, max_poll_records=30, max_partition_fetch_bytes=200)
    world.assign(0, 1, 2)
    # The quiet ones need no share, but for the next of them that gets something.
    world.respond(1, data(0, "0+60"))
    world.respond(2, data(1, "0+60"))
    world.respond(3, data(2, "0+40"))
    assert world.fetches() == {}
    world.collect(3 * 19)
    assert 3 not in world.fetches()
    world.collect(6)
    assert 3 in world.fetches()


def test_busy_partitions_leave_the_long_poll_to_the_quiet_ones() -> None:
    world = FetchWorld(10)
    world.assign(0, 3, 6, 9)
    assert list(asked(world.fetches()[1])) == [0, 3, 6, 9]
    world.respond(1, data(0, "0+1"))
    assert list(asked(world.fetches()[1])) == [3, 6, 9]
    assert asked(world.fetches(Channel.FETCH_BUSY)[1]) == {0: 1}
    world.respond(1, data(0, "1+1"))
    assert asked(world.fetches(Channel.FETCH_BUSY)[1]) == {0: 2}
    assert list(asked(world.fetches()[1])) == [3, 6, 9], "it is parked all the while"


def test_what_a_waiting_poll_collects_is_asked_for_with_the_others_in_one_fetch() -> None:
    world = FetchWorld(10)
    world.is_poll_waiting = True
    world.assign(0, 3, 6, 9)
    world.respond(1, data(0, "0+1"))
    assert world.fetches() == {}
    world.fetching.polled()
    assert world.collect() == {0: [0]}
    assert asked(world.fetches()[1]) == {3: 0, 6: 0, 9: 0, 0: 1}
    assert world.fetches(Channel.FETCH_BUSY) == {}


def test_a_poll_that_waits_and_does_not_come_holds_fetches_back_for_a_moment_only() -> None:
    world = FetchWorld(10)
    world.is_poll_waiting = True
    world.assign(0, 3)
    world.respond(1, data(0, "0+1"))
    assert world.fetches() == {}
    world.advance(0.006)
    assert 3 in asked(world.fetches()[1])


def test_a_response_without_records_is_followed_at_once_though_a_poll_waits() -> None:
    world = FetchWorld(3)
    world.is_poll_waiting = True
    world.assign(0)
    world.wait_out(1)
    assert asked(world.fetches()[1]) == {0: 0}


def test_many_quiet_partitions_are_not_listed_again_for_a_poll_that_waits() -> None:
    world = FetchWorld(3 * 33)
    world.is_poll_waiting = True
    world.assign(*range(0, 3 * 33, 3))
    world.respond(1, data(0, "0+1"))
    world.fetching.polled()
    world.collect()
    assert asked(world.fetches(Channel.FETCH_BUSY)[1]) == {0: 1}
    assert 0 not in asked(world.fetches()[1])


def test_partitions_that_got_nothing_come_first_in_the_next_fetch() -> None:
    world = FetchWorld(10)
    world.assign(0, 3, 6, 9)
    world.respond(1, data(0, "0+1"))
    world.respond(1, data(3, "0+1"))
    assert list(asked(world.fetches()[1])) == [6, 9, 3]
    world.respond(1, data(6, "0+1"))
    assert list(asked(world.fetches()[1])) == [9, 3, 6]


def test_a_stale_response_is_discarded_after_a_seek() -> None:
    world = FetchWorld(1)
    (instance,) = world.assign(0)
    world.place(instance, 50)
    world.plan()
    world.respond(1, data(0, "0+3"))
    assert world.collect() == {}
    assert asked(world.fetches()[1]) == {0: 50}


def test_a_stale_response_is_discarded_when_only_the_buffer_was_replaced() -> None:
    world = FetchWorld(1)
    (instance,) = world.assign(0)
    assert instance.tracker is not None
    instance.buffer = RecordBuffer(instance.partition, instance.tracker.tracker_id, 0)
    world.fetching.add(instance)
    world.respond(1, data(0, "0+3"))
    assert world.collect() == {}


def test_nothing_is_kept_or_delivered_of_a_partition_that_is_being_revoked() -> None:
    world = FetchWorld(1)
    (instance,) = world.assign(0)
    world.respond(1, data(0, "0+3"))
    instance.transition(InstanceTransition.REVOKE)
    world.respond(1, data(0, "3+3"))
    assert not world.fetching.collector.is_ready
    assert world.collect() == {}
    assert world.fetches() == {}
    instance.transition(InstanceTransition.WITHDRAW)
    world.advance(0.1)
    world.plan()
    assert world.collect() == {0: [0, 1, 2]}
    assert asked(world.fetches()[1]) == {0: 3}


def test_an_error_for_a_former_position_is_ignored() -> None:
    world = FetchWorld(1)
    (instance,) = world.assign(0)
    world.place(instance, 50)
    world.respond(1, rejected(0, ErrorCode.offset_out_of_range))
    assert world.out_of_range == []
    assert asked(world.fetches()[1]) == {0: 50}


def test_a_response_for_a_partition_that_is_gone_is_ignored() -> None:
    world = FetchWorld(1)
    (instance,) = world.assign(0)
    world.fetching.remove(instance)
    world.respond(1, data(0, "0+3"))
    assert world.collect() == {}
    assert world.fetches() == {}


def test_a_paused_partition_keeps_its_data_and_is_not_fetched() -> None:
    world = FetchWorld(1)
    (instance,) = world.assign(0)
    instance.paused = True
    world.respond(1, data(0, "0+3"))
    assert not world.fetching.collector.is_ready
    assert world.collect() == {}
    assert world.fetches() == {}
    instance.paused = False
    world.fetching.add(instance)
    assert world.collect() == {0: [0, 1, 2]}
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
    world.respond(1, data(0, ""))
    world.advance(1)
    assert "fetching" not in world.timers


def test_no_more_is_taken_than_there_is_room_for() -> None:
    world = FetchWorld(2)
    world.capacity = {tp(0): 3, tp(1): 500}
    world.assign(0, 1)
    world.respond(1, data(0, "0+100"))
    world.respond(2, data(1, "0+100"))
    assert {n: len(offsets) for n, offsets in world.collect(50).items()} == {0: 3, 1: 47}
