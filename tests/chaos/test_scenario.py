"""What a seed draws, and what the faults of a run allow."""

from __future__ import annotations

import pytest
from chaos.environment.group import CLOSE_TIMEOUT
from chaos.environment.proxied_brokers import SESSION_TIMEOUT
from chaos.faults.brokers import BrokerRestart
from chaos.faults.members import Kill, Leave, ShortFreeze
from chaos.scenario import FAULTS, Scenario, draw, possible


@pytest.mark.parametrize("size", [1, 3])
def test_a_seed_draws_the_same_scenario_again_and_others_draw_others(size: int) -> None:
    drawn = [draw(seed, size) for seed in range(20)]
    assert drawn == [draw(seed, size) for seed in range(20)]
    assert len({scenario.faults for scenario in drawn}) > 15
    assert {scenario.protocol for scenario in drawn} == {"cooperative", "eager", "consumer"}
    assert all(len(set(scenario.faults)) == 3 for scenario in drawn)


def test_without_endings_no_fault_is_drawn_after_which_records_may_be_repeated() -> None:
    drawn = [fault for seed in range(50) for fault in draw(seed, 3, endings=False).faults]
    assert not any(fault.endings for fault in drawn)
    assert Kill in possible(1)
    assert Kill not in possible(1, endings=False)


def test_faults_of_clusters_and_those_that_need_a_run_of_their_own_are_drawn_only_there() -> None:
    assert all(fault.brokers == 1 and not fault.alone for fault in possible(1))
    assert set(possible(3, alone=True)) == set(FAULTS.values())


def test_a_run_allows_what_its_faults_allow_together() -> None:
    calm = Scenario(1, "eager", (Leave, ShortFreeze)).allowed(0)
    assert not calm.endings
    assert calm.stall == SESSION_TIMEOUT + 5 + ShortFreeze.silence
    assert calm.exit == CLOSE_TIMEOUT + 1
    busy = Scenario(1, "eager", (Leave, Kill, BrokerRestart)).allowed(4)
    assert busy.endings
    assert busy.stall == SESSION_TIMEOUT + 5 + BrokerRestart.silence + 4
    assert busy.exit == CLOSE_TIMEOUT + 5
