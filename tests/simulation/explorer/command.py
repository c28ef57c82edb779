"""``python -m simulation explore``: run all paths of small worlds."""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING, TypeAlias

from simulation.explorer.exploration import Limits, PathOutcome, explore, run_path
from simulation.explorer.path import Path
from simulation.explorer.small_worlds import WORLDS as OF_CONSUMER_GROUPS
from simulation.share.explored_share import SHARE_WORLD, SmallShareWorld

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simulation.explorer.small_worlds import SmallWorld

    World: TypeAlias = SmallWorld | SmallShareWorld

WORLDS: dict[str, World] = {**OF_CONSUMER_GROUPS, SHARE_WORLD.name: SHARE_WORLD}


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m simulation explore",
        description="Run every path of small worlds, those with the fewest deviations first.",
        epilog="example: PYTHONPATH=.:tests python -m simulation explore --depth 1",
    )
    parser.add_argument(
        "--world", action="append", choices=sorted(WORLDS), help="all worlds if left out"
    )
    parser.add_argument("--depth", type=int, default=2, help="deviations of a path, 2 by default")
    parser.add_argument(
        "--apart",
        type=float,
        help="seconds from the first deviation of a path to its last one, at most",
    )
    parser.add_argument("--longest-wait", type=int, help="events that something waits for, at most")
    parser.add_argument(
        "--all-states", action="store_true", help="go on from known states too, which costs time"
    )
    parser.add_argument("--paths", type=int, help="of a world, at most")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="a world, at most")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--path", type=Path.parse, help="run this path of a world only")
    parser.add_argument("--trace", type=int, default=60, help="lines of trace of a failure")
    options = parser.parse_args(arguments)
    if options.path is not None and len(options.world or ()) != 1:
        parser.error("--path needs one --world")
    return options


def _within(world: World, options: argparse.Namespace) -> World:
    """The world with the bounds that the options narrow."""
    bounds = world.bounds
    if options.apart is not None:
        bounds = dataclasses.replace(bounds, apart=options.apart)
    if options.longest_wait is not None:
        bounds = dataclasses.replace(bounds, longest_wait=options.longest_wait)
    return dataclasses.replace(world, bounds=bounds)


def _describe_failure(world: World, outcome: PathOutcome, lines: int) -> str:
    trace = outcome.run.trace.splitlines()[-lines:] if lines else []
    again = f"python -m simulation explore --world {world.name} --path {outcome.path}"
    return "\n".join([*trace, outcome.run.failure or "", f"again: PYTHONPATH=.:tests {again}"])


def main(arguments: Sequence[str]) -> int:
    """Explore, print, and return the exit code: 1 if a path failed."""
    options = _parse(arguments)
    failed = 0
    for name in options.world or WORLDS:
        world = _within(WORLDS[name], options)
        if options.path is not None:
            outcome = run_path(world, options.path)
            failure = _describe_failure(world, outcome, options.trace)
            print(failure if outcome.run.failure else "no invariant is broken")
            return int(outcome.run.failure is not None)
        print(f"{name}: {world.describe()}", flush=True)
        limits = Limits(options.paths, options.seconds)
        for level in explore(
            world,
            options.depth,
            limits,
            processes=options.processes,
            cuts_off=not options.all_states,
        ):
            print(f"  {level.describe()}", flush=True)
            if level.failed is not None:
                failed += 1
                print(_describe_failure(world, level.failed, options.trace), flush=True)
    return int(failed > 0)
