"""CPU time of each record: this checkout beside another one.

    python -m benchmarks.versions OTHER_CHECKOUT [--pairs 15] [--only STYLE ...]

A topic of keyed records is filled once. Then the two checkouts take turns in reading it, each time
in a new process and as a new group, in five styles: whole batches, single records, handlers that
await nothing, handlers that await 5 ms, 512 at once, and handlers that publish a result. Each pair
gives a ratio, in which 1 is the speed of the other checkout and more is faster; printed are the
geometric mean and the interval that holds it with 95 % confidence.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.broker.installation.jars import KAFKA_VERSION
from benchmarks.clients.version_client import STYLES
from benchmarks.report.surroundings import surroundings, table
from benchmarks.workload.broker import measured_broker, topic_name
from benchmarks.workload.load import fill_keyed

if TYPE_CHECKING:
    from collections.abc import Sequence

PARTITIONS = 8
SIZE = 100
KEYS = 10_000
DEADLINE = 120.0
# Enough that what happens once, for example the import of the schema of the first OffsetCommit, is
# less than 1 % of the time.
RECORDS = {
    "batches": 1_000_000,
    "records": 1_000_000,
    "handlers": 1_600_000,
    "waiting": 200_000,
    "results": 400_000,
}
# Of Student's distribution, the 97.5 % quantile: as good as that of many pairs from 60 on.
_QUANTILES = {5: 2.776, 10: 2.262, 15: 2.145, 20: 2.093, 30: 2.045, 60: 2.001}

_CLIENT = Path(__file__).parent / "clients" / "version_client.py"
_HERE = Path(__file__).parent.parent


class Interval(NamedTuple):
    """A geometric mean of ratios, and the 95 % interval around it."""

    mean: float
    low: float
    high: float


def interval(ratios: Sequence[float]) -> Interval:
    """The mean of these ratios, and how sure it is; at least two ratios."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.fmean(logs)
    # Fewer pairs have the wider quantile.
    quantile = next((q for n, q in sorted(_QUANTILES.items(), reverse=True) if len(logs) >= n), 4.3)
    around = quantile * statistics.stdev(logs) / math.sqrt(len(logs))
    return Interval(math.exp(mean), math.exp(mean - around), math.exp(mean + around))


def measure(checkout: Path, style: str, bootstrap: str, topic: str, group: str) -> float:
    """Microseconds of CPU time that ``checkout`` takes for each record."""
    told = subprocess.run(
        [sys.executable, str(_CLIENT), style, bootstrap, topic, group, str(RECORDS[style])],
        env=os.environ | {"PYTHONPATH": str(checkout)},
        cwd=checkout,
        stdout=subprocess.PIPE,
        timeout=DEADLINE,
        check=True,
        text=True,
    )
    return float(json.loads(told.stdout)["microseconds"])


def main() -> int:
    """Measure and print."""
    options = _options()
    other = Path(options.other).resolve()
    if not (other / "asyncrevoke").is_dir():
        sys.stderr.write(f"{other}: not a checkout of asyncrevoke\n")
        return 2
    groups = (f"versions-{os.getpid()}-{number}" for number in itertools.count())
    rows: list[list[str]] = []
    with measured_broker() as broker:
        bootstrap = broker.bootstrap_servers
        topic = topic_name("versions")
        for name in (topic, f"{topic}-results"):
            broker.create_topic(name, PARTITIONS)
        keys = [b"%d" % (number * 7919 % KEYS) for number in range(max(RECORDS.values()))]
        asyncio.run(fill_keyed(bootstrap, topic, PARTITIONS, keys, SIZE))
        for style in options.only or STYLES:
            ours: list[float] = []
            theirs: list[float] = []
            for turn in range(options.pairs + 1):
                both = [(_HERE, ours), (other, theirs)]
                # Whoever comes second finds a warmer machine: they take turns in that, too.
                for checkout, took in both if turn % 2 else reversed(both):
                    cost = measure(checkout, style, bootstrap, topic, next(groups))
                    if turn:  # the first pair warms the broker and the page cache
                        took.append(cost)
            found = interval([b / a for a, b in zip(ours, theirs, strict=True)])
            rows.append(
                [
                    style,
                    f"{statistics.median(ours):.3f}",
                    f"{statistics.median(theirs):.3f}",
                    f"{found.mean:.3f} ({found.low:.3f} to {found.high:.3f})",
                ]
            )
            sys.stderr.write(f"{' | '.join(rows[-1])}\n")
        for name in (topic, f"{topic}-results"):
            broker.delete_topic(name)
    print(table(["style", "us CPU per record", "the other checkout", "ratio (95 %)"], rows))
    print()
    facts = surroundings(os.environ.get("KAFKA_HOME", KAFKA_VERSION))
    print("\n".join(f"{name}: {value}" for name, value in facts.items()))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="CPU time of each record: this checkout beside another one."
    )
    parser.add_argument("other", metavar="OTHER_CHECKOUT", help="a folder with another version")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--only", nargs="+", choices=STYLES, metavar="STYLE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
