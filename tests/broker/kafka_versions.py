"""Runs broker tests against several versions of Apache Kafka, one after the other.

    PYTHONPATH=tests python -m broker.kafka_versions [--versions 3.9.1 4.4.0] [PYTEST ARGUMENTS ...]

The jars of each version come from Maven Central, or the repositories in jgo's settings, and are
kept in the user's cache. ``KAFKA_HOME`` names them to the tests.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import platformdirs
from broker.servers.starting.jars import jars

VERSIONS = ("3.9.1", "4.0.0", "4.1.1", "4.2.2", "4.3.1", "4.4.0")
# Folders by the first version that offers what their tests use: 4.0 has groups of KIP-848,
# 4.2 has share groups.
TESTS = {
    "tests/broker/records": (3, 9),
    "tests/broker/groups": (4, 0),
    "tests/broker/requests": (4, 0),
    "tests/broker/handlers/share": (4, 2),
}
ROOT = Path(__file__).parents[2]


def kafka_home(version: str) -> Path:
    """A folder with the jars of a version in ``libs``, downloaded if it is not there yet."""
    home = platformdirs.user_cache_path("asyncrevoke", False) / f"kafka-home-{version}"
    jars(home / "libs", "org.apache.kafka", "kafka_2.13", version)
    return home


def main() -> int:
    """The exit code is 1 if the tests failed with any version."""
    parser = argparse.ArgumentParser(description="Broker tests with several versions of Kafka.")
    parser.add_argument("--versions", nargs="+", default=VERSIONS)
    options, arguments = parser.parse_known_args()
    failed: list[str] = []
    for version in options.versions:
        print(f"--- Apache Kafka {version}", flush=True)
        environment = {**os.environ, "KAFKA_HOME": str(kafka_home(version))}
        release = tuple(int(part) for part in version.split("."))
        folders = [folder for folder, first in TESTS.items() if release >= first]
        command = [sys.executable, "-m", "pytest", *(arguments or folders)]
        if subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode:
            failed.append(version)
    print(f"failed with Apache Kafka {', '.join(failed)}" if failed else "passed with all versions")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
