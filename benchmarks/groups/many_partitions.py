"""What a thousand partitions cost of which ten are busy, or none.

    python -m benchmarks.groups.many_partitions [--json] [--only NAME ...]

Two topics hold the same records, in ten partitions each; one of them has many partitions beside
those, which are empty. The clients take turns in reading each topic, each time in a new process and
with a new group, and then stay for a while in which nothing happens: the rates of the two topics
are compared, and what the quiet time costs of a core.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import sys
import time
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from asyncrevoke.broker.installation.jars import KAFKA_VERSION
from benchmarks.clients.raw_clients import Log, Meter
from benchmarks.report.surroundings import surroundings, table
from benchmarks.workload.broker import measured_broker, topic_name
from benchmarks.workload.load import fill

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from benchmarks.clients.aiokafka_types import Reader

BUSY = 10
SIZE = 100
DEADLINE = 90.0
# What is left to do after the last record is done by then: commits, the first long polls.
SETTLING = 3.0


class Found(NamedTuple):
    """Records per second, by the clock and by the CPU time, and the share of a core when idle."""

    clock: float
    cpu: float
    idle: float


class Client(Protocol):
    """Reads the log, then stays for ``seconds``; returns which share of a core that has cost."""

    async def __call__(self, log: Log, meter: Meter, seconds: float) -> float:
        """Add each batch to ``meter``."""
        ...


class IdleTime:
    """The CPU time of this process between two moments."""

    def __init__(self) -> None:
        self._from = (time.perf_counter(), time.process_time())

    def share(self) -> float:
        """The share of a core since it was made."""
        clock, cpu = self._from
        return (time.process_time() - cpu) / (time.perf_counter() - clock)


async def asyncrevoke(log: Log, meter: Meter, seconds: float) -> float:
    """``async for batch in consumer``, and a task beside it that ends it."""
    from asyncrevoke import Consumer

    shares: list[float] = []

    async def stay() -> None:
        await asyncio.sleep(SETTLING)
        idle = IdleTime()
        await asyncio.sleep(seconds)
        shares.append(idle.share())
        consumer.stop()

    async with Consumer(log.topic, bootstrap_servers=log.bootstrap, group_id=log.group) as consumer:
        ends: asyncio.Task[None] | None = None
        async for batch in consumer:
            size = 0
            for record in batch.records:
                size += len(record.value or b"")
            if len(batch.records) and meter.add(len(batch.records), size):
                ends = asyncio.create_task(stay())
        if ends is not None:
            await ends
    return shares[0]


async def aiokafka(log: Log, meter: Meter, seconds: float) -> float:
    """``getmany()``, and one that waits all the time."""
    from aiokafka import AIOKafkaConsumer

    client = AIOKafkaConsumer(
        log.topic,
        bootstrap_servers=log.bootstrap,
        group_id=log.group,
        auto_offset_reset="earliest",
    )
    async with cast("Reader", client) as consumer:
        done = False
        while not done:
            batch = await consumer.getmany(timeout_ms=1000)
            count = size = 0
            for records in batch.values():
                count += len(records)
                for record in records:
                    size += len(record.value)
            done = count > 0 and meter.add(count, size)
        _ = await consumer.getmany(timeout_ms=round(SETTLING * 1000))
        idle = IdleTime()
        _ = await consumer.getmany(timeout_ms=round(seconds * 1000))
        return idle.share()


CLIENTS: dict[str, Client] = {"asyncrevoke": asyncrevoke, "aiokafka": aiokafka}


def read(client: str, log: Log, seconds: float, pipe: Connection) -> None:
    """Read the log, be idle, and send what was found; blocks."""
    meter = Meter(log.total)
    try:
        idle = asyncio.run(CLIENTS[client](log, meter, seconds))
        pipe.send((meter.records, Found(*meter.rates(), idle)))
    except Exception as error:  # noqa: BLE001 - it is told in the other process
        pipe.send((0, f"{type(error).__name__}: {error}"))


def measure(client: str, log: Log, seconds: float) -> Found:
    """One reading, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=read, args=(client, log, seconds, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(DEADLINE + seconds):
            raise RuntimeError(f"{client}: not done within {DEADLINE + seconds:.0f} s")
        try:
            records, found = ours.recv()
        except EOFError:
            raise RuntimeError(f"{client} failed; see above") from None
    finally:
        process.join(10)
        process.kill()
    if isinstance(found, str):
        raise RuntimeError(f"{client}: {found}")  # noqa: TRY004 - an error of its process
    if records != log.total:
        raise RuntimeError(f"{client} read {records} records instead of {log.total}")
    return Found(*found)


def main() -> int:
    """Measure and print."""
    options = _options()
    clients = [c for c in CLIENTS if not options.only or any(o in c for o in options.only)]
    topics = {BUSY: topic_name("few"), options.partitions: topic_name("many")}
    failures: dict[tuple[str, int], str] = {}
    found: dict[tuple[str, int], list[Found]] = {(c, p): [] for c in clients for p in topics}
    with measured_broker() as broker:
        for partitions, topic in topics.items():
            broker.create_topic(topic, partitions)
            asyncio.run(fill(broker.bootstrap_servers, topic, BUSY, options.records, SIZE))
        for turn in range(1 if options.cold else 0, options.rounds + 1):
            for number, (client, partitions) in enumerate(found):
                log = Log(
                    broker.bootstrap_servers,
                    topics[partitions],
                    f"{topics[partitions]}-{turn}-{number}",
                    options.records,
                )
                # The first turn warms the broker and the page cache: one client is enough for that.
                if (client, partitions) in failures or (turn == 0 and client != clients[0]):
                    continue
                try:
                    result = measure(client, log, options.idle)
                except Exception as error:  # noqa: BLE001 - whatever it is, the others go on
                    failures[client, partitions] = str(error) or type(error).__name__
                    sys.stderr.write(f"{failures[client, partitions]}\n")
                    continue
                sys.stderr.write(
                    f"round {turn or 'to warm up'}, {client}, {partitions} partitions:"
                    f" {result.clock:,.0f}/s, idle {result.idle:.2%}\n"
                )
                if turn:
                    found[client, partitions].append(result)
        for topic in topics.values():
            broker.delete_topic(topic)
    facts = surroundings(os.environ.get("KAFKA_HOME", KAFKA_VERSION))
    if options.json:
        results = [
            {"client": client, "partitions": partitions, **_columns(candidate)}
            for (client, partitions), candidate in found.items()
        ]
        failed = {f"{c}, {p} partitions": why for (c, p), why in failures.items()}
        found_all = {"surroundings": facts, "results": results, "failed": failed}
        print(json.dumps(found_all, indent=2))
    else:
        header = ["medians", "partitions", "records/s", "per second of CPU", "idle, of a core"]
        rows = [
            [
                client,
                str(partitions),
                f"{statistics.median(f.clock for f in candidate):,.0f}",
                f"{statistics.median(f.cpu for f in candidate):,.0f}",
                f"{statistics.median(f.idle for f in candidate):.2%}",
            ]
            for (client, partitions), candidate in found.items()
            if candidate
        ]
        print(table(header, rows))
        print()
        print(f"records: {options.records:,} of {SIZE} bytes in {BUSY} partitions")
        print("\n".join(f"{name}: {value}" for name, value in facts.items()))
    return 1 if failures else 0


def _columns(rounds: list[Found]) -> dict[str, list[float]]:
    return {name: [getattr(f, name) for f in rounds] for name in Found._fields}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="What a thousand partitions cost of which ten are busy, or none."
    )
    parser.add_argument("--json", action="store_true", help="for machines")
    parser.add_argument("--cold", action="store_true", help="no round to warm up")
    parser.add_argument("--only", nargs="+", metavar="NAME", help=f"of {', '.join(CLIENTS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--idle", type=float, default=10.0, help="seconds of doing nothing")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
