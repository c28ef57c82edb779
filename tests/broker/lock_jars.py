"""Prints the lock of Apache Kafka's jars: part, coordinates, size and SHA-256 of each.

    python tests/broker/lock_jars.py 4.4.0 > asyncrevoke/broker/installation/kafka-4.4.0.lock

The part ``server`` holds the jars of a broker, ``tools`` those that the Java command line tools
need as well. A second argument is the version of the tools, where Maven Central lacks them for the
broker's version. The jars come from Maven Central, or the repositories in jgo's settings.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path

from jgo.config import GlobalSettings
from jgo.constants import MAVEN_CENTRAL_URL
from jgo.maven import Artifact, Dependency, MavenContext, PythonResolver

PARTS = {"server": "kafka_2.13", "tools": "kafka-tools"}
# Kafka logs through slf4j-api; this binding writes to stderr.
LOGGING = ("slf4j-api", "slf4j-simple")


def locked(versions: dict[str, str], scratch: Path) -> list[str]:
    """The lines of the lock, sorted within each part; ``versions`` by part."""
    context = MavenContext(
        resolver=PythonResolver(),
        repo_cache=scratch,
        remote_repos={**GlobalSettings.load().repositories, "central": MAVEN_CENTRAL_URL},
        timeout=60,
    )
    lines: list[str] = []
    known: set[tuple[str, str]] = set()
    for part, name in PARTS.items():
        root = context.project("org.apache.kafka", name).at_version(versions[part]).artifact()
        _, needed = context.resolver.get_dependency_list([Dependency(root, scope="compile")])
        jars = [root, *(node.dep.artifact for node in needed)]
        api, binding = LOGGING
        jars += [
            context.project(jar.groupId, binding).at_version(jar.version).artifact()
            for jar in jars
            if jar.artifactId == api
        ]
        new = [jar for jar in jars if (jar.groupId, jar.artifactId) not in known]
        known |= {(jar.groupId, jar.artifactId) for jar in new}
        lines += sorted(_line(part, jar) for jar in new)
    return lines


def _line(part: str, jar: Artifact) -> str:
    content = Path(jar.resolve()).read_bytes()
    coordinates = f"{jar.groupId}:{jar.artifactId}:{jar.version}"
    return f"{part} {coordinates} {len(content)} {hashlib.sha256(content).hexdigest()}"


if __name__ == "__main__":
    versions = {"server": sys.argv[1], "tools": sys.argv[-1]}
    with tempfile.TemporaryDirectory() as folder:
        print("# part coordinates bytes sha-256")
        print("\n".join(locked(versions, Path(folder))))
