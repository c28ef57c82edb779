"""Fingerprints are equal only if the same follows."""

import dataclasses
import types
import uuid
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable
from datetime import UTC, datetime

import pytest
from simulation.explorer import explored_mutants
from simulation.explorer.exploration import KnownStates, PathOutcome, run_path
from simulation.explorer.explored_cluster import ExploredCluster, explored_cluster
from simulation.explorer.fingerprint import digest_of, fingerprint
from simulation.explorer.path import Path
from simulation.explorer.small_worlds import WORLDS, SmallWorld
from simulation.invariants.oracle_state import OracleState
from simulation.members.member import SimulatedMember
from simulation.mutants.mutant import Mutant
from simulation.runner import run_world
from simulation.schedules.scenario_run import ScenarioRun
from simulation.transactions.transactional_checker import TransactionalChecker

from asyncrevoke.client.core.io.effects import Effect, Send

_AT = 1.15
_MUTANTS = explored_mutants.MUTANTS[-2:]


def _explored(world: SmallWorld, step: int) -> list[PathOutcome]:
    """Every so many of the paths with one deviation, with their longer waits."""
    paths = [Path((choice,)) for choice in run_path(world, Path()).further[::step]]
    outcomes: list[PathOutcome] = []
    while paths:
        outcomes.append(run_path(world, paths.pop(0), with_states=True))
        if (longer := outcomes[-1].longer_wait) is not None:
            paths.append(outcomes[-1].path.then(longer))
    return outcomes


def _alike(outcomes: Iterable[PathOutcome]) -> list[tuple[float, list[PathOutcome]]]:
    """The outcomes that have passed the same state, with the time of the first one."""
    at: dict[bytes, float] = {}
    passed = defaultdict[bytes, list[PathOutcome]](list)
    for outcome in outcomes:
        for state in outcome.states:
            at[state.fingerprint] = state.at
            passed[state.fingerprint].append(outcome)
    groups = [(at[state], each) for state, each in passed.items() if len(each) > 1]
    return sorted(groups, key=lambda group: group[0])


def _what_follows(world: SmallWorld, path: Path, since: float) -> list[tuple[float, int, str]]:
    """What leaves the cores and producers of a run after a time, in order."""
    cluster, seen = explored_cluster(world, path), list[tuple[float, int, str]]()

    def fold(_state: OracleState, client: int, effect: Effect) -> None:
        if cluster.clock.now > since:
            kind = effect.message if isinstance(effect, Send) else effect
            seen.append((round(cluster.clock.now, 9), client, type(kind).__name__))

    producer_sends = TransactionalChecker.producer_sends

    def also_fold(checker: TransactionalChecker, member: SimulatedMember, send: Send) -> None:
        fold(checker.state, member.client, send)
        producer_sends(checker, member, send)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OracleState, "fold", fold)
        patch.setattr(TransactionalChecker, "producer_sends", also_fold)
        assert run_world(cluster).failure is None
    return seen


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "world",
    [
        # A world with transactions has all that the others have.
        pytest.param(
            world, id=name, marks=[] if name == "classic-transactions" else [pytest.mark.variant]
        )
        for name, world in WORLDS.items()
    ],
)
def test_the_same_follows_from_states_with_equal_fingerprints(world: SmallWorld) -> None:
    compared = set[tuple[Path, Path]]()
    for at, (first, *others) in _alike(_explored(world, 9)):
        for other in others:
            if (first.path, other.path) in compared:
                continue
            compared.add((first.path, other.path))
            one, two = (_what_follows(world, path, at) for path in (first.path, other.path))
            assert one == two, f"{first.path} and {other.path} at {at}"
    assert len(compared) > 5


@pytest.mark.variant
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", _MUTANTS, ids=[mutant.name for mutant in _MUTANTS])
def test_paths_of_a_mutant_that_pass_the_same_state_end_alike(mutant: Mutant) -> None:
    with pytest.MonkeyPatch.context() as patch:
        mutant.patch(patch)
        groups = _alike(_explored(WORLDS["kip848"], 9))
    assert groups
    for at, outcomes in groups:
        # What follows after a failure is not run: such a path passes no later state.
        ends = {(each.calm, each.run.invariant) for each in outcomes}
        assert len(ends) == len({calm for calm, _ in ends}), f"at {at}: {ends}"


class _FingerprintTaken(Exception):  # noqa: N818 - it ends a run
    """The rest of the run is not wanted."""


def _paused(change: Callable[[ExploredCluster], None] = lambda _cluster: None) -> bytes:
    """The fingerprint amid a run, after a change."""
    cluster = ExploredCluster(WORLDS["kip848"], Path())
    found: list[bytes] = []

    def take() -> None:
        change(cluster)
        found.append(fingerprint(cluster))
        raise _FingerprintTaken

    cluster.clock.at(_AT, take)
    with pytest.raises(_FingerprintTaken):
        ScenarioRun(cluster).run()
    return found[0]


def _change_a_core(cluster: ExploredCluster) -> None:
    cluster.applications[0].member.core.committer.slowest += 0.001


def _change_a_broker(cluster: ExploredCluster) -> None:
    log = cluster.brokers.topics.log(cluster.brokers.topics.partitions()[0])
    assert log is not None
    log.leader_epoch += 1


def _change_a_message_in_flight(cluster: ExploredCluster) -> None:
    cluster.network.delay(0, 0.001, 2.0)


def _change_an_application(cluster: ExploredCluster) -> None:
    cluster.applications[1].paused_until += 0.5


def _change_an_oracle(cluster: ExploredCluster) -> None:
    cluster.state.permit_duplicates(1, "a test")


def _let_time_pass(cluster: ExploredCluster) -> None:
    cluster.clock.now += 1e-6


def test_a_fingerprint_is_that_of_one_state() -> None:
    changes = (
        _change_a_core,
        _change_a_broker,
        _change_a_message_in_flight,
        _change_an_application,
        _change_an_oracle,
        _let_time_pass,
    )
    prints = [_paused(), *map(_paused, changes)]
    assert len(set(prints)) == len(prints)


@types.coroutine
def _pause() -> Generator[None]:
    yield


async def _paused_coroutine(_variable: int) -> None:
    for _ in (1, 1, 1):
        await _pause()
    await _pause()


def test_coroutines_are_compared_by_where_they_stand_and_what_they_hold() -> None:
    def digest(steps: int, variable: int = 0) -> bytes:
        coroutine = _paused_coroutine(variable)
        for _ in range(steps):
            coroutine.send(None)
        found = digest_of(coroutine)
        coroutine.close()
        return found

    digests = [digest(0), *(digest(steps) for steps in (1, 2, 3, 4)), digest(1, variable=1)]
    assert len(set(digests)) == len(digests)
    assert digest(2) == digests[2]


def test_random_transactional_ids_are_compared_by_their_order() -> None:
    one, two, three = (f"group-{uuid.uuid4().hex}" for _ in range(3))
    assert digest_of([one, two, one]) == digest_of([two, three, two])
    assert digest_of([one, two, one]) != digest_of([one, two, two])


def test_what_has_no_attributes_to_compare_is_an_error() -> None:
    with pytest.raises(TypeError, match="datetime of datetime has no attributes to compare"):
        digest_of(datetime.now(UTC))


def test_statistics_are_not_part_of_a_fingerprint() -> None:
    def count(cluster: ExploredCluster) -> None:
        cluster.state.counts["anything"] += 1
        cluster.state.note(0, "anything")

    assert _paused(count) == _paused()


def test_a_path_is_not_made_longer_after_a_known_state() -> None:
    world = WORLDS["kip848"]
    usual = run_path(world, Path(), with_states=True)
    known = KnownStates()
    assert known.cut_off(usual) == usual.further
    assert known.cut_off(usual) == usual.further[: usual.states[0].choices] != usual.further
    # What a calm path may not do may follow in another one.
    lost = dataclasses.replace(usual, calm=False)
    assert len(known.cut_off(lost)) < len(usual.further)
    other = KnownStates()
    other.cut_off(lost)
    assert other.cut_off(usual) == usual.further
