"""Runs all paths of a small world, those with the fewest deviations first."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeAlias

from simulation.explorer.explored_cluster import explored_cluster
from simulation.explorer.path import Choice, Path
from simulation.runner import ScheduleOutcome, run_world
from simulation.share.explored_share import ExploredShareCluster, SmallShareWorld
from simulation.share.share_run import run_share_world

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from simulation.explorer.branches import PassedState
    from simulation.explorer.small_worlds import SmallWorld

# So many paths are given to the processes before it is looked whether to go on.
_BATCH = 200


@dataclass(frozen=True, slots=True)
class PathOutcome:
    """How one path ended, and the choices that lead from it to others."""

    path: Path
    run: ScheduleOutcome
    points: int
    further: tuple[Choice, ...]
    longer_wait: Choice | None
    # Whether nothing in it permits a loss or a duplicate.
    calm: bool
    states: tuple[PassedState, ...]


def run_path(
    world: SmallWorld | SmallShareWorld, path: Path, *, with_states: bool = False
) -> PathOutcome:
    """Run a world from its beginning along a path. Raises ValueError if it has no such path.

    ``with_states``: the outcome has states after the last choice."""
    if isinstance(world, SmallShareWorld):
        group = ExploredShareCluster(world, path)
        outcome, branches, calm = run_share_world(group), group.branches, group.oracle.strict
    else:
        cluster = explored_cluster(world, path)
        if with_states:
            cluster.take_states()
        outcome, branches, calm = run_world(cluster), cluster.branches, cluster.state.strict
    if branches.missed and outcome.failure is None:
        missed = ",".join(map(str, branches.missed))
        raise ValueError(f"{world.name} has no choice {missed} in its {branches.points} points")
    return PathOutcome(
        path,
        outcome,
        branches.points,
        tuple(branches.further),
        branches.longer_wait,
        calm,
        tuple(branches.states),
    )


class KnownStates:
    """The states of all paths so far, which had at least as many deviations left as the next one:
    those with fewer deviations come first."""

    def __init__(self) -> None:
        # Whether the path was calm. What follows in one that was not may break an invariant that
        # holds only in calm ones.
        self._seen: dict[bytes, bool] = {}

    def cut_off(self, outcome: PathOutcome) -> tuple[Choice, ...]:
        """The choices that lead from a path to longer ones, without those after a known state."""
        for state in outcome.states:
            known = self._seen.get(state.fingerprint)
            if known or known is outcome.calm:
                return outcome.further[: state.choices]
            self._seen[state.fingerprint] = outcome.calm
        return outcome.further


@dataclass(frozen=True, slots=True)
class Limits:
    """When to end before all paths have been run. A path that fails always ends it."""

    paths: int | None = None
    seconds: float = math.inf


@dataclass(slots=True)
class Level:
    """What the paths with so many deviations came to. ``left``: how many of them were not run, at
    least."""

    depth: int
    paths: int = 0
    left: int = 0
    seconds: float = 0.0
    alarms: int = 0
    # Paths that go on from a known state as another one does, and how many longer paths that saves.
    known: int = 0
    saved: int = 0
    deviations: Counter[str] = field(default_factory=Counter[str])
    failed: PathOutcome | None = None

    def add(self, outcome: PathOutcome, saved: int) -> None:
        """Count one more path, after a known state of which ``saved`` choices are left out."""
        self.paths += 1
        self.known += saved > 0
        self.saved += saved
        self.alarms += outcome.run.alarms
        self.deviations.update(choice.deviation.value for choice in outcome.path.choices[-1:])
        if outcome.run.failure is not None and self.failed is None:
            self.failed = outcome

    def describe(self) -> str:
        """The level on a line, for people."""
        end = "a path failed" if self.failed else f"{self.left} not run" if self.left else "all"
        by_kind = ", ".join(f"{name} {count}" for name, count in sorted(self.deviations.items()))
        return (
            f"depth {self.depth}: {self.paths} paths ({end}), {self.alarms} events, "
            f"{self.seconds:.1f} s"
            + (f", {self.known} cut off (saves {self.saved} paths)" if self.known else "")
            + (f"; {by_kind}" if by_kind else "")
        )


_RunAll: TypeAlias = (
    "Callable[[Callable[[Path], PathOutcome], Sequence[Path]], Iterable[PathOutcome]]"
)


def explore(
    world: SmallWorld | SmallShareWorld,
    depth: int,
    limits: Limits | None = None,
    *,
    processes: int = 1,
    cuts_off: bool = True,
) -> Iterator[Level]:
    """Run the path without deviations, then all with one, and so on up to ``depth``. A level is
    returned once its paths have been run; none follows if a path failed or a limit is reached.
    ``cuts_off``: a path is not made longer after a state that an earlier one has reached."""
    limits = limits or Limits()
    ends_at = time.perf_counter() + limits.seconds
    left = limits.paths
    cuts_off = cuts_off and world.has_fingerprint
    known = KnownStates()
    with _runner(processes) as run_all:
        paths: Iterator[Path] = iter((Path(),))
        count = 1
        for number in range(depth + 1):
            goes_on = number < depth
            run_one = partial(run_path, world, with_states=goes_on and cuts_off)
            level, longer = Level(number), list[tuple[Path, tuple[Choice, ...]]]()
            started = time.perf_counter()
            for outcome in _run_level(paths, partial(run_all, run_one)):
                further = known.cut_off(outcome)
                level.add(outcome, saved=len(outcome.further) - len(further))
                if outcome.longer_wait is not None:
                    count += 1
                if goes_on:
                    longer.append((outcome.path, further))
                if level.failed or level.paths == left or time.perf_counter() >= ends_at:
                    break
            level.left = count - level.paths
            level.seconds = time.perf_counter() - started
            yield level
            if level.failed or level.left:
                return
            left = None if left is None else left - level.paths
            paths = (path.then(choice) for path, further in longer for choice in further)
            count = sum(len(further) for _, further in longer)


def _run_level(
    paths: Iterator[Path], run_all: Callable[[Sequence[Path]], Iterable[PathOutcome]]
) -> Iterator[PathOutcome]:
    """Run paths, and those that only their outcomes lead to: the ones with longer waits."""
    while batch := list(islice(paths, _BATCH)):
        longer: list[Path] = []
        for outcome in run_all(batch):
            if outcome.longer_wait is not None:
                longer.append(outcome.path.then(outcome.longer_wait))
            yield outcome
        paths = chain(longer, paths)


@contextlib.contextmanager
def _runner(processes: int) -> Generator[_RunAll]:
    """What runs paths, in this process or in several."""
    if processes == 1:
        yield map
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield partial(pool.imap, chunksize=10)
