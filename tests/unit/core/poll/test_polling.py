"""What a step of the iterator returns, and when: the rules R1 to R10, on a whole core."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from unit.core.scripted_brokers import tp
from unit.core.scripted_group import ScriptedGroup, orders

from asyncrevoke.client.core.io.effects import Send, TimerFired
from asyncrevoke.client.errors import IllegalStateError, PartitionsError
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    FetchRequest,
    FindCoordinatorRequest,
    OffsetCommitRequest,
)

if TYPE_CHECKING:
    from typing import Unpack

    from asyncrevoke.client.config import ConsumerOptions
    from asyncrevoke.client.model import PollResult


def member(*numbers: int, **options: Unpack[ConsumerOptions]) -> ScriptedGroup:
    group = ScriptedGroup(**options)
    group.become_member(*(numbers or (0, 1)))
    group.pulse = ErrorCode.none
    return group


def take_away(group: ScriptedGroup, *kept: int) -> None:
    """A rebalance leaves us only ``kept``."""
    group.rebalance()
    group.rejoin(*kept)


def offsets(result: PollResult | None) -> list[tuple[int, int]]:
    assert result is not None
    return [(record.partition, record.offset) for record in result.records]


def test_the_last_batch_counts_when_the_next_step_starts_and_not_before() -> None:
    group = member(commit_interval=0.5)
    group.produce(0, 3)
    assert offsets(group.poll()) == [(0, 0), (0, 1), (0, 2)]
    group.advance(2.0)
    assert group.count(OffsetCommitRequest) == 0
    assert group.poll() is None
    group.advance(0.6)
    assert group.committing() == {tp(0): 3}


def test_what_is_fetched_next_can_be_left_until_the_records_are_delivered() -> None:
    group = member()
    assert group.poll() is None
    group.produce(0, 3)
    core = group.core

    def fetches() -> int:
        sends = [effect for effect in core.take_effects(group.now) if isinstance(effect, Send)]
        return sum(isinstance(send.message, FetchRequest) for send in sends)

    fetches()
    assert offsets(core.poll(group.now, records_first=True)) == [(0, 0), (0, 1), (0, 2)]
    assert core.owes_plan
    assert not fetches()
    core.plan_owed(group.now)
    assert not core.owes_plan
    assert fetches() == 1
    core.plan_owed(group.now)
    assert core.poll(group.now, records_first=True) is None
    assert not core.owes_plan
    assert not fetches()


def test_a_step_waits_until_there_is_something_to_say() -> None:
    group = member()
    assert group.poll() is None
    assert group.poll() is None
    group.produce(1)
    assert offsets(group.poll()) == [(1, 0)]


def test_a_timeout_ends_a_step_with_an_empty_result() -> None:
    group = member()
    result = group.poll(expired=True)
    assert result is not None
    assert (list(result.records), result.to_be_revoked, result.lost) == ([], orders(), orders())


def test_a_revoke_ends_a_step_at_once_with_the_records_of_the_others() -> None:
    group = member(0, 1)
    assert group.poll() is None
    group.rebalance()
    group.produce(0)
    group.produce(1)
    group.rejoin(0)
    result = group.poll()
    assert offsets(result) == [(0, 0)]
    assert result is not None
    assert result.to_be_revoked == orders(1)


def test_to_be_revoked_is_listed_by_every_step_until_it_is_gone() -> None:
    group = member(0, 1, commit_mode="ack", max_in_flight=10)
    (record,) = group.receive(1)
    take_away(group, 0)
    listed = []
    for _ in range(3):
        group.produce(0)
        listed.append(group.step().to_be_revoked)
    assert listed == [orders(1)] * 3
    group.complete(record)
    assert group.poll() is None
    group.respond_to_commit()
    group.produce(0)
    assert group.step().to_be_revoked == orders()


def test_a_waiting_step_releases_what_drains_meanwhile() -> None:
    """R5: an idle topic would otherwise hold the group for ever."""
    group = member(0, 1, commit_mode="ack")
    (record,) = group.receive(1)
    take_away(group, 0)
    assert group.step().to_be_revoked == orders(1)
    assert group.poll() is None
    group.complete(record)
    group.respond_to_commit()
    assert group.assigned == orders(0)


def test_nothing_is_released_while_the_loop_body_runs() -> None:
    group = member(0, 1, commit_mode="ack")
    (record,) = group.receive(1)
    take_away(group, 0)
    group.step()
    group.complete(record)
    group.advance(5.0)
    assert group.assigned == orders(0, 1)


def test_a_delay_by_hand_is_asked_to_be_renewed_at_every_tick() -> None:
    group = member(
        0, 1, commit_mode="ack", auto_delay_revoke=False, delayed_revoke_poll_interval=0.25
    )
    take_away(group, 0)
    assert group.step().to_be_revoked == orders(1)
    for _ in range(3):
        assert group.core.revocation.delay([tp(1)])
        assert group.poll() is None
        group.advance(0.25)
        assert group.step().to_be_revoked == orders(1)
    assert group.poll() is None
    assert group.assigned == orders(0)


def test_a_tick_whose_timer_fires_too_early_ends_the_step_and_is_not_set_again() -> None:
    group = member(
        0, 1, commit_mode="ack", auto_delay_revoke=False, delayed_revoke_poll_interval=0.25
    )
    take_away(group, 0)
    group.step()
    assert group.core.revocation.delay([tp(1)])
    assert group.poll() is None
    group.now = math.nextafter(group.timers.pop("revoke-tick"), 0.0)
    group.core.handle(group.now, TimerFired("revoke-tick"))
    result = group.poll()
    assert result is not None
    assert result.to_be_revoked == orders(1)
    assert "revoke-tick" not in group.timers


def test_a_cancelled_step_is_no_step_of_its_own() -> None:
    """The delay that was asked for lasts until a step has really returned."""
    group = member(0, 1, commit_mode="ack", auto_delay_revoke=False)
    take_away(group, 0)
    group.step()
    group.core.revocation.delay([tp(1)])
    assert group.poll() is None
    group.core.poller.interrupt(group.now)
    assert group.poll() is None
    assert group.assigned == orders(0, 1)
    group.advance(0.25)
    assert group.step().to_be_revoked == orders(1)


def test_a_partition_that_drains_while_a_step_is_cancelled_is_released_by_the_next_step() -> None:
    group = member(0, 1, commit_mode="ack")
    (record,) = group.receive(1)
    take_away(group, 0)
    assert group.step().to_be_revoked == orders(1)
    assert group.poll() is None
    group.core.poller.interrupt(group.now)
    group.complete(record)
    group.advance(5.0)
    group.respond_to_commit()
    assert group.assigned == orders(0, 1)
    assert group.poll() is None
    assert group.assigned == orders(0)


def test_a_loop_that_was_cancelled_while_it_waited_is_idle_all_the_same() -> None:
    group = member(max_poll_interval=30.0)
    assert group.poll() is None
    group.advance(60.0)
    assert group.assigned == orders(0, 1), "waiting is no idleness"
    group.produce(0)
    group.step()
    assert group.poll() is None
    group.core.poller.interrupt(group.now)
    group.advance(60.0)
    assert group.assigned == orders()


def test_time_inside_the_library_does_not_count_as_idle() -> None:
    group = member(max_poll_interval=30.0)
    group.produce(0)
    group.step()
    group.core.poller.boundary(group.now, inside=True)
    group.advance(60.0)
    group.core.poller.boundary(group.now, inside=False)
    group.advance(29.0)
    assert group.assigned == orders(0, 1)
    group.advance(2.0)
    assert group.assigned == orders()


def test_a_loss_is_reported_once_and_before_records_of_a_new_assignment() -> None:
    group = member(0, 1)
    group.produce(0)
    group.step()
    group.respond_to_beat(ErrorCode.unknown_member_id)
    group.give_id()
    group.rejoin(0, 1)
    group.produce(0)
    result = group.step()
    assert result.lost == orders(0, 1)
    assert result.to_be_revoked == orders()
    group.produce(0)
    assert group.step().lost == orders()


def test_records_of_a_lost_partition_complete_without_effect() -> None:
    group = member(0, 1, commit_mode="ack")
    (record,) = group.receive(0)
    group.respond_to_beat(ErrorCode.unknown_member_id)
    assert not group.core.returned_records.complete(group.now, record)
    group.advance(3.0)
    assert group.count(OffsetCommitRequest) == 0


def test_records_completed_together_commit_and_release_their_partitions() -> None:
    group = member(0, 1, commit_mode="ack")
    records = group.receive(0, 1)
    take_away(group, 0)
    group.step()
    assert group.poll() is None
    group.core.returned_records.complete_all(group.now, records)
    group.run_until_idle()
    assert group.core.assignment.in_flight == 0
    assert group.committing() == {tp(0): 1, tp(1): 1}
    group.respond_to_commit()
    assert group.assigned == orders(0)


def test_records_of_lost_partitions_are_passed_over_when_completed_together() -> None:
    group = member(0, 1, commit_mode="ack")
    records = group.receive(0, 1)
    group.respond_to_beat(ErrorCode.unknown_member_id)
    group.core.returned_records.complete_all(group.now, records)
    group.advance(3.0)
    assert group.core.assignment.in_flight == 0
    assert group.count(OffsetCommitRequest) == 0


def test_no_more_is_returned_than_there_is_room_for() -> None:
    group = member(0, commit_mode="ack", max_in_flight=4)
    group.produce(0, 10)
    first = group.step()
    assert len(first.records) == 4
    assert group.poll() is None
    for record in first.records:
        group.complete(record)
    assert [offset for _, offset in offsets(group.poll())] == [4, 5, 6, 7]


def test_a_little_capacity_is_used_after_a_delay_while_many_records_wait_unstarted() -> None:
    group = member(0, commit_mode="ack", max_in_flight=80, concurrency=16)
    group.produce(0, 200)
    in_flight = list(group.step().records)
    assert len(in_flight) == 80
    group.complete(in_flight.pop(0))
    assert group.poll() is None, "one of 80 is free, and 64 wait for a handler"
    group.advance(0.002)
    assert [offset for _, offset in offsets(group.poll())] == [80]
    for record in in_flight[:10]:
        group.complete(record)
    assert [offset for _, offset in offsets(group.poll())] == list(range(81, 91))


def test_each_free_place_is_used_at_once_while_no_record_waits_unstarted() -> None:
    group = member(0, commit_mode="ack", max_in_flight=80, concurrency=80)
    group.produce(0, 200)
    first, *_ = group.step().records
    group.complete(first)
    assert [offset for _, offset in offsets(group.poll())] == [80]


def test_paused_delivery_names_its_reason() -> None:
    group = member(0, commit_mode="ack", max_in_flight=4)
    group.produce(0, 10)
    stuck, *rest = group.step().records
    for record in rest:
        group.complete(record)
    group.step()
    assert group.poll() is None
    group.advance(6.0)
    (said,) = group.named("max_in_flight reached; delivery paused")
    assert said.fields["oldest"] == {"orders-0": stuck.offset}


def test_an_error_of_one_partition_is_raised_once_and_the_others_continue() -> None:
    group = member(0, 1)
    group.produce(0)
    error = PartitionsError([tp(1)], "unreadable")
    group.core.failed(group.now, error)
    with pytest.raises(PartitionsError, match="unreadable"):
        group.poll()
    assert offsets(group.poll()) == [(0, 0)]


def test_stopping_counts_the_last_batch_with_the_next_step_and_ends() -> None:
    group = member(0)
    group.produce(0, 2)
    group.step()
    group.core.poller.stop(group.now)
    assert not group.core.poller.ended
    assert group.poll() is None
    assert group.core.poller.ended
    group.close()
    assert group.respond_to_commit() == {tp(0): 2}


def test_closing_in_the_loop_body_does_not_count_the_last_batch() -> None:
    group = member(0)
    group.produce(0, 2)
    group.step()
    group.close()
    assert group.count(OffsetCommitRequest) == 0
    assert group.poll() is None
    assert group.core.poller.ended


def test_a_step_that_waits_ends_when_the_consumer_is_stopped() -> None:
    group = member(0)
    assert group.poll() is None
    group.core.poller.stop(group.now)
    assert group.core.poller.ended


def test_a_task_may_not_take_a_record_that_is_counted_by_batch() -> None:
    group = member(0)
    group.produce(0)
    (record,) = group.step().records
    with pytest.raises(IllegalStateError, match="enter the task group before"):
        group.core.returned_records.submit(record)


def test_a_task_group_counts_what_no_task_holds_at_the_next_step() -> None:
    group = member(0, commit_interval=0.5)
    group.core.returned_records.track(one_by_one=True, next_poll_completes=True)
    group.produce(0, 3)
    first, second, _ = group.step().records
    assert group.core.returned_records.submit(second)
    assert group.poll() is None
    group.advance(0.6)
    assert group.respond_to_commit() == {tp(0): first.offset + 1}
    group.complete(second)
    group.advance(0.6)
    assert group.respond_to_commit() == {tp(0): 3}


def test_dropped_records_are_read_again_if_the_revoke_is_withdrawn() -> None:
    group = member(0, 1, commit_mode="ack")
    group.produce(1, 5)
    records = group.step().records
    take_away(group, 0)
    group.step()
    group.core.returned_records.drop_after(group.now, tp(1), records[1].offset)
    assert group.core.assignment.in_flight == 2
    group.rebalance()
    group.rejoin(0, 1)
    group.advance(0.6)  # the fetch for the other partition waits for half a second
    assert offsets(group.step()) == [(1, 2), (1, 3), (1, 4)]


def test_after_the_end_of_the_loop_a_new_revoke_waits_only_for_its_own_tasks() -> None:
    """Handlers that drain at the end must not hold back partitions of which nothing runs."""
    group = member(0, 1, commit_mode="ack")
    group.receive(0)
    group.core.poller.stop(group.now)
    assert group.poll() is None
    group.core.poller.boundary(group.now, inside=True)
    take_away(group, 0)
    assert group.assigned == orders(0)


def test_after_the_end_of_the_loop_a_revoke_still_waits_for_its_tasks() -> None:
    group = member(0, 1, commit_mode="ack")
    (record,) = group.receive(1)
    group.core.poller.stop(group.now)
    assert group.poll() is None
    group.core.poller.boundary(group.now, inside=True)
    take_away(group, 0)
    assert group.assigned == orders(0, 1)
    group.complete(record)
    group.respond_to_commit()
    assert group.assigned == orders(0)


def test_a_group_that_keeps_us_waiting_is_said_again_and_again() -> None:
    """A JoinGroup may be parked for long; a member without partitions must not look dead."""
    group = ScriptedGroup(session_timeout=60.0)
    group.start()
    group.give_id()
    said = "waiting for other members to rejoin, or for the session of a dead member to time out"
    group.advance(25.0)
    assert len(group.named(said)) == 2
    group.rejoin(0)
    group.advance(25.0)
    assert len(group.named(said)) == 2


def test_a_group_without_a_coordinator_does_not_seem_to_wait_for_its_members() -> None:
    group = ScriptedGroup(session_timeout=60.0)
    group.silent.add(FindCoordinatorRequest)
    group.start()
    group.advance(25.0)
    assert not [emit for emit in group.events if emit.event.startswith("waiting for the group: ")]


def test_tasks_may_take_the_records_of_a_batch_that_was_returned_before_their_group() -> None:
    group = member(0, commit_interval=0.5)
    group.produce(0, 3)
    first, second, _ = group.step().records
    group.core.returned_records.track(one_by_one=True, next_poll_completes=True)
    assert group.core.returned_records.submit(second)
    assert group.poll() is None
    group.advance(0.6)
    assert group.respond_to_commit() == {tp(0): first.offset + 1}
    group.complete(second)
    group.advance(0.6)
    assert group.respond_to_commit() == {tp(0): 3}


@pytest.mark.parametrize(
    ("max_poll_records", "max_in_flight", "returned"),
    [
        pytest.param(10, 1000, 40, id="four times max_poll_records"),
        pytest.param(10, 100, 25, id="a quarter of max_in_flight"),
        pytest.param(10, 10, 10, id="max_poll_records"),
        pytest.param(4000, 100_000, 2**20 // 100, id="a mebibyte of records of 100 bytes"),
    ],
)
def test_handlers_take_more_small_records_at_once_than_max_poll_records(
    max_poll_records: int, max_in_flight: int, returned: int
) -> None:
    group = member(0, max_poll_records=max_poll_records, max_in_flight=max_in_flight)
    for _ in range(8):
        group.produce(0, 2000)
    assert len(group.step().records) == max_poll_records
    group.core.poll_for_handlers()
    assert len(group.step().records) == returned
