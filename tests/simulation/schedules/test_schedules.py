"""Seeded schedules of a simulated cluster keep every invariant."""

import dataclasses
import os
import subprocess
from pathlib import Path

import msgspec
import pytest
from simulation.command import COMMAND, command_environment
from simulation.members.consumer_style import ConsumerStyle, WorkTime
from simulation.mutants.mutant_schedules import throttled_brokers
from simulation.runner import ScheduleOutcome, run, run_many
from simulation.schedules.schedule import (
    INEXCUSABLE,
    Disturbance,
    GroupMode,
    MemberPlan,
    Schedule,
    draw,
)

from asyncrevoke.client.core.commit.committed_maps import CommittedMaps
from asyncrevoke.client.protocol.messages import CommitEntry, ErrorCode
from asyncrevoke.testing.fake_kafka.group_state import CommittedGroupOffsets


def _explain(failures: list[ScheduleOutcome]) -> str:
    return "\n\n".join(
        f"{draw(outcome.seed).describe()}\n{outcome.failure}" for outcome in failures
    )


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "seeds", [range(200), pytest.param(range(200, 500), marks=pytest.mark.variant)]
)
def test_schedules_keep_every_invariant(seeds: range) -> None:
    summary = run_many(seeds, processes=os.cpu_count() or 1, stop_after=3)
    assert not summary.failures, _explain(summary.failures)
    assert summary.schedules == len(seeds)
    # It would prove nothing if little happened.
    assert summary.counts["rebalances"] > 4 * len(seeds)
    assert summary.counts["done"] > 100 * len(seeds)
    assert summary.counts["late commits"] > 0
    assert summary.counts["members put out"] > 0
    assert summary.counts["conversions"] > len(seeds) / 10
    assert summary.counts["lost with their topics"] > len(seeds) / 10
    assert summary.counts["heartbeats of threads"] > len(seeds) / 50


@pytest.mark.parametrize("mode", GroupMode)
def test_without_faults_or_slow_work_nothing_is_lost_or_repeated(mode: GroupMode) -> None:
    for seed in range(10):
        outcome = run(draw(seed, mode, Disturbance.NONE))
        assert outcome.failure is None, f"seed {seed}: {outcome.failure}"
        causes = set(outcome.duplicates)
        assert causes <= {
            "the loop was left before its work counted",
            "a revoke was not finished before its deadline",
            "the group was converted while partitions were on their way",
            # Nobody knows of it when the revoke is announced
            # (docs/how-to/handlers/revocations-and-crashes.md).
            "a member joined that reads no completion maps",
            # The application asks for it.
            "a seek went back to the beginning",
        }


@pytest.mark.parametrize("mode", GroupMode)
def test_no_member_fetches_from_a_broker_before_its_throttle_time_is_over(mode: GroupMode) -> None:
    for seed in range(12):
        outcome = run(throttled_brokers(draw(seed, mode, Disturbance.NONE)))
        assert outcome.failure is None, f"seed {seed}: {outcome.failure}"


@pytest.mark.parametrize("disturbance", INEXCUSABLE)
@pytest.mark.parametrize("mode", [mode for mode in GroupMode if mode is not GroupMode.CONVERTED])
def test_in_a_calm_group_nothing_at_all_is_lost_or_repeated_wherever_its_coordinator_goes(
    mode: GroupMode, disturbance: Disturbance
) -> None:
    for seed in range(10):
        outcome = run(draw(seed, mode, disturbance))
        assert outcome.failure is None, f"seed {seed}: {outcome.failure}"
        assert not outcome.duplicates
        assert not outcome.counts["lost partitions"]


def test_work_that_outlasts_a_calm_schedule_is_a_violation() -> None:
    slow = (MemberPlan(0.1, ConsumerStyle.TASKS, WorkTime(3.0, 9.0, 1.0)),) * 2
    found = {
        run(dataclasses.replace(calm, members=slow, revoke_timeout=1.5)).invariant
        for calm in (draw(seed, GroupMode.COOPERATIVE, Disturbance.CALM) for seed in range(5))
    }
    assert found & {"undue loss", "I11"}


def test_brokers_that_lose_commit_metadata_repeat_records_and_lose_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As Tansu 0.6. A revocation before the first map is read back still counts on it (I11)."""
    store, told = CommittedGroupOffsets.store, CommittedMaps.not_kept
    noticed: list[CommittedMaps] = []

    def lose(offsets: CommittedGroupOffsets, entry: CommitEntry) -> ErrorCode:
        return store(offsets, msgspec.structs.replace(entry, metadata=""))

    def notice(maps: CommittedMaps) -> None:
        noticed.append(maps)
        told(maps)

    monkeypatch.setattr(CommittedGroupOffsets, "store", lose)
    monkeypatch.setattr(CommittedMaps, "not_kept", notice)
    outcomes = [run(draw(seed)) for seed in range(1040, 1070)]
    failures = [outcome for outcome in outcomes if outcome.failure is not None]
    assert {outcome.invariant for outcome in failures} <= {"I11"}, _explain(failures)
    assert len(failures) < 5, _explain(failures)
    assert len(noticed) > 10
    assert len(set(map(id, noticed))) == len(noticed), "each member notices it once"


class _Found(msgspec.Struct):
    """A schedule that once failed, made small, and what was wrong: a line of found.jsonl."""

    why: str
    schedule: Schedule


_FOUND = [
    msgspec.json.decode(line, type=_Found)
    for line in Path(__file__).with_name("found.jsonl").read_text("utf-8").splitlines()
]


@pytest.mark.parametrize("found", _FOUND, ids=lambda found: found.why)
def test_a_schedule_that_once_failed_passes(found: _Found) -> None:
    outcome = run(found.schedule)
    assert outcome.failure is None, outcome.failure


@pytest.mark.parametrize(
    ("options", "count"),
    [(["--seeds", "0:8"], 8), (["--seeds", "5", "--protocol", "mixed"], 1)],
    ids=["first seeds", "two delayed partitions"],
)
def test_the_same_seed_gives_the_same_effects_whatever_the_order_of_sets(
    options: list[str], count: int
) -> None:
    digests = [
        subprocess.run(
            [*COMMAND, *options, "--digest"],
            check=True,
            capture_output=True,
            text=True,
            env={**command_environment(), "PYTHONHASHSEED": hash_seed},
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert digests[0] == digests[1]
    assert len(digests[0].splitlines()) == count
