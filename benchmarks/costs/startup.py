"""How long it takes to begin: imports, a consumer beside aiokafka's, and `asyncrevoke run`.

    python -m benchmarks.costs.startup [--rounds R] [--json]

Each round is made of new processes. The broker is warm, has ten records waiting, and lets a group
begin at once (``group.initial.rebalance.delay.ms=0``; Apache Kafka's own default waits 3 s for
further members). Files are in the machine's cache after the round to warm up. Beside aiokafka,
measured is the CPU time of a process that imports, constructs and starts a consumer.

Measure where hypothesis is not installed, as in production: kio loads it, and with it trio and
pytest, wherever it is, which costs half a second of CPU.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from asyncrevoke.broker import KafkaBroker
from asyncrevoke.broker.installation.jars import KAFKA_VERSION
from benchmarks.report.surroundings import surroundings, table
from benchmarks.workload.load import fill_keyed

ROOT = Path(__file__).parents[2]
# With bytecode in files, as pip installs a package: compiling 200 modules takes 0.1 s.
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
}
DEADLINE = 60.0
APP = """
import os
import time

from asyncrevoke import Consumer

consumer = Consumer(
    bootstrap_servers=os.environ["BOOTSTRAP"], group_id=os.environ["GROUP"]
)


@consumer.handler("orders")
async def bill(order: bytes) -> None:
    print(time.monotonic(), flush=True)
    consumer.stop()
"""
STATEMENTS = {
    "import asyncrevoke": "import asyncrevoke",
    "from asyncrevoke import Consumer": "from asyncrevoke import Consumer",
}
TIMED = "import time; t = time.perf_counter(); {}; print(time.perf_counter() - t)"
RUN = "asyncrevoke run: the first record is handled"
STARTED = """
import asyncio, os, sys, time

{statement}


async def main():
    consumer = {consumer}
    await consumer.start()
    print(time.process_time(), len(sys.modules))
    await consumer.{close}()

asyncio.run(main())
"""
_OPTIONS = 'bootstrap_servers=os.environ["BOOTSTRAP"], group_id=os.environ["GROUP"]'
CONSUMERS = {
    "asyncrevoke": STARTED.format(
        statement="from asyncrevoke import Consumer",
        consumer=f"Consumer('orders', {_OPTIONS})",
        close="aclose",
    ),
    "aiokafka": STARTED.format(
        statement="from aiokafka import AIOKafkaConsumer",
        consumer=f"AIOKafkaConsumer('orders', {_OPTIONS})",
        close="stop",
    ),
}


def time_of(statement: str) -> float:
    """What a statement takes in a new interpreter, in seconds."""
    command = [sys.executable, "-c", TIMED.format(statement)]
    done = subprocess.run(command, check=True, capture_output=True, cwd=ROOT, env=ENVIRONMENT)
    return float(done.stdout)


def cost_of_start(client: str, bootstrap: str, group: str) -> tuple[float, int]:
    """The CPU seconds of a process until its consumer is started, and how many modules it has."""
    done = subprocess.run(
        [sys.executable, "-c", CONSUMERS[client]],
        check=True,
        capture_output=True,
        cwd=ROOT,
        env={**ENVIRONMENT, "BOOTSTRAP": bootstrap, "GROUP": group},
        timeout=DEADLINE,
    )
    seconds, modules = done.stdout.split()
    return float(seconds), int(modules)


def time_of_run(bootstrap: str, group: str, folder: Path) -> float:
    """From the start of the command to the first call of the handler, in seconds."""
    environment = {**ENVIRONMENT, "BOOTSTRAP": bootstrap, "GROUP": group, "PYTHONPATH": str(ROOT)}
    began = time.monotonic()  # the clock of the whole machine
    done = subprocess.run(
        [sys.executable, "-m", "asyncrevoke", "run", "app:consumer"],
        check=True,
        capture_output=True,
        cwd=folder,
        env=environment,
        timeout=DEADLINE,
    )
    return float(done.stdout.split()[0]) - began


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="How long it takes to begin.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="for machines")
    options = parser.parse_args()
    found: dict[str, list[float]] = {name: [] for name in (*STATEMENTS, RUN)}
    cpu: dict[str, list[float]] = {client: [] for client in CONSUMERS}
    modules: dict[str, int] = {}
    with (
        tempfile.TemporaryDirectory() as temporary,
        KafkaBroker(properties={"group.initial.rebalance.delay.ms": "0"}) as broker,
    ):
        folder = Path(temporary)
        (folder / "app.py").write_text(APP)
        broker.create_topic("orders", 4)
        keys = [b"key-%d" % number for number in range(10)]
        asyncio.run(fill_keyed(broker.bootstrap_servers, "orders", 4, keys, 100))
        for turn in range(options.rounds + 1):
            measured = {name: time_of(statement) for name, statement in STATEMENTS.items()}
            measured[RUN] = time_of_run(broker.bootstrap_servers, f"group-{turn}", folder)
            for what, seconds in measured.items():
                if turn:
                    found[what].append(seconds)
            for client in CONSUMERS:
                group = f"{client}-{turn}"
                seconds, modules[client] = cost_of_start(client, broker.bootstrap_servers, group)
                if turn:
                    cpu[client].append(seconds)
    ratio = statistics.median(cpu["asyncrevoke"]) / statistics.median(cpu["aiokafka"])
    facts = surroundings(os.environ.get("KAFKA_HOME", KAFKA_VERSION))
    if options.json:
        started = {"cpu": cpu, "modules": modules, "ratio": ratio}
        print(json.dumps({"surroundings": facts, "seconds": found, "started": started}, indent=2))
        return 0
    rows = [
        [name, f"{statistics.median(every):.3f}", f"{min(every):.3f} to {max(every):.3f}"]
        for name, every in found.items()
    ]
    print(table(["", "median, s", "from, to"], rows))
    rows = [
        [client, f"{statistics.median(every):.3f}", str(modules[client])]
        for client, every in cpu.items()
    ]
    print(table(["a consumer is started", "median, s of CPU", "modules"], rows))
    print(f"CPU of asyncrevoke to that of aiokafka: {ratio:.2f}")
    print("\n".join(f"{name}: {value}" for name, value in facts.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
