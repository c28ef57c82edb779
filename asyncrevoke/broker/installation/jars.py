"""The locked jars of Apache Kafka: their cache, into which they are downloaded from the Maven
repositories of the user's jgo settings, and the archive of the classes that a broker loads."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.resources
import os
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import NamedTuple

from asyncrevoke.broker.errors import BrokerMissingError, BrokerStartError

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
    The archive that a whole ``broker`` has written comes before one of the few classes that format
    storage.
    """

    def __init__(self, folder: Path, java: Path, class_path: str) -> None:
        digest = hashlib.sha256(str(java.resolve()).encode())
        for jar in _jars(class_path):
            found = jar.stat()
            digest.update(f"\0{jar}\0{found.st_size}\0{found.st_mtime_ns}".encode())
        self._folder = folder
        stem = f"classes-{digest.hexdigest()[:16]}"
        self._paths = (folder / f"broker-{stem}.jsa", folder / f"{stem}.jsa")

    def options(self, *, broker: bool = False) -> tuple[str, ...]:
        """Java's options for starting with the archive; none if there is no trusted archive, with
        ``broker`` none of a whole broker."""
        for path in self._paths[:1] if broker else self._paths:
            if _is_trusted(path):
                return (_SILENT, f"-XX:SharedArchiveFile={path}")
        return ()

    def recording(self, *, broker: bool = False) -> tuple[str, ...]:
        """Java's options for writing the archive at exit, with ``broker`` that of a whole broker;
        call :meth:`keep` after it."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            return ()  # a cache that cannot be written: Java starts without an archive
        path = self._paths[0 if broker else 1]
        return (_SILENT, f"-XX:ArchiveClassesAtExit={_written(path)}")

    def keep(self) -> None:
        """Let later processes use the archive, if it was written."""
        for path in self._paths:
            if _written(path).exists():
                _written(path).replace(path)


def _written(path: Path) -> Path:
    return path.with_name(f"{path.stem}-{os.getpid()}.jsa")


def _is_trusted(path: Path) -> bool:
    try:
        found = path.lstat()
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


AT_ONCE = 6
ATTEMPTS = 3
LOCK_TIMEOUT = 900.0

FetchJar = Callable[[Jar, Path, Callable[[int], None]], Path]
"""Downloads a jar into a folder, reports the size of each piece, and returns the file."""


def fill_cache(
    jars: Sequence[Jar],
    folder: Path,
    on_progress: OnProgress | None = None,
    *,
    fetch: FetchJar | None = None,
) -> None:
    """Download the ``jars`` that ``folder`` lacks; only complete, verified files appear there.

    Raises BrokerMissingError if a package that this needs is not installed, and BrokerStartError if
    a download fails or a file differs from its locked digest.
    """
    try:
        import filelock
    except ImportError as error:
        raise BrokerMissingError(f"{error.name} is not installed: {FIX}") from error
    folder.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(folder.with_suffix(".lock"), timeout=LOCK_TIMEOUT)
    try:
        with lock:
            wanted = missing(jars, folder)
            if wanted:
                _download(wanted, folder, on_progress, fetch or jgo_fetch())
    except filelock.Timeout as error:
        raise BrokerStartError(
            f"another process has been downloading Apache Kafka for {LOCK_TIMEOUT:.0f} s and holds "
            f"{error.lock_file}: end it, or set KAFKA_HOME"
        ) from error


def _download(
    jars: Sequence[Jar], folder: Path, on_progress: OnProgress | None, fetch: FetchJar
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    total = sum(jar.size for jar in jars)
    counting = threading.Lock()
    done = 0

    def count(size: int) -> None:
        nonlocal done
        with counting:
            done += size
            if on_progress is not None:
                on_progress(Progress(done, total))

    count(0)
    with (
        tempfile.TemporaryDirectory(prefix=".download-", dir=folder.parent) as scratch,
        ThreadPoolExecutor(AT_ONCE, "asyncrevoke-download") as threads,
    ):
        tasks = [threads.submit(_one, jar, Path(scratch), fetch, count) for jar in jars]
        try:
            for task, jar in zip(tasks, jars, strict=True):
                task.result().replace(folder / jar.filename)
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def _one(jar: Jar, scratch: Path, fetch: FetchJar, count: Callable[[int], None]) -> Path:
    problem: Exception | None = None
    for attempt in range(ATTEMPTS):
        received = 0

        def piece(size: int) -> None:
            nonlocal received
            received += size
            count(size)

        try:
            path = fetch(jar, scratch / str(attempt), piece)
            _check(path, jar)
        except Exception as error:  # noqa: BLE001 - whatever a repository client raises; kept below
            problem = error
            count(-received)
        else:
            count(jar.size - received)
            return path
    raise BrokerStartError(
        f"could not download {jar.group}:{jar.artifact}:{jar.version} ({problem}): check the "
        "network, the proxy settings or the repositories in jgo's configuration, or set KAFKA_HOME"
    ) from problem


def _check(path: Path, jar: Jar) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != jar.sha256:
        raise ValueError(f"its SHA-256 is {found}, and {jar.sha256} was expected")


def jgo_fetch() -> FetchJar:
    """Fetching with jgo, from Maven Central and the repositories in the user's jgo settings."""
    try:
        from jgo.config import GlobalSettings
        from jgo.constants import MAVEN_CENTRAL_URL
        from jgo.maven import MavenContext, PythonResolver
    except ImportError as error:
        raise BrokerMissingError(f"{error.name} is not installed: {FIX}") from error
    # The user's mirror comes first.
    repositories = {**GlobalSettings.load().repositories, "central": MAVEN_CENTRAL_URL}

    def fetch(jar: Jar, folder: Path, piece: Callable[[int], None]) -> Path:
        @contextlib.contextmanager
        def progress(_filename: str, _size: int) -> Generator[Callable[[int], None]]:
            yield piece

        context = MavenContext(
            resolver=PythonResolver(progress_callback=progress),
            repo_cache=folder,
            remote_repos=repositories,
            timeout=60,
        )
        component = context.project(jar.group, jar.artifact).at_version(jar.version)
        return component.artifact(packaging="jar").resolve()

    return fetch
