"""Chaos runs one after another: ``python -m chaos --runs 20``, with ``tests`` on PYTHONPATH."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chaos import matrix
from chaos.environment.group import PROTOCOLS
from chaos.environment.proxied_brokers import Stage
from chaos.run import HEADER, Outcome, run
from chaos.scenario import FAULTS, Scenario, draw, possible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chaos.environment.group import ProtocolName


def option(text: str) -> tuple[str, Any]:
    """A consumer option: its name and its value, which is JSON."""
    name, _, value = text.partition("=")
    return name, json.loads(value)


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the first run")
    parser.add_argument("--runs", type=int, default=20, help="for each number of brokers")
    parser.add_argument("--protocol", nargs="+", choices=PROTOCOLS, default=PROTOCOLS)
    parser.add_argument("--brokers", type=int, nargs="+", default=[1], choices=(1, 3))
    parser.add_argument("--faults", type=int, default=3, help="of each run")
    parser.add_argument(
        "--fault",
        nargs="+",
        metavar="NAME[+NAME...]",
        help=f"instead of drawn ones, each for a run by itself: {', '.join(FAULTS)}",
    )
    parser.add_argument("--single", action="store_true", help="each possible fault by itself")
    parser.add_argument(
        "--matrix",
        action="store_true",
        help="measure the cells of the matrix in docs/reference/guarantees.md, and write them "
        "there: all, or those of --fault and --protocol",
    )
    parser.add_argument(
        "--no-kills",
        action="store_true",
        help="only faults after which no record may be repeated",
    )
    parser.add_argument(
        "--option",
        type=option,
        action="append",
        default=[],
        metavar="NAME=JSON",
        help="consumer option of all members, such as commit_interval=1.0",
    )
    parser.add_argument("--slack", type=float, default=0.0, help="seconds for a busy machine")
    parser.add_argument("--evidence", type=Path, help="where failed runs are kept")
    parser.add_argument("--keep", action="store_true", help="keep all runs, not only failed ones")
    return parser.parse_args()


def scenarios(args: argparse.Namespace, size: int) -> Iterator[Scenario]:
    """What to run on so many brokers."""
    if args.matrix:
        for scenario in matrix.scenarios(size, args.seed):
            (fault,) = scenario.faults
            if scenario.protocol in args.protocol and (not args.fault or fault.name in args.fault):
                yield scenario
        return
    if args.fault:
        kinds = [tuple(FAULTS[name] for name in names.split("+")) for names in args.fault]
    elif args.single:
        kinds = [(fault,) for fault in possible(size, endings=not args.no_kills, alone=True)]
    else:
        for seed in range(args.seed, args.seed + args.runs):
            endings = not args.no_kills
            yield draw(seed, size, count=args.faults, endings=endings, protocols=args.protocol)
        return
    protocols: Sequence[ProtocolName] = args.protocol
    seed = args.seed
    for kind in kinds:
        for protocol in protocols:
            yield Scenario(seed, protocol, kind)
            seed += 1


async def play(args: argparse.Namespace, stage: Stage, folder: Path) -> list[Outcome]:
    """Run all, and print a line for each."""
    outcomes: list[Outcome] = []
    print(f"{len(stage.brokers)} broker(s)\n{HEADER}")
    for scenario in scenarios(args, len(stage.brokers)):
        outcome = await run(
            stage,
            scenario,
            folder,
            slack=args.slack,
            always=args.keep,
            options=dict(args.option),
        )
        outcomes.append(outcome)
        if args.matrix:
            cell = matrix.cell_of(outcome, len(stage.brokers))
            await asyncio.to_thread(matrix.write, [cell])
        print(outcome.line, flush=True)
        for fault in outcome.check_run.faults:
            print(f"    {fault}", flush=True)
        if outcome.check_run.faults or args.keep:
            print(f"    evidence: {outcome.evidence}", flush=True)
        else:
            await asyncio.to_thread(shutil.rmtree, outcome.evidence)
    return outcomes


def main() -> int:
    """Exit code 1 unless every run was as it should be."""
    args = arguments()
    folder = args.evidence or Path(tempfile.mkdtemp(prefix="chaos-"))
    began = time.monotonic()
    print(f"seed {args.seed}")
    outcomes: list[Outcome] = []
    for size in (1, 3) if args.matrix else args.brokers:
        if next(scenarios(args, size), None) is None:
            continue
        with Stage(size) as stage:
            outcomes += asyncio.run(play(args, stage, folder / f"{size}"))
    found = [outcome.check_run for outcome in outcomes]
    failed = sum(bool(candidate.faults) for candidate in found)
    print(
        f"{len(found) - failed} of {len(found)} runs as they should be, "
        f"{sum(candidate.produced for candidate in found)} records: "
        f"{sum(candidate.lost for candidate in found)} lost, "
        f"{sum(candidate.repeated for candidate in found)} repeated "
        f"({sum(candidate.not_permitted for candidate in found)} not permitted), "
        f"{sum(candidate.out_of_order for candidate in found)} out of order; longest stall "
        f"{max((candidate.longest_stall for candidate in found), default=0.0):.1f} s; "
        f"{time.monotonic() - began:.0f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
