"""Archives of the classes that Apache Kafka loads: with one, Java starts a broker sooner."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from pathlib import Path

from asyncrevoke.broker.errors import BrokerMissingError
from asyncrevoke.broker.installation.jars import cache_folder

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
