"""Archives of the classes that Apache Kafka loads: with one, Java starts a broker sooner."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from asyncrevoke.broker.errors import BrokerMissingError, BrokerStartError
from asyncrevoke.broker.installation.jars import cache_folder, locked_jars, missing

if TYPE_CHECKING:
    from asyncrevoke.broker.installation.jars import OnProgress


def class_path(*, tools: bool = False, on_progress: OnProgress | None = None) -> str:
    """The class path of Apache Kafka, downloaded into the user's cache if it is missing.

    An installation in ``KAFKA_HOME`` is used first, and trusted. Several processes may call this at
    once: one downloads, the others wait. Each call compares every file with its locked SHA-256, and
    downloads a file that differs again. ``tools`` adds the jars of the command line tools. Threads
    of the download call ``on_progress``, one at a time.

    Raises BrokerMissingError if the packages for downloading are not installed, and
    BrokerStartError if the download fails.
    """
    home = os.environ.get("KAFKA_HOME")
    if home:
        return installed_class_path(Path(home))
    wanted = [jar for jar in locked_jars() if tools or jar.part == "server"]
    folder = cache_folder()
    if missing(wanted, folder):
        from asyncrevoke.broker.installation.download import fill_cache

        fill_cache(wanted, folder, on_progress)
    return os.pathsep.join(str(folder / jar.filename) for jar in wanted)


def installed_class_path(home: Path) -> str:
    """The class path of an unpacked Apache Kafka distribution. Raises BrokerStartError if it has no
    jars in ``libs``."""
    libs = home / "libs"
    if not any(libs.glob("kafka_2.*.jar")):
        raise BrokerStartError(
            f"KAFKA_HOME={home} has no libs/kafka_2.*.jar: set it to the folder of an unpacked "
            "Apache Kafka, or unset it to have the jars downloaded"
        )
    return str(libs / "*")


_SILENT = "-Xlog:disable"


class ClassArchive:
    """The archive of one Java and one class path, in a folder of this user (JEP 350).

    The first process that exits normally with the options of :meth:`recording` writes it. It is
    used unless another user can have changed it. Without it, Java loads the classes from the jars.
    """

    def __init__(self, folder: Path, java: Path, class_path: str) -> None:
        digest = hashlib.sha256(str(java.resolve()).encode())
        for jar in _jars(class_path):
            found = jar.stat()
            digest.update(f"\0{jar}\0{found.st_size}\0{found.st_mtime_ns}".encode())
        self._folder = folder
        self._path = folder / f"classes-{digest.hexdigest()[:16]}.jsa"
        self._written = folder / f"{self._path.stem}-{os.getpid()}.jsa"

    def options(self) -> tuple[str, ...]:
        """Java's options for starting with the archive; none if there is no trusted archive."""
        return (_SILENT, f"-XX:SharedArchiveFile={self._path}") if self._is_trusted() else ()

    def recording(self) -> tuple[str, ...]:
        """Java's options for writing the archive at exit; call :meth:`keep` after it."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            return ()  # a cache that cannot be written: Java starts without an archive
        return (_SILENT, f"-XX:ArchiveClassesAtExit={self._written}")

    def keep(self) -> None:
        """Let later processes use the archive, if it was written."""
        if self._written.exists():
            self._written.replace(self._path)

    def _is_trusted(self) -> bool:
        try:
            found = self._path.lstat()
        except OSError:
            return False
        if sys.platform == "win32":
            return True
        ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid()
        return ours and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def cached_class_archive(java: Path, class_path: str) -> ClassArchive | None:
    """The archive in the cache folder of this user; None without the package ``platformdirs``."""
    try:
        folder = cache_folder()
    except BrokerMissingError:
        return None
    return ClassArchive(folder, java, class_path)


def _jars(class_path: str) -> list[Path]:
    paths = [Path(entry) for entry in class_path.split(os.pathsep)]
    return [
        jar
        for path in paths
        for jar in (sorted(path.parent.glob("*.jar")) if path.name == "*" else [path])
    ]
