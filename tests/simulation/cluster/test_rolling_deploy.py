"""A rolling deploy repeats and loses nothing, and its cost is counted."""

import pytest
from simulation.cluster.rolling_deploy import Deploy, RollingDeploy
from simulation.schedules.schedule import GroupMode

SMALL = Deploy(members=12, partitions=60, unavailable=3, records=60.0)


@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
@pytest.mark.parametrize("mode", [GroupMode.EAGER, GroupMode.COOPERATIVE, GroupMode.CONSUMER])
def test_a_rolling_deploy_repeats_and_loses_nothing(mode: GroupMode, static: bool) -> None:
    cost = RollingDeploy(SMALL, mode, static=static).deploy()
    assert (cost.repeated, cost.lost) == (0, 0)
    assert cost.records > 100
    # Each member is away for the three seconds of its restart at least.
    assert cost.seconds > 3.0 * 12 / 3
    # An eager group says nowhere what it was assigned by: a leader that comes back has to ask.
    expected = range(1, 100) if not static else range(2) if mode is GroupMode.EAGER else range(1)
    assert cost.rebalances in expected
    assert cost.stalled > 0


def test_a_deploy_that_stops_the_world_stalls_more_than_one_that_does_not() -> None:
    eager = RollingDeploy(SMALL, GroupMode.EAGER, static=False).deploy()
    cooperative = RollingDeploy(SMALL, GroupMode.COOPERATIVE, static=False).deploy()
    assert eager.stalled > cooperative.stalled
