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

from simulation.explorer.explored_cluster import ExploredCluster
from simulation.explorer.path import Choice, Path
from simulation.runner import ScheduleOutcome, run_world

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

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


def run_path(world: SmallWorld, path: Path) -> PathOutcome:
    """Run a world from its beginning along a path. Raises ValueError if it has no such path."""
    cluster = ExploredCluster(world, path)
    outcome = run_world(cluster)
    branches = cluster.branches
    if branches.missed and outcome.failure is None:
        missed = ",".join(map(str, branches.missed))
        raise ValueError(f"{world.name} has no choice {missed} in its {branches.points} points")
    return PathOutcome(
        path, outcome, branches.points, tuple(branches.further), branches.longer_wait
    )


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
    deviations: Counter[str] = field(default_factory=Counter[str])
    failed: PathOutcome | None = None

    def add(self, outcome: PathOutcome) -> None:
        """Count one more path."""
        self.paths += 1
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
            f"{self.seconds:.1f} s" + (f"; {by_kind}" if by_kind else "")
        )


_RunAll: TypeAlias = "Callable[[Sequence[Path]], Iterable[PathOutcome]]"


def explore(
    world: SmallWorld, depth: int, limits: Limits | None = None, *, processes: int = 1
) -> Iterator[Level]:
    """Run the path without deviations, then all with one, and so on up to ``depth``. A level is
    returned once its paths have been run; none follows if a path failed or a limit is reached."""
    limits = limits or Limits()
    ends_at = time.perf_counter() + limits.seconds
    left = limits.paths
    with _runner(world, processes) as run_all:
        paths: Iterator[Path] = iter((Path(),))
        count = 1
        for number in range(depth + 1):
            level, outcomes = Level(number), list[PathOutcome]()
            started = time.perf_counter()
            for outcome in _run_level(paths, run_all):
                level.add(outcome)
                if outcome.longer_wait is not None:
                    count += 1
                if number < depth:
                    outcomes.append(outcome)
                if level.failed or level.paths == left or time.perf_counter() >= ends_at:
                    break
            level.left = count - level.paths
            level.seconds = time.perf_counter() - started
            yield level
            if level.failed or level.left:
                return
            left = None if left is None else left - level.paths
            paths = _longer_paths(outcomes)
            count = sum(len(outcome.further) for outcome in outcomes)


def _run_level(paths: Iterator[Path], run_all: _RunAll) -> Iterator[PathOutcome]:
    """Run paths, and those that only their outcomes lead to: the ones with longer waits."""
    while batch := list(islice(paths, _BATCH)):
        longer: list[Path] = []
        for outcome in run_all(batch):
            if outcome.longer_wait is not None:
                longer.append(outcome.path.then(outcome.longer_wait))
            yield outcome
        paths = chain(longer, paths)


def _longer_paths(outcomes: Iterable[PathOutcome]) -> Iterator[Path]:
    for outcome in outcomes:
        for choice in outcome.further:
            yield outcome.path.then(choice)


@contextlib.contextmanager
def _runner(world: SmallWorld, processes: int) -> Generator[_RunAll]:
    """What runs paths, in this process or in several."""
    if processes == 1:
        yield lambda paths: map(partial(run_path, world), paths)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield lambda paths: pool.imap(partial(run_path, world), paths, chunksize=10)
