"""Lifespans of partitions in the core: what delivery and a release wait for."""

from __future__ import annotations

from unit.core.partition.test_revocation import Round

from asyncrevoke.client.core.io.effects import EnterLifespan, ExitLifespan, LoseLifespan
from asyncrevoke.client.core.partition.instance import InstanceState, PartitionInstance
from asyncrevoke.client.model import TopicPartition

C = TopicPartition("orders", 2)


class LifespanRound(Round):
    """A round of revocation with one more partition, which has a lifespan."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self.assignment.lifespans.enter_lifespans()
        (self.c,) = self.assignment.add([C])
        self.assignment.set_position(self.c, 7)

    def enter(self) -> None:
        self.assignment.lifespans.entered(self.c.instance_id)

    def exit(self) -> None:
        self.assignment.lifespans.exited(self.c.instance_id)
        self.revocation.progress(0.0)

    def announce_and_poll(self) -> None:
        self.revocation.begin_poll(0.0)
        self.revocation.announce()
        self.revocation.begin_poll(0.0)

    def asked(self) -> list[object]:
        kinds = EnterLifespan | ExitLifespan | LoseLifespan
        return [each for each in self.outbox.take() if isinstance(each, kinds)]


def exit_of(instance: PartitionInstance) -> ExitLifespan:
    return ExitLifespan(instance.instance_id, True)


def test_nothing_is_delivered_before_the_lifespan_is_entered() -> None:
    lives = LifespanRound()
    assert lives.asked() == [EnterLifespan(lives.c.instance_id, C, 7)]
    assert lives.c.is_blocked
    lives.enter()
    assert not lives.c.is_blocked


def test_delivery_waits_for_the_listener_and_for_the_lifespan() -> None:
    lives = Round()
    lives.assignment.lifespans.enter_lifespans()
    lives.assignment.lifespans.await_listener()
    (instance,) = lives.assignment.add([C])
    lives.assignment.set_position(instance, 0)
    lives.assignment.lifespans.entered(instance.instance_id)
    assert instance.is_blocked
    lives.assignment.lifespans.listener_called(instance.instance_id)
    assert not instance.is_blocked


def test_a_release_waits_for_records_then_for_the_exit_then_for_the_commit() -> None:
    lives = LifespanRound()
    lives.enter()
    lives.deliver(lives.c)
    lives.request(lives.c)
    lives.asked()
    lives.announce_and_poll()
    assert lives.asked() == []
    lives.complete(lives.c, 7)
    assert lives.asked() == [exit_of(lives.c)]
    assert lives.state(lives.c) is not InstanceState.COMMITTING
    lives.owed.add(lives.c)
    lives.exit()
    assert lives.state(lives.c) is InstanceState.COMMITTING
    lives.owed.clear()
    lives.revocation.progress(0.0)
    assert lives.state(lives.c) is InstanceState.RELEASED
    assert lives.asked() == []


def test_a_revocation_stops_the_entry_at_once() -> None:
    lives = LifespanRound()
    lives.asked()
    lives.request(lives.c)
    assert lives.asked() == [exit_of(lives.c)]
    lives.exit()
    lives.announce_and_poll()
    assert lives.state(lives.c) is InstanceState.RELEASED


def test_a_partition_whose_lifespan_exits_is_released_though_its_revocation_is_withdrawn() -> None:
    lives = LifespanRound()
    lives.enter()
    lives.request(lives.c)
    lives.announce_and_poll()
    assert not lives.revocation.withdraw(lives.c)
    lives.exit()
    assert lives.state(lives.c) is InstanceState.RELEASED


def test_a_lifespan_that_does_not_exit_is_lost_at_the_deadline_without_a_commit() -> None:
    lives = LifespanRound()
    lives.enter()
    lives.request(lives.c, deadline=60.0)
    lives.announce_and_poll()
    lives.owed.add(lives.c)
    flushes = lives.flushes
    lives.asked()
    lives.revocation._deadline_near(59.4)
    assert lives.state(lives.c) is InstanceState.LOST
    assert lives.flushes == flushes
    assert lives.asked() == [LoseLifespan(lives.c.instance_id)]


def test_a_partition_whose_exit_has_failed_is_lost_without_a_commit() -> None:
    lives = LifespanRound()
    lives.enter()
    lives.request(lives.c)
    lives.announce_and_poll()
    lives.owed.add(lives.c)
    flushes = lives.flushes
    assert lives.assignment.lifespans.exited(lives.c.instance_id) is lives.c
    lives.revocation.lifespan_failed(0.0, lives.c, "its lifespan failed")
    assert lives.state(lives.c) is InstanceState.LOST
    assert lives.flushes == flushes


def test_events_for_an_instance_that_has_ended_are_ignored() -> None:
    lives = LifespanRound()
    lives.revocation.lose(0.0, [lives.c], "membership lost")
    known = lives.assignment.lifespans
    assert known.entered(lives.c.instance_id) is None
    assert known.exited(lives.c.instance_id) is None
    assert known.listener_called(lives.c.instance_id) is None
