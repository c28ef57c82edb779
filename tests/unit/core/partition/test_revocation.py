"""Rounds of revocation: announced, delayed, withdrawn, overdue, and their barrier."""

from __future__ import annotations

import pytest
from unit.core.ignored_reactions import IgnoredPartitions

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.core.io.effects import Notify, NotifyKind, SetTimer
from asyncrevoke.client.core.io.outbox import Outbox
from asyncrevoke.client.core.partition.assignment import Assignment
from asyncrevoke.client.core.partition.instance import InstanceState, PartitionInstance
from asyncrevoke.client.core.partition.revocation import Revocation
from asyncrevoke.client.model import Record, TopicPartition

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Round(IgnoredPartitions):
    """A revocation with two active partitions; everything is acknowledged unless said otherwise."""

    def __init__(self, **options: object) -> None:
        self.outbox = Outbox()
        self.assignment = Assignment(self.outbox, self)
        config = ConsumerConfig.from_options(group_id="billing", **options)
        self.revocation = Revocation(self.outbox, config, self.assignment, self)
        self.owed: set[PartitionInstance] = set()
        self.flushes = 0
        self.a, self.b = self.assignment.add([A, B])
        for instance in (self.a, self.b):
            self.assignment.set_position(instance, 0)

    def state(self, instance: PartitionInstance) -> InstanceState:
        return instance.state

    def is_committed(self, instance: PartitionInstance) -> bool:
        return instance not in self.owed

    def commit_now(self, now: float) -> None:
        self.flushes += 1

    def deliver(self, instance: PartitionInstance, count: int = 1) -> list[Record]:
        assert instance.tracker is not None
        first = instance.tracker.position
        records = [
            Record(*instance.partition, offset, 0, 0, None, b"", (), instance.tracker.tracker_id)
            for offset in range(first, first + count)
        ]
        instance.tracker.deliver(records, first + count, 0)
        self.assignment.in_flight += count
        return records

    def complete(self, instance: PartitionInstance, offset: int) -> None:
        assert instance.tracker is not None
        instance.tracker.complete(offset)
        self.assignment.in_flight -= 1
        self.revocation.progress(0.0)

    def request(self, *instances: PartitionInstance, deadline: float | None = None) -> None:
        self.revocation.request(0.0, instances, deadline)

    def poll(self, now: float = 0.0) -> frozenset[TopicPartition]:
        """A whole poll: it starts, and returns at once."""
        self.revocation.begin_poll(now)
        return self.revocation.announce()


def test_a_revoke_is_announced_by_one_poll_and_completed_by_the_next() -> None:
    round_ = Round()
    round_.revocation.begin_poll(0.0)
    round_.request(round_.a)
    assert round_.revocation.has_news
    assert round_.revocation.announce() == {A}
    assert round_.state(round_.a) is InstanceState.ANNOUNCED
    assert round_.poll() == frozenset()
    assert round_.state(round_.a) is InstanceState.RELEASED
    assert round_.state(round_.b) is InstanceState.ACTIVE


def test_a_revoke_requested_between_polls_is_not_completed_by_the_one_that_announces_it() -> None:
    round_ = Round()
    round_.request(round_.a)
    assert round_.poll() == {A}
    assert round_.state(round_.a) is InstanceState.ANNOUNCED


def test_work_in_flight_delays_by_itself_and_stays_listed() -> None:
    round_ = Round()
    round_.deliver(round_.a)
    round_.request(round_.a)
    assert [round_.poll() for _ in range(3)] == [{A}, {A}, {A}]
    assert not round_.revocation.at_barrier


def test_a_parked_poll_releases_what_drains_meanwhile() -> None:
    round_ = Round()
    (record,) = round_.deliver(round_.a)
    round_.request(round_.a)
    round_.poll()
    round_.revocation.begin_poll(0.0)
    round_.complete(round_.a, record.offset)
    assert round_.state(round_.a) is InstanceState.RELEASED


def test_nothing_is_released_while_the_user_holds_the_batch() -> None:
    round_ = Round()
    (record,) = round_.deliver(round_.a)
    round_.request(round_.a)
    round_.poll()
    round_.complete(round_.a, record.offset)
    assert round_.state(round_.a) is InstanceState.ANNOUNCED
    round_.revocation.begin_poll(0.0)
    assert round_.state(round_.a) is InstanceState.RELEASED


def test_without_auto_delay_work_in_flight_holds_nothing() -> None:
    round_ = Round(commit_mode="ack", auto_delay_revoke=False)
    round_.deliver(round_.a)
    round_.request(round_.a)
    round_.poll()
    round_.poll()
    assert round_.state(round_.a) is InstanceState.RELEASED


def test_a_delay_by_hand_lasts_one_poll() -> None:
    round_ = Round(commit_mode="ack", auto_delay_revoke=False)
    round_.request(round_.a)
    assert round_.poll() == {A}
    assert round_.revocation.delay([A])
    assert round_.poll() == {A}
    assert round_.poll() == frozenset()
    assert round_.state(round_.a) is InstanceState.RELEASED


def test_release_waits_for_the_commit_to_be_acknowledged() -> None:
    round_ = Round()
    round_.owed.add(round_.a)
    round_.request(round_.a)
    round_.poll()
    round_.poll()
    assert round_.state(round_.a) is InstanceState.COMMITTING
    assert round_.flushes == 1
    round_.revocation.progress(0.0)
    assert round_.state(round_.a) is InstanceState.COMMITTING
    round_.owed.clear()
    round_.revocation.progress(0.0)
    assert round_.state(round_.a) is InstanceState.RELEASED


def test_delaying_what_was_never_announced_names_what_was() -> None:
    round_ = Round()
    round_.request(round_.a)
    round_.poll()
    with pytest.raises(ValueError, match=r"orders-1; announced so far: orders-0"):
        round_.revocation.delay([A, B])
    assert round_.state(round_.a) is InstanceState.ANNOUNCED, "nothing was delayed"


def test_delaying_what_was_lost_is_denied_and_the_rest_is_delayed() -> None:
    round_ = Round()
    round_.request(round_.a, round_.b)
    round_.poll()
    round_.revocation.lose(0.0, [round_.a], "evicted")
    assert not round_.revocation.delay([A, B])
    assert round_.state(round_.b) is InstanceState.DELAYED


def test_delaying_what_was_withdrawn_is_granted() -> None:
    round_ = Round()
    round_.request(round_.a)
    round_.poll()
    assert round_.revocation.withdraw(round_.a)
    assert round_.revocation.delay([A])
    assert round_.state(round_.a) is InstanceState.ACTIVE


def test_a_withdrawn_revoke_keeps_position_and_buffer() -> None:
    round_ = Round()
    tracker, buffer = round_.a.tracker, round_.a.buffer
    round_.request(round_.a)
    assert round_.revocation.withdraw(round_.a)
    assert round_.state(round_.a) is InstanceState.ACTIVE
    assert round_.a.tracker is tracker
    assert round_.a.buffer is buffer


def test_what_the_user_may_have_cancelled_is_not_resumed() -> None:
    round_ = Round(commit_mode="ack", auto_delay_revoke=False)
    round_.request(round_.a)
    round_.poll()
    assert not round_.revocation.withdraw(round_.a)
    round_.poll()
    assert round_.state(round_.a) is InstanceState.RELEASED


def test_a_withdrawn_release_is_not_awaited_until_it_is_revoked_again() -> None:
    round_ = Round(commit_mode="ack", auto_delay_revoke=False)
    round_.deliver(round_.a)
    round_.owed.add(round_.a)
    round_.request(round_.a, deadline=10.0)
    round_.poll()
    round_.revocation._deadline_near(9.0)
    assert not round_.revocation.withdraw(round_.a)
    round_.revocation._deadline_near(20.0)
    round_.revocation.progress(20.0)
    assert round_.state(round_.a) is InstanceState.ANNOUNCED, "its work goes on"

    round_.request(round_.a, deadline=30.0)
    round_.revocation._deadline_near(29.9)
    assert round_.state(round_.a) is InstanceState.LOST


def test_what_was_overdue_is_resumed_as_well() -> None:
    round_ = Round()
    round_.deliver(round_.a)
    round_.owed.add(round_.a)
    round_.request(round_.a, deadline=10.0)
    round_.revocation._deadline_near(9.0)
    assert round_.revocation.withdraw(round_.a)
    round_.revocation._deadline_near(20.0)
    assert round_.state(round_.a) is InstanceState.ACTIVE


def test_what_the_user_has_delayed_is_resumed() -> None:
    round_ = Round(commit_mode="ack", auto_delay_revoke=False)
    round_.request(round_.a)
    round_.poll()
    round_.revocation.delay([A])
    assert round_.revocation.withdraw(round_.a)


def test_an_overdue_partition_is_lost_alone_after_a_last_commit() -> None:
    round_ = Round()
    round_.deliver(round_.a)
    round_.deliver(round_.b)
    round_.owed.add(round_.a)
    round_.request(round_.a, deadline=10.0)
    round_.request(round_.b, deadline=60.0)
    round_.poll()
    timer = [e for e in round_.outbox.take() if isinstance(e, SetTimer)][-1]
    assert timer.at == pytest.approx(9.0)
    round_.revocation._deadline_near(9.0)
    assert round_.flushes == 1
    assert round_.state(round_.a) is InstanceState.ANNOUNCED, "its last commit may still arrive"
    round_.revocation._deadline_near(9.5)
    assert round_.state(round_.a) is InstanceState.LOST
    assert round_.state(round_.b) is InstanceState.ANNOUNCED
    assert list(round_.assignment.lost) == [A]


def test_an_overdue_partition_is_released_if_its_last_commit_covers_all_of_it() -> None:
    round_ = Round()
    (record,) = round_.deliver(round_.a)
    round_.owed.add(round_.a)
    round_.request(round_.a, deadline=10.0)
    round_.poll()
    round_.revocation.begin_poll(1.0)
    round_.revocation._deadline_near(9.0)
    round_.complete(round_.a, record.offset)
    assert round_.state(round_.a) is InstanceState.COMMITTING
    assert round_.flushes == 2, "the first one was sent before it was done"
    round_.owed.clear()
    round_.revocation.progress(9.4)
    assert round_.state(round_.a) is InstanceState.RELEASED
    assert not round_.assignment.lost


def test_what_is_done_of_an_overdue_partition_is_committed_until_it_is_lost() -> None:
    round_ = Round()
    first, _ = round_.deliver(round_.a, 2)
    round_.owed.add(round_.a)
    round_.request(round_.a, deadline=10.0)
    round_.poll()
    round_.revocation.begin_poll(1.0)
    round_.revocation._deadline_near(9.0)
    round_.complete(round_.a, first.offset)
    assert round_.flushes == 2
    assert round_.state(round_.a) is InstanceState.ANNOUNCED
    round_.owed.clear()
    round_.revocation.progress(9.2)
    assert round_.state(round_.a) is InstanceState.LOST


def test_an_overdue_partition_that_has_drained_in_the_loop_body_is_not_released() -> None:
    round_ = Round()
    (record,) = round_.deliver(round_.a)
    round_.owed.add(round_.a)
    round_.request(round_.a, deadline=10.0)
    round_.poll()
    round_.revocation._deadline_near(9.0)
    round_.complete(round_.a, record.offset)
    round_.owed.clear()
    round_.revocation.progress(9.2)
    assert round_.state(round_.a) is InstanceState.LOST


def test_the_barrier_waits_for_the_last_of_overlapping_rounds() -> None:
    round_ = Round()
    round_.request(round_.a)
    round_.poll()
    round_.request(round_.b)
    round_.revocation.take_barrier_request()
    round_.poll()
    assert round_.revocation.take_barrier_request()
    assert not round_.revocation.at_barrier
    round_.poll()
    assert round_.revocation.at_barrier


def test_leaving_announces_nothing_and_does_not_wait_for_the_last_batch() -> None:
    round_ = Round()
    round_.deliver(round_.a)
    round_.revocation.leave(0.0, wait_for_tasks=True)
    assert len(round_.assignment) == 0


def test_leaving_waits_for_tasks_unless_disabled() -> None:
    round_ = Round()
    (record,) = round_.deliver(round_.a)
    assert round_.a.tracker is not None
    round_.a.tracker.submit(record.offset)
    round_.revocation.leave(0.0, wait_for_tasks=True)
    assert round_.assignment.partitions() == {A}
    round_.revocation.leave(1.0, wait_for_tasks=False)
    assert round_.state(round_.a) is InstanceState.RELEASED


def test_the_listener_gets_losses_first_and_nothing_twice() -> None:
    round_ = Round()
    round_.assignment.flush_notices()
    round_.outbox.take()
    round_.request(round_.a)
    round_.poll()
    round_.poll()
    round_.revocation.lose(0.0, [round_.b], "evicted")
    round_.assignment.flush_notices()
    round_.assignment.flush_notices()
    notices = [e for e in round_.outbox.take() if isinstance(e, Notify)]
    assert notices == [
        Notify(NotifyKind.LOST, frozenset([B]), released={B: 0}),
        Notify(NotifyKind.REVOKED, frozenset([A]), released={A: 0}),
    ]
