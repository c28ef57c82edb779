"""The jars of Apache Kafka: an installation of the user's, or our own checked cache of them."""

from __future__ import annotations

import importlib.resources
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from asyncrevoke.broker.errors import BrokerMissingError, BrokerStartError

KAFKA_VERSION = "4.3.1"

FIX = "pip install 'asyncrevoke[demo]', or set KAFKA_HOME to an unpacked Apache Kafka"


class Progress(NamedTuple):
    """How far a download has come, in bytes."""

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
        """The file's name in a Maven repository and in our cache."""
        return f"{self.artifact}-{self.version}.jar"


def class_path(*, tools: bool = False, on_progress: OnProgress | None = None) -> str:
    """The class path of Apache Kafka, downloaded into the user's cache if it is not there yet.

    ``KAFKA_HOME`` comes first. Several processes may call this at once: one downloads, the others
    wait for it. Every downloaded file is checked against its locked SHA-256.

    Args:
        tools: also the jars of the command line tools, such as
            ``org.apache.kafka.tools.VerifiableConsumer``.
        on_progress: called while downloading, from threads of the download, one at a time.

    Raises:
        BrokerMissingError: the packages that download are not installed.
        BrokerStartError: the download failed.
    """
    home = os.environ.get("KAFKA_HOME")
    if home:
        return installed_class_path(Path(home))
    wanted = [jar for jar in locked_jars() if tools or jar.part == "server"]
    folder = cache_folder()
    if missing(wanted, folder):
        from asyncrevoke.broker.download import fill  # noqa: PLC0415 - loads jgo

        fill(wanted, folder, on_progress)
    return os.pathsep.join(str(folder / jar.filename) for jar in wanted)


def installed_class_path(home: Path) -> str:
    """The class path of an unpacked Apache Kafka distribution.

    Raises:
        BrokerStartError: there are no jars of it in ``libs``.
    """
    libs = home / "libs"
    if not any(libs.glob("kafka_2.*.jar")):
        raise BrokerStartError(
            f"KAFKA_HOME={home} has no libs/kafka_2.*.jar: set it to the folder of an unpacked "
            "Apache Kafka, or unset it to have the jars downloaded"
        )
    return str(libs / "*")


def locked_jars() -> list[Jar]:
    """Every jar that belongs to this version, with its size and SHA-256."""
    lock = importlib.resources.files("asyncrevoke.broker") / f"kafka-{KAFKA_VERSION}.lock"
    jars: list[Jar] = []
    for line in lock.read_text("utf-8").splitlines():
        if line.startswith("#"):
            continue
        part, coordinates, size, sha256 = line.split()
        group, artifact, version = coordinates.split(":")
        jars.append(Jar(part, group, artifact, version, int(size), sha256))
    return jars


def cache_folder() -> Path:
    """Where the jars are kept, beside what other programs of this user cache."""
    try:
        import platformdirs  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise BrokerMissingError(f"{error.name} is not installed: {FIX}") from error
    return platformdirs.user_cache_path("asyncrevoke", False) / f"kafka-{KAFKA_VERSION}"


def missing(jars: Sequence[Jar], folder: Path) -> list[Jar]:
    """Those that are not in the folder. Files appear there only whole and checked."""
    try:
        with os.scandir(folder) as entries:
            sizes = {entry.name: entry.stat().st_size for entry in entries}
    except FileNotFoundError:
        return list(jars)
    return [jar for jar in jars if sizes.get(jar.filename) != jar.size]
