"""What ``asyncrevoke audit`` takes for a topic and the journal of the group that has handled it.

    python -m benchmarks.costs.audit [--records N] [--content records batches] [--runs R]

A consumer with a journal handles a topic of N records. Then the command runs as a process of its
own, R times: from its start to its end, its processor time and its peak memory, which the system
counts. ``--limit`` is its ``--memory-limit``. ``--python`` is the interpreter that runs it, of an
environment like a user's; the project's own environment imports packages of its tests too. With
``--folder`` the journal stays there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from aiokafka import AIOKafkaProducer

from asyncrevoke import Consumer, Record
from asyncrevoke.broker.installation.jars import KAFKA_VERSION
from asyncrevoke.journal import Journal
from benchmarks.report.surroundings import surroundings
from benchmarks.workload.broker import measured_broker, topic_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.journal.format.schema import Content

PARTITIONS = 8
KEYS = 5000
_BATCH = 1000
_CONTENTS: dict[str, Content] = {"records": "records", "batches": "batches"}


class Cost(NamedTuple):
    """Of one run of the command."""

    status: str
    seconds: float
    cpu: float
    mebibytes: float


async def fill(address: str, topic: str, records: int, size: int) -> None:
    """Write records of :data:`KEYS` keys, in batches of one partition."""
    chance = random.Random(1)
    values = [chance.randbytes(size) for _ in range(_BATCH)]
    client: Any = AIOKafkaProducer(  # half typed
        bootstrap_servers=address, max_batch_size=2**20, max_request_size=2**22
    )
    async with client as producer:
        for number, first in enumerate(range(0, records, _BATCH)):
            batch = producer.create_batch()
            for at in range(first, min(first + _BATCH, records)):
                key = b"%d" % chance.randrange(KEYS)
                batch.append(key=key, value=values[at % _BATCH], timestamp=None)
            await producer.send_batch(batch, topic, partition=number % PARTITIONS)
        await producer.flush()


async def handle(address: str, topic: str, folder: Path, records: int, content: Content) -> None:
    """Handle all of the topic, with a journal."""
    consumer = Consumer(
        bootstrap_servers=address,
        group_id=f"{topic}-{content}",
        auto_offset_reset="earliest",
        journal=Journal(folder, content=content),
    )
    done = asyncio.Event()
    left = records

    @consumer.handler(topic)
    async def each(_record: Record) -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    async with consumer:
        await done.wait()


def audited(python: str, address: str, topic: str, folder: Path, more: Sequence[str]) -> Cost:
    """Run the command."""
    command = [python, "-m", "asyncrevoke", "audit", str(folder), "--topic", topic]
    command += ["--bootstrap-servers", address, "--json", *more]
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        output = process.stdout.read()
        _, code, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(code)
    seconds = time.perf_counter() - began
    status = cast("dict[str, object]", json.loads(output))["status"]
    # ru_maxrss has the unit of Linux.
    return Cost(str(status), seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


class _Options(argparse.Namespace):
    records: int
    size: int
    content: list[str]
    runs: int
    limit: int | None
    python: str
    folder: Path | None


def main() -> None:
    """Measure it."""
    parser = argparse.ArgumentParser(description="What asyncrevoke audit takes.")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of each value")
    parser.add_argument("--content", nargs="+", choices=list(_CONTENTS), default=list(_CONTENTS))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--limit", type=int, help="--memory-limit of the command, in MiB")
    parser.add_argument("--python", default=sys.executable, help="runs the command")
    parser.add_argument("--folder", type=Path, help="a new folder for the journals, which stay")
    options = parser.parse_args(namespace=_Options())
    topic = topic_name("audited")
    more = [] if options.limit is None else ["--memory-limit", str(options.limit)]
    with measured_broker() as broker, tempfile.TemporaryDirectory() as temporary:
        address = broker.bootstrap_servers
        broker.create_topic(topic, PARTITIONS)
        asyncio.run(fill(address, topic, options.records, options.size))
        for name in options.content:
            folder = (options.folder or Path(temporary)) / name
            asyncio.run(handle(address, topic, folder, options.records, _CONTENTS[name]))
            for _ in range(options.runs):
                cost = audited(options.python, address, topic, folder, more)
                print(
                    f"{name:8} {options.records:,} records of {options.size} bytes: {cost.status}, "
                    f"{cost.seconds:.2f} s, {cost.cpu:.2f} s of processor time, "
                    f"{cost.mebibytes:,.0f} MiB",
                    flush=True,
                )
    for what, value in surroundings(KAFKA_VERSION).items():
        print(f"{what}: {value}")


if __name__ == "__main__":
    main()
