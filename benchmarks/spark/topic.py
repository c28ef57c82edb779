"""What the benchmarks of the Spark side share: a broker with a topic, a Spark, and timed runs."""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaProducer
from jgo.config import GlobalSettings
from jgo.constants import MAVEN_CENTRAL_URL
from jgo.maven import MavenContext, PythonResolver
from pyspark.sql import SparkSession

from asyncrevoke.broker import KafkaBroker
from asyncrevoke.spark.session import open_session

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

PARTITIONS = 8
TOPIC = "benchmark"
_VALUES = 1009
# Each by itself, not by ``spark.jars.packages``: of the second one not every repository has the
# release of the same number, and this one works with it.
_CONNECTOR = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)


def parser(description: str) -> argparse.ArgumentParser:
    """The options of each benchmark."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--records", type=int, default=2_000_000)
    options.add_argument("--size", type=int, default=100, help="bytes of each value")
    options.add_argument("--runs", type=int, default=3, help="warm runs of each, interleaved")
    options.add_argument("--only", nargs="+", help="of what is compared, by name")
    options.add_argument("--jars", help="jars of Spark's Kafka connector, a,b,c: compare with it")
    options.add_argument("--packages", action="store_true", help="the same, from Maven Central")
    return options


@contextmanager
def running(
    arguments: argparse.Namespace,
    records_before: int | None = None,
    values: Sequence[bytes] = (),
    compression: str = "none",
    partitions: int = PARTITIONS,
) -> Generator[tuple[SparkSession, str]]:
    """A local Spark, and the address of a broker whose topic has so many records: by default those
    that the arguments say."""
    before = arguments.records if records_before is None else records_before
    with KafkaBroker() as broker:
        broker.create_topic(TOPIC, partitions)
        values = values or values_of(arguments.size)
        asyncio.run(fill(broker.bootstrap_servers, before, values, compression, partitions))
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        # As open_session() does; the bridge between the connector and handlers gains by it, too.
        builder = builder.config("spark.python.unix.domain.socket.enabled", "true")
        if arguments.jars:
            builder = builder.config("spark.jars", arguments.jars)
        if arguments.packages:
            builder = with_connector(builder)
        builder.getOrCreate().sparkContext.setLogLevel("ERROR")
        spark = open_session()
        yield spark, broker.bootstrap_servers
        spark.stop()


def with_connector(builder: SparkSession.Builder) -> SparkSession.Builder:
    """A Spark that has the jars of its Kafka connector, from Maven."""
    return builder.config("spark.jars", jars(*_CONNECTOR))


def jars(*artifacts: tuple[str, str, str]) -> str:
    """The files of these groups, names and versions, separated by commas, from Maven."""
    context = MavenContext(
        resolver=PythonResolver(),
        remote_repos={**GlobalSettings.load().repositories, "central": MAVEN_CENTRAL_URL},
    )
    files = [
        context.project(group, artifact).at_version(version).artifact(packaging="jar").resolve()
        for group, artifact, version in artifacts
    ]
    return ",".join(map(str, files))


def values_of(size: int, spread: int = 0, *, compressible: bool = False) -> list[bytes]:
    """Values that records have in turn: hexadecimal digits at random if they will be compressed."""
    chance = random.Random(0)
    sizes = [
        size + chance.randint(-spread, spread)
        for _ in range(_VALUES if spread or compressible else 1)
    ]
    if not compressible:
        return [b"v" * each for each in sizes]
    return [chance.randbytes(each // 2 + 1).hex().encode()[:each] for each in sizes]


async def fill(
    address: str,
    records: int,
    values: Sequence[bytes],
    compression: str = "none",
    partitions: int = PARTITIONS,
) -> None:
    """Write so many records of 5,000 keys, to the partitions in turn."""
    producer: Any = AIOKafkaProducer(  # half typed
        bootstrap_servers=address, linger_ms=20, max_batch_size=500_000, max_request_size=2_000_000,
        compression_type=None if compression == "none" else compression,
    )  # fmt: skip
    async with producer:
        for number in range(records):
            await producer.send(
                TOPIC,
                values[number % len(values)],
                key=b"%d" % (number % 5000),
                partition=number % partitions,
            )


def compare(arguments: argparse.Namespace, ways: Mapping[str, Callable[[], None]]) -> None:
    """Time each way once cold, then interleaved; print records per second.

    And the processor time of a record in all processes (Spark, workers, broker), which tells the
    same on a machine that has other work: cores divided by it is the most that there can be.
    """
    if arguments.only:
        ways = {name: ways[name] for name in arguments.only}
    records, runs = arguments.records, arguments.runs
    cold = {name: timed(run)[0] for name, run in ways.items()}
    warm: dict[str, list[tuple[float, dict[str, float]]]] = {name: [] for name in ways}
    for _ in range(runs):
        for name, run in ways.items():
            warm[name].append(timed(run))
    first = statistics.median(seconds for seconds, _ in warm[next(iter(ways))])
    for name, measured in warm.items():
        median = statistics.median(seconds for seconds, _ in measured)
        total = statistics.median(sum(each.values()) for _, each in measured)
        rates = ", ".join(f"{records / seconds:,.0f}" for seconds, _ in measured)
        by_part = {
            part: statistics.median(each.get(part, 0.0) for _, each in measured)
            for part in ("Spark", "workers", "driver", "broker")
        }
        parts = ", ".join(f"{part} {used / records * 1e6:.1f}" for part, used in by_part.items())
        print(
            f"{name:24} cold {cold[name]:6.1f} s   warm {records / median:10,.0f}/s ({rates})"
            f"   {first / median:5.2f}x   {total / records * 1e6:6.1f} us of processor time"
            f" a record ({parts})",
            flush=True,
        )


def timed(run: Callable[[], object]) -> tuple[float, dict[str, float]]:
    """The seconds that it takes, and the processor time of each part."""
    began, before = time.perf_counter(), _processor_times()
    run()
    seconds, after = time.perf_counter() - began, _processor_times()
    return seconds, {part: used - before.get(part, 0.0) for part, used in after.items()}


def _processor_times() -> dict[str, float]:
    """Seconds of this process and all that it has started, those that have ended included.

    From /proc: nothing where there is none.
    """
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    words: dict[int, str] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text().rpartition(")")[2].split()
            command = file.with_name("cmdline").read_text()
        except OSError:  # it has ended meanwhile
            continue
        number = int(file.parent.name)
        parents[number] = int(fields[1])
        ticks[number] = sum(map(int, fields[11:15]))
        words[number] = command
    ours = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in ours} - ours:
        ours |= more
    seconds: dict[str, float] = {}
    for number in ours & ticks.keys():
        part = _part(number, words[number])
        seconds[part] = seconds.get(part, 0.0) + ticks[number] / os.sysconf("SC_CLK_TCK")
    return seconds


def _part(number: int, command: str) -> str:
    if number == os.getpid():
        return "driver"
    if "SparkSubmit" in command:
        return "Spark"
    return "workers" if "pyspark" in command else "broker"
