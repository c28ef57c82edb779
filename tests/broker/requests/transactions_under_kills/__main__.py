"""Runs one after another, and a table of what librdkafka read; with ``tests`` on PYTHONPATH:

python -m broker.requests.transactions_under_kills --runs 20
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from broker.kafka_release import kafka_release
from broker.requests.transactions_under_kills.run import (
    CLUSTER_PROPERTIES,
    PROPERTIES,
    Faults,
    Run,
)

from asyncrevoke.broker import KafkaBroker, KafkaCluster

if TYPE_CHECKING:
    from asyncrevoke.broker.running import RunningBroker

PROTOCOLS = ("classic", "consumer")
COLUMNS = (
    *("protocol", "transaction.version", "seed", "inputs", "handled"),
    *("doubled", "missing", "disordered", "seconds"),
)


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(prog="exactly-once", description=__doc__)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the first run")
    parser.add_argument("--runs", type=int, default=5, help="of each protocol and version")
    parser.add_argument("--protocol", nargs="+", choices=PROTOCOLS, default=PROTOCOLS)
    parser.add_argument("--version", type=int, nargs="+", choices=(0, 1, 2), default=(2, 1))
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1)
    for name, count in Faults()._asdict().items():
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=int, default=count, help="of each run"
        )
    parser.add_argument("--evidence", type=Path, help="where members write their logs")
    return parser.parse_args()


def start(brokers: int, version: int) -> KafkaBroker | KafkaCluster:
    """Brokers to enter, formatted with this transaction.version."""
    # Before 4.0 there is no such feature, which is level 0.
    features = {"transaction.version": version} if kafka_release() >= (4, 0) else {}
    if brokers == 1:
        return KafkaBroker(properties=PROPERTIES, features=features)
    return KafkaCluster(properties=PROPERTIES | CLUSTER_PROPERTIES, features=features)


async def main() -> int:
    """Run, and print a line for each run; returns how many were bad."""
    args = arguments()
    faults = Faults(*(getattr(args, name) for name in Faults._fields))
    bad = runs = inputs = doubled = missing = disordered = 0
    print(f"| {' | '.join(COLUMNS)} |", flush=True)
    print("|---|" + "---:|" * (len(COLUMNS) - 1), flush=True)
    for version in args.version:
        with ExitStack() as stack:
            folder = args.evidence or Path(stack.enter_context(tempfile.TemporaryDirectory()))
            folder.mkdir(parents=True, exist_ok=True)
            started = start(args.brokers, version)
            servers: RunningBroker = stack.enter_context(started)
            brokers: list[KafkaBroker]
            brokers = started.brokers if isinstance(started, KafkaCluster) else [started]
            for index in range(args.runs):
                for protocol in args.protocol:
                    seed: int = args.seed + index
                    run = Run(
                        servers,
                        f"v{version}-{protocol}-{seed}",
                        folder,
                        protocol,
                        seed=seed,
                        brokers=brokers,
                        static=faults.twins + faults.frozen_twins > 0,
                    )
                    outcome = await run.execute(faults)
                    runs += 1
                    bad += not outcome.is_good
                    inputs += outcome.inputs
                    doubled += outcome.verdict.doubled
                    missing += outcome.verdict.missing
                    disordered += outcome.verdict.disordered
                    verdict = " | ".join(map(str, outcome.verdict))
                    print(
                        f"| {protocol} | {version} | {seed} | {outcome.inputs} | {outcome.handled} "
                        f"| {verdict} | {outcome.seconds:.0f} |",
                        *outcome.problems,
                        flush=True,
                    )
    print(
        f"{runs} runs, {runs * faults.kills} kills, {inputs} inputs: "
        f"{doubled} doubled, {missing} missing, {disordered} disordered; {bad} bad runs"
    )
    return bad


if __name__ == "__main__":
    sys.exit(min(asyncio.run(main()), 1))
