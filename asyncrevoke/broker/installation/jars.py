"""The locked jars of Apache Kafka, and their cache."""

from __future__ import annotations

import hashlib
import importlib.resources
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.broker.errors import BrokerMissingError

if TYPE_CHECKING:
    from pathlib import Path

KAFKA_VERSION = "4.4.0"

FIX = "pip install 'asyncrevoke[demo]', or set KAFKA_HOME to an unpacked Apache Kafka"


class Progress(NamedTuple):
    """The progress of a download, in bytes."""

    done: int
    total: int


OnProgress = Callable[[Progress], None]


class Jar(NamedTuple):
    """One locked jar; ``part`` is ``server``, or ``tools`` for the Java command line tools."""

    part: str
    group: str
    artifact: str
    version: str
    size: int
    sha256: str

    @property
    def filename(self) -> str:
        """The file's name in a Maven repository and in the cache."""
        return f"{self.artifact}-{self.version}.jar"


def locked_jars() -> list[Jar]:
    """Every jar of ``KAFKA_VERSION``, with its size and SHA-256."""
    folder = importlib.resources.files("asyncrevoke.broker.installation")
    lock = folder / f"kafka-{KAFKA_VERSION}.lock"
    jars: list[Jar] = []
    for line in lock.read_text("utf-8").splitlines():
        if line.startswith("#"):
            continue
        part, coordinates, size, sha256 = line.split()
        group, artifact, version = coordinates.split(":")
        jars.append(Jar(part, group, artifact, version, int(size), sha256))
    return jars


def cache_folder() -> Path:
    """The folder of the jars, in this user's cache folder."""
    try:
        import platformdirs
    except ImportError as error:
        raise BrokerMissingError(f"{error.name} is not installed: {FIX}") from error
    return platformdirs.user_cache_path("asyncrevoke", False) / f"kafka-{KAFKA_VERSION}"


def missing(jars: Sequence[Jar], folder: Path) -> list[Jar]:
    """The jars that are not in the folder, or have another digest there."""
    return [jar for jar in jars if not _is_locked(folder / jar.filename, jar)]


def _is_locked(path: Path, jar: Jar) -> bool:
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size != jar.size:
                return False
            return hashlib.file_digest(file, "sha256").hexdigest() == jar.sha256
    except FileNotFoundError:
        return False
