"""Virtual time advances, and no alarm fires before its time."""

from random import Random

import pytest
from simulation.brokers.simulation_clock import SimulationClock
from simulation.cluster.scripted_client import ScriptedCluster
from simulation.members.member import CoreObserver, SimulatedMember

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.core.core import Core
from asyncrevoke.client.core.io.effects import Event, SetTimer
from asyncrevoke.testing.fake_kafka.clock import StandstillError
from asyncrevoke.testing.fake_kafka.topics import decode_simulated


def test_what_turns_in_circles_at_one_moment_is_found() -> None:
    clock = SimulationClock()

    def again() -> None:
        clock.after(0.0, again)

    clock.at(1.5, again)
    with pytest.raises(StandstillError, match=r"alarms at 1\.5000"):
        clock.run_until(2.0)


def test_much_may_happen_at_one_moment_and_the_next_one_has_a_count_of_its_own() -> None:
    clock = SimulationClock()
    for moment in (1.0, 2.0):
        for _ in range(60_000):
            clock.at(moment, lambda: None)
    clock.run_until(3.0)
    assert clock.happened == 120_000


class _Fired(CoreObserver):
    def __init__(self) -> None:
        self.at: list[float] = []

    def before(self, member: SimulatedMember, event: Event) -> None:
        self.at.append(member.now)


def test_a_timer_of_a_member_whose_clock_has_jumped_fires_no_earlier_than_it_was_set_to() -> None:
    cluster, rng, fired = ScriptedCluster(), Random(1), _Fired()
    config = ConsumerConfig(bootstrap_servers="broker-0:9092", group_id="group")
    core = Core(config, cluster.brokers.bootstrap(), decode_simulated)
    member = SimulatedMember(cluster.clock, cluster.network, fired, 0, rng, config, core)
    for _ in range(1000):
        member.jump(rng.random())
        at = member.now + rng.random()
        member.carry_out([SetTimer("timer", at, 0.0)])
        cluster.clock.run_until(cluster.clock.now + 1.0)
        # Who looks at the clock, and finds that it is not yet time, would set it again at once.
        assert fired.at.pop() >= at
    assert not fired.at
