"""Clients in Java: programs of one file each (``benchmarks/java``), which a JDK runs as they are.

The Java client is that of the broker's own jars; Confluent's parallel-consumer comes from Maven,
with the client that it asks for.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import NamedTuple

from asyncrevoke.broker.class_path import class_path
from asyncrevoke.broker.java import find_java
from asyncrevoke.broker.supervisor import die_with_parent

SOURCES = Path(__file__).parent / "java"
PARALLEL_CONSUMER = "io.confluent.parallelconsumer:parallel-consumer-core:0.5.3.3"
HEAP = "1g"


class Told(NamedTuple):
    """What a program has printed; seconds are those after its ``first`` records."""

    records: int
    size: int
    seconds: float
    cpu: float
    first: int


def kafka_class_path() -> str:
    """The jars of Apache Kafka."""
    return class_path()


def parallel_consumer_class_path() -> str:
    """The jars of parallel-consumer and what it needs, from Maven; downloaded once."""
    import jgo  # noqa: PLC0415 - an extra, and slow to load
    from jgo.config import GlobalSettings  # noqa: PLC0415
    from jgo.constants import MAVEN_CENTRAL_URL  # noqa: PLC0415

    repositories = {**GlobalSettings.load().repositories, "central": MAVEN_CENTRAL_URL}
    environment = jgo.build(PARALLEL_CONSUMER, repositories=repositories)
    return os.pathsep.join(str(jar) for jar in environment.all_jars)


async def run(source: str, jars: str, *arguments: object) -> Told:
    """Run a program to its end. RuntimeError with its last line if it fails."""
    process = await asyncio.create_subprocess_exec(
        str(find_java().path),
        f"-Xmx{HEAP}",
        "-cp",
        jars,
        str(SOURCES / source),
        *map(str, arguments),
        stdout=PIPE,
        stderr=PIPE,
        preexec_fn=die_with_parent if sys.platform == "linux" else None,
    )
    try:
        output, errors = await process.communicate()
    except BaseException:
        process.kill()
        raise
    lines = output.decode().split("\n")
    if process.returncode != 0 or not lines[0]:
        said = errors.decode().strip().splitlines()
        wrong = [line for line in said if "rror" in line or "xception" in line]
        raise RuntimeError(f"{source}: {(wrong or said or ['it says nothing'])[0]}")
    records, size, seconds, cpu, first = lines[0].split()
    return Told(int(records), int(size), float(seconds), float(cpu), int(first))
