"""A failing schedule is made small, and says what is needed to see it again."""

import subprocess
from datetime import UTC, datetime

import msgspec
import pytest
from simulation.command import COMMAND, command_environment
from simulation.mutants.core_mutants import MUTANTS
from simulation.runner import run, run_many, shrink
from simulation.schedules.schedule import Disturbance, GroupMode, Schedule, draw

COMMITS_TOO_MUCH = next(m for m in MUTANTS if m.name == "commits past unfinished work")


def _failing() -> Schedule:
    found = (draw(seed, GroupMode.COOPERATIVE, Disturbance.FAULTS) for seed in range(50))
    return next(s for s in found if len(s.incidents) > 4 and run(s).invariant == "I5")


def test_a_failing_schedule_is_made_small_and_still_fails_in_the_same_way() -> None:
    with pytest.MonkeyPatch.context() as patch:
        COMMITS_TOO_MUCH.patch(patch)
        schedule = _failing()
        small = shrink(schedule)
        assert run(small).invariant == "I5"
    assert not small.incidents
    assert len(small.members) <= len(schedule.members)
    assert run(small).failure is None


def test_a_failure_has_its_trace_and_a_summary_counts_it() -> None:
    with pytest.MonkeyPatch.context() as patch:
        COMMITS_TOO_MUCH.patch(patch)
        summary = run_many(range(10), GroupMode.COOPERATIVE, Disturbance.NONE, stop_after=2)
    assert len(summary.failures) == 2
    assert "OffsetCommitRequest" in summary.failures[0].trace
    assert "2 failed" in summary.describe()


def test_a_schedule_that_was_written_down_is_the_same_schedule() -> None:
    schedule = draw(7)
    assert msgspec.json.decode(schedule.as_json(), type=Schedule) == schedule


def test_the_command_prints_a_summary_and_fails_only_if_a_schedule_does() -> None:
    command = [*COMMAND, "--seeds", "0:3"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=command_environment()
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 schedules, 0 failed" in done.stdout


def test_fresh_seeds_are_those_of_the_day_and_are_printed_so_that_they_can_be_run_again() -> None:
    def command(*options: str) -> str:
        words = [*COMMAND, *options]
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, env=command_environment()
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    days = {f"{datetime.now(UTC):%Y%m%d}"}
    first = command("--fresh", "2")
    days.add(f"{datetime.now(UTC):%Y%m%d}")  # the day may end meanwhile
    seeds = first.splitlines()[0].removeprefix("seeds ")
    assert seeds in {f"{day}00000:{day}00002" for day in days}
    again = command("--seeds", seeds)
    assert again.splitlines()[2:] == first.splitlines()[2:]
