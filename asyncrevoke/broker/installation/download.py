"""Downloads jars into the cache, from the Maven repositories of the user's jgo settings."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from asyncrevoke.broker.errors import BrokerMissingError, BrokerStartError
from asyncrevoke.broker.installation.jars import FIX, Jar, OnProgress, Progress, missing

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
