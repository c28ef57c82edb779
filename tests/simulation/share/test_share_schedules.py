"""Seeded schedules of share groups keep S1 to S12."""

from __future__ import annotations

import subprocess

import pytest
from simulation.command import COMMAND, command_environment
from simulation.share.share_run import run_many_share, run_share
from simulation.share.share_schedule import ShareDisturbance, draw_share


@pytest.mark.parametrize("disturbance", ShareDisturbance)
def test_30_schedules_keep_every_invariant(disturbance: ShareDisturbance) -> None:
    summary = run_many_share(range(30), disturbance)
    failures = [(outcome.seed, outcome.failure) for outcome in summary.failures]
    assert not failures
    # It would prove nothing if little happened.
    counts = summary.counts
    assert counts["accept"] > 500
    assert counts["gap"] > 200
    assert counts["release"] > 5
    if disturbance is ShareDisturbance.FAULTS:
        assert counts["locks expired"] > 5
        assert counts["lost"] > 20
        assert counts["unknown"] > 5
    else:
        assert counts["lost"] == counts["unknown"] == 0


def test_the_same_seed_gives_the_same_effects_whatever_the_order_of_sets() -> None:
    printed = subprocess.run(
        [*COMMAND, "share", "--seeds", "3:6", "--digest"],
        env=command_environment() | {"PYTHONHASHSEED": "1"},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        timeout=300,
    ).stdout
    digests = [f"{seed} {run_share(draw_share(seed), digest=True).digest}" for seed in range(3, 6)]
    assert printed.splitlines() == digests


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(81000533, id="acquired again after a reset, and damaged"),
        pytest.param(81003750, id="released by a late request, and acquired again"),
        pytest.param(92005372, id="accepted by a late request, and then released"),
        pytest.param(81002744, id="a session over a connection that carries nothing"),
        pytest.param(92007712, id="a session whose last fetch has failed"),
    ],
)
def test_what_no_member_can_know_breaks_no_invariant(seed: int) -> None:
    assert run_share(draw_share(seed)).failure is None
