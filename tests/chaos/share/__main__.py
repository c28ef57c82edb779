"""Chaos runs with share groups on three brokers: ``python -m chaos.share --runs 20``, with
``tests`` on PYTHONPATH."""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from chaos.environment.proxied_brokers import Stage
from chaos.share.share_faults import FAULTS
from chaos.share.share_run import HEADER, run_share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chaos.faults.fault import Fault


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(prog="python -m chaos.share", description=__doc__)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the first run")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--faults", type=int, default=3, help="of each run")
    parser.add_argument(
        "--fault",
        nargs="+",
        metavar="NAME[+NAME...]",
        help=f"instead of drawn ones, each for a run by itself: {', '.join(FAULTS)}",
    )
    parser.add_argument("--single", action="store_true", help="each fault by itself")
    parser.add_argument("--slack", type=float, default=0.0, help="seconds for a busy machine")
    parser.add_argument("--evidence", type=Path, help="where failed runs are kept")
    return parser.parse_args()


def scenarios(args: argparse.Namespace) -> Iterator[tuple[int, list[type[Fault]]]]:
    """Seeds and faults."""
    if args.single or args.fault:
        chosen = args.fault or list(FAULTS)
        for seed, names in enumerate(chosen, args.seed):
            yield seed, [FAULTS[name] for name in names.split("+")]
        return
    drawn = [fault for fault in FAULTS.values() if not fault.alone]
    for seed in range(args.seed, args.seed + args.runs):
        yield seed, random.Random(seed).sample(drawn, args.faults)


async def play(args: argparse.Namespace, stage: Stage, folder: Path) -> int:
    """Run all, and print a line for each. Returns how many have failed."""
    failed = 0
    print(HEADER)
    for seed, faults in scenarios(args):
        outcome = await run_share(stage, seed, faults, folder, args.slack)
        print(outcome.line, flush=True)
        for fault in outcome.result.faults[:20]:
            print(f"    {fault}", flush=True)
        if outcome.result.faults:
            failed += 1
            print(f"    evidence: {outcome.evidence}", flush=True)
        else:
            await asyncio.to_thread(shutil.rmtree, outcome.evidence)
    return failed


def main() -> int:
    """Exit code 1 unless every run was as it should be."""
    args = arguments()
    print(f"seed {args.seed}")
    with Stage(3) as stage:
        failed = asyncio.run(play(args, stage, args.evidence or Path(tempfile.mkdtemp())))
    print(f"{failed} runs failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
