"""What a measurement depends on: versions and the machine. Printed beside every result."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

from asyncrevoke.broker.errors import BrokerMissingError
from asyncrevoke.broker.installation.java import find_java
from benchmarks.clients.java_clients import PEERS, origin

PACKAGES = (
    "asyncrevoke",
    "aiokafka",
    "confluent-kafka",
    "faststream",
    "faststream-concurrent-aiokafka",
    "faust-streaming",
    "kafka-python",
    "kstreams",
)


def surroundings(broker: str) -> dict[str, str]:
    """Versions of the clients, of Python and of the broker, and the processor."""
    found = {package: _version(package) for package in PACKAGES}
    found |= {peer.name: origin(peer) for peer in PEERS}
    return found | {
        "Apache Kafka": broker,
        "Java": _java(),
        "Python": platform.python_version(),
        "machine": f"{os.cpu_count()} cores, {_processor()}, {platform.system()}",
    }


def table(header: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join(
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in lines
    )


def _java() -> str:
    try:
        return str(find_java().version)
    except BrokerMissingError:
        return "not installed"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "from the source" if package == "asyncrevoke" else "not installed"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
