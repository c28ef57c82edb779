"""Fuzzes what asyncrevoke reads from others: ``python -m fuzz``, with ``tests`` on PYTHONPATH."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from fuzz.run import Failure, Run
from fuzz.target import names, read


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument(
        "--target", nargs="+", choices=names(), default=names(), help="instead of all"
    )
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the drawn inputs")
    many = parser.add_mutually_exclusive_group()
    many.add_argument("--inputs", type=int, help="how many for each target")
    many.add_argument(
        "--seconds", type=float, default=1200.0, help="for all targets together (default 1200)"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--input", type=Path, metavar="FILE", help="check only this one, *.hex as text; one target"
    )
    parser.add_argument("--failures", type=Path, help="where inputs that failed are written")
    args = parser.parse_args()
    if args.input is not None and len(args.target) != 1:
        parser.error("--input needs one --target")
    return args


def main() -> int:
    """Exit code 1 unless every input did what it should."""
    args = arguments()
    folder: Path | None = args.failures
    reported = 0

    def report(failure: Failure) -> None:
        nonlocal folder, reported
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="fuzz-failures-"))
        reported += 1
        place = folder / failure.target / f"{failure.seed}-{failure.index}.bin"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(failure.data)
        print(f"{failure}\nin {place}\n", flush=True)

    print(f"seed {args.seed}", flush=True)
    for name in args.target:
        run = Run(
            name,
            args.seed,
            inputs=args.inputs,
            seconds=None if args.inputs is not None else args.seconds / len(args.target),
            processes=args.processes,
            on_failure=report,
        )
        if args.input is not None:
            print(run.check(args.input, read(args.input)), flush=True)
        else:
            print(run.run(), flush=True)
    return 1 if reported else 0


if __name__ == "__main__":
    sys.exit(main())
