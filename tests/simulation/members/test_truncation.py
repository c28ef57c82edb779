"""A member whose log is cut by an unclean election (KIP-320): nothing new is skipped."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
from simulation.brokers.faulty_brokers import FaultyBrokers
from simulation.brokers.simulated_classic_group import SimulatedClassicGroup
from simulation.brokers.simulation_clock import SimulationClock
from simulation.cluster.network import Network
from simulation.members.member import CoreObserver, SimulatedMember

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.core.core import Core
from asyncrevoke.client.errors import LogTruncationError, NoOffsetError, PartitionsError
from asyncrevoke.client.model import Record, TopicPartition
from asyncrevoke.testing.fake_kafka.topics import decode_simulated

if TYPE_CHECKING:
    from typing import Unpack

    from simulation.brokers.changing_log import ChangingLog

    from asyncrevoke.client.config import ConsumerOptions

ORDERS = TopicPartition("orders", 0)


class Reader:
    """One member that reads orders-0, without a group's help, from a cluster of three; ``read`` are
    the offsets in the order in which they came."""

    def __init__(self, **options: Unpack[ConsumerOptions]) -> None:
        self.clock = SimulationClock()
        group = SimulatedClassicGroup(self.clock, initial_delay=0.0)
        self.brokers = FaultyBrokers(self.clock, Random(1), 3, group)
        self.network = Network(self.clock, Random(2), self.brokers)
        self.brokers.create_topic("orders", 1)
        self.clients = 0
        self.options: ConsumerOptions = {
            "bootstrap_servers": "broker-0:9092",
            "group_id": "g",
            "auto_offset_reset": "earliest",
            "commit_interval": 0.5,
            "metadata_max_age": 5.0,
            **options,
        }
        self.read: list[int] = []
        self.errors: list[Exception] = []
        self.member = self.start()

    def start(self) -> SimulatedMember:
        config = ConsumerConfig.from_options(**self.options)
        core = Core(config, self.brokers.bootstrap(), decode_simulated)
        core.returned_records.track(one_by_one=False)
        member = SimulatedMember(
            self.clock, self.network, CoreObserver(), self.clients, Random(3), config, core
        )
        self.clients += 1
        core.start(member.now)
        core.subscription_state.assign(member.now, [ORDERS])
        member.take_effects()
        return member

    @property
    def log(self) -> ChangingLog:
        log = self.brokers.topics.log(ORDERS)
        assert log is not None
        return log

    @property
    def committed(self) -> int:
        return self.brokers.group.offsets[ORDERS].offset

    def wait(self, seconds: float) -> None:
        """Poll ten times a second."""
        for _ in range(round(seconds * 10)):
            self.clock.run_until(self.clock.now + 0.1)
            try:
                result = self.member.core.poll(self.member.now, 3, expired=True)
            except PartitionsError as error:
                self.errors.append(error)
                result = None
            self.member.take_effects()
            if result is not None:
                for records in result.by_partition().values():
                    self.read += [record.offset for record in records]

    def wait_for(self, count: int) -> None:
        """Poll until so many records were read."""
        for _ in range(100):
            if len(self.read) >= count:
                return
            self.wait(0.1)
        raise AssertionError(f"{len(self.read)} of {count} records within 10 s")


def test_what_was_written_where_the_log_was_cut_is_read() -> None:
    world = Reader()
    world.log.append(10)
    world.log.append(10)
    world.wait_for(20)
    world.brokers.elect_unclean(ORDERS, 10)
    world.log.append(30)
    world.wait_for(50)
    assert world.read == [*range(20), *range(10, 40)]
    assert world.errors == []


def test_the_commit_goes_back_to_where_the_log_was_cut() -> None:
    world = Reader()
    world.log.append(10)
    world.log.append(10)
    world.wait_for(20)
    world.wait(2)
    world.brokers.elect_unclean(ORDERS, 10)
    world.wait(2)
    world.member.die()
    world.log.append(5)
    world.read.clear()
    world.member = world.start()
    world.wait_for(5)
    assert world.read == [10, 11, 12, 13, 14]


def test_a_successor_finds_that_the_log_was_cut_before_the_committed_offset() -> None:
    world = Reader()
    world.log.append(10)
    world.log.append(10)
    world.wait_for(20)
    world.wait(2)
    world.member.die()
    world.brokers.elect_unclean(ORDERS, 10)
    world.log.append(30)
    world.read.clear()
    world.member = world.start()
    world.wait_for(30)
    assert world.read == [*range(10, 40)]


def test_records_that_were_fetched_and_not_delivered_are_not_delivered_after_a_cut() -> None:
    world = Reader()
    world.log.append(10)
    world.log.append(10)
    world.wait_for(3)
    world.brokers.elect_unclean(ORDERS, 10)
    world.clock.run_until(world.clock.now + 6.0)
    world.log.append(5)
    world.wait(3)
    assert world.read == list(range(15))


@pytest.mark.parametrize("seek", [10, 0])
def test_with_the_policy_error_it_is_raised_once_and_continues_after_a_seek(seek: int) -> None:
    world = Reader(auto_offset_reset="error")
    world.log.append(10)
    world.log.append(10)
    world.wait(2)
    assert [type(error) for error in world.errors] == [NoOffsetError]
    world.errors.clear()
    world.member.core.seek(world.member.now, ORDERS, 0)
    world.wait_for(20)
    world.brokers.elect_unclean(ORDERS, 10)
    world.log.append(5)
    world.wait(8)
    (error,) = world.errors
    assert isinstance(error, LogTruncationError)
    assert (error.position, error.truncated_to) == (20, 10)
    assert len(world.read) == 20
    world.member.core.seek(world.member.now, ORDERS, seek)
    world.member.take_effects()
    world.wait(2)
    assert world.read[20:] == list(range(seek, 15))


def test_an_election_that_loses_nothing_repeats_and_skips_nothing() -> None:
    world = Reader()
    world.log.append(10)
    world.wait_for(10)
    for _ in range(5):
        world.brokers.elect_unclean(ORDERS, world.log.end)
        world.log.append(0, hole=1)
        world.wait(1)
        world.log.append(7)
        world.wait(1)
    world.wait_for(45)
    assert world.read == sorted(set(world.read))
    assert len(world.read) == 45


def test_a_member_that_follows_elections_without_records_repeats_nothing() -> None:
    world = Reader()
    world.log.append(10)
    world.wait_for(10)
    world.wait(1)
    for _ in range(3):
        world.brokers.elect_unclean(ORDERS, world.log.end)
    world.log.append(0, hole=1)
    world.wait(2)
    world.member.die()
    world.brokers.elect_unclean(ORDERS, world.log.end)
    world.member = world.start()
    world.log.append(3)
    world.wait_for(13)
    assert world.read == [*range(10), 11, 12, 13]


class Worker(Reader):
    """Acknowledges records one by one, but for those that the test keeps back."""

    def __init__(self) -> None:
        self.kept: dict[int, Record] = {}
        super().__init__(commit_mode="ack")
        self.member.core.returned_records.track(one_by_one=True)

    def wait(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            self.clock.run_until(self.clock.now + 0.1)
            result = self.member.core.poll(self.member.now, 3, expired=True)
            for record in result.records if result is not None else ():
                self.read.append(record.offset)
                self.kept[record.offset] = record
            self.member.take_effects()

    def finish(self, *offsets: int) -> None:
        core = self.member.core
        core.returned_records.complete_all(
            self.member.now, [self.kept.pop(offset) for offset in offsets]
        )
        self.member.take_effects()

    def give_up_and_take_back(self, offset: int) -> None:
        """A revoke in which one record is not done is announced, and withdrawn."""
        core = self.member.core
        core.subscription_state.assign(self.member.now, [])
        self.wait(0.1)
        core.returned_records.abandon_all(self.member.now, [self.kept.pop(offset)])
        core.subscription_state.assign(self.member.now, [ORDERS])
        self.member.take_effects()


def written_in_two_epochs() -> Worker:
    """20 records, all of them delivered."""
    world = Worker()
    world.log.append(10)
    world.wait_for(10)
    world.brokers.elect_unclean(ORDERS, world.log.end)
    world.log.append(5)
    world.log.append(5)
    world.wait_for(20)
    return world


def test_a_cut_beyond_what_is_read_again_is_noticed() -> None:
    world = written_in_two_epochs()
    world.finish(*(offset for offset in range(20) if offset not in (3, 18)))
    world.give_up_and_take_back(3)
    world.brokers.elect_unclean(ORDERS, 15)
    world.log.append(30)
    world.read.clear()
    world.wait(12)
    assert world.read == [3, *range(15, 45)]


def test_records_abandoned_before_a_truncation_are_read_again_and_not_committed_past() -> None:
    world = written_in_two_epochs()
    world.finish(*(offset for offset in range(20) if offset != 3))
    world.member.core.seeking.pause(world.member.now, [ORDERS])
    world.member.core.returned_records.abandon_all(world.member.now, [world.kept.pop(3)])
    world.member.core.seeking.resume(world.member.now, [ORDERS])
    world.brokers.elect_unclean(ORDERS, 15)
    world.log.append(5)
    world.read.clear()
    world.wait(12)
    assert world.read == [3, *range(15, 20)]


def test_a_record_that_is_being_processed_is_not_committed_past_after_a_cut() -> None:
    world = written_in_two_epochs()
    world.finish(*(offset for offset in range(20) if offset != 3))
    world.brokers.elect_unclean(ORDERS, 15)
    world.wait(12)
    committed = world.brokers.group.offsets[ORDERS]
    assert committed.offset == 3


def test_records_before_a_truncation_that_are_being_processed_are_not_delivered_again() -> None:
    world = written_in_two_epochs()
    world.finish(*(offset for offset in range(20) if offset not in {3, 12, 18}))
    world.read.clear()
    world.brokers.elect_unclean(ORDERS, 15)
    world.log.append(5)
    world.wait(12)
    assert world.read == [15, 16, 17, 18, 19]
    assert world.committed == 3
    world.finish(3, 12)
    world.wait(2)
    assert world.committed == 15
    world.finish(*range(15, 20))
    world.wait(2)
    assert world.committed == 20


def test_completing_a_record_that_the_log_has_lost_completes_no_other_record() -> None:
    world = written_in_two_epochs()
    lost = world.kept[17]
    world.finish(*(offset for offset in range(20) if offset not in {3, 17}))
    world.brokers.elect_unclean(ORDERS, 15)
    world.log.append(5)
    world.wait(12)
    world.finish(15, 16)
    world.member.core.returned_records.complete(world.member.now, lost)
    world.finish(3)
    world.wait(2)
    assert world.committed == 17
    assert world.member.core.assignment.in_flight == 3
    world.finish(17, 18, 19)
    world.wait(2)
    assert world.committed == 20
    assert world.member.core.assignment.in_flight == 0


def test_a_partition_is_released_when_the_records_that_the_log_has_lost_have_ended() -> None:
    world = written_in_two_epochs()
    lost = world.kept.pop(17)
    world.finish(*(offset for offset in range(20) if offset not in {3, 17}))
    world.brokers.elect_unclean(ORDERS, 15)
    world.wait(12)
    core = world.member.core
    core.subscription_state.assign(world.member.now, [])
    world.finish(3)
    world.wait(2)
    assert core.assignment.partitions() == {ORDERS}
    core.returned_records.complete(world.member.now, lost)
    world.wait(2)
    assert core.assignment.partitions() == frozenset()
    assert world.committed == 15


def test_two_truncations_while_records_of_three_logs_are_being_processed() -> None:
    world = written_in_two_epochs()
    world.finish(*(offset for offset in range(20) if offset not in {3, 12, 18}))
    lost = [world.kept.pop(18)]
    world.brokers.elect_unclean(ORDERS, 15)
    world.log.append(5)
    world.wait(12)
    world.finish(16, 17, 19)
    lost += [world.kept.pop(offset) for offset in (12, 15, 18)]
    world.read.clear()
    world.brokers.elect_unclean(ORDERS, 10)
    world.log.append(10)
    world.wait(12)
    assert world.read == list(range(10, 20))
    core = world.member.core
    assert core.assignment.in_flight == 1 + 4 + 10
    core.returned_records.complete_all(world.member.now, lost)
    assert core.assignment.in_flight == 1 + 10
    world.wait(2)
    assert world.committed == 3
    world.finish(3)
    world.wait(2)
    assert world.committed == 10
    world.finish(*range(10, 20))
    world.wait(2)
    assert world.committed == 20
    assert core.assignment.in_flight == 0


def test_a_successor_of_a_member_whose_log_was_truncated_processes_all_that_is_not_done() -> None:
    world = written_in_two_epochs()
    world.finish(*(offset for offset in range(20) if offset not in {3, 18}))
    world.wait(2)
    world.brokers.elect_unclean(ORDERS, 15)
    world.log.append(5)
    world.wait(12)
    world.finish(15, 17, 18, 19)
    world.wait(2)
    world.member.die()
    world.read.clear()
    world.member = world.start()
    world.member.core.returned_records.track(one_by_one=True)
    world.wait(12)
    assert world.read == [3, 16]


def test_the_part_of_a_batch_that_the_log_has_kept_is_not_delivered_again() -> None:
    world = Reader()
    world.log.append(10)
    world.wait_for(10)
    world.brokers.elect_unclean(ORDERS, world.log.end)
    world.log.append(5)
    world.log.append(5)
    world.clock.run_until(world.clock.now + 6.0)
    world.read.clear()
    result = world.member.core.poll(world.member.now, 10)
    assert result is not None
    assert [record.offset for record in result.records] == list(range(10, 20))
    world.member.take_effects()
    world.brokers.elect_unclean(ORDERS, 15)
    world.log.append(10)
    world.clock.run_until(world.clock.now + 6.0)
    assert world.committed == 10
    world.wait_for(10)
    assert world.read == list(range(15, 25))
    world.wait(2)
    assert world.committed == 25
