"""Apicurio's registry, which has the API of Confluent's.

As a script, downloads it into the folder that ASYNCREVOKE_REGISTRY names.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tarfile
import tempfile
import time
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.error import URLError
from urllib.request import urlopen

from asyncrevoke.broker.process.supervisor import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Generator

VARIABLE = "ASYNCREVOKE_REGISTRY"
VERSION = "3.3.3"
SHA256 = "8bc6751c76d963734224b01d5e7f84ccb3cb61c87d3bd77c36c35f10a5cbed63"
OLDEST_JAVA = 21
_STARTS_WITHIN = 90.0
_STOPS_WITHIN = 20.0


class Registry(NamedTuple):
    """A registry that runs."""

    port: int
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        """For clients."""
        return f"http://127.0.0.1:{self.port}/apis/ccompat/v7"


def download(folder: Path) -> None:
    """Download and unpack it, 160 MB, unless it is there. Raises ValueError for other content."""
    if (folder / "quarkus-run.jar").exists():
        return
    maven: Any = import_module("jgo.maven")
    settings: Any = import_module("jgo.config").GlobalSettings.load()
    central: Any = import_module("jgo.constants").MAVEN_CENTRAL_URL
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        context = maven.MavenContext(
            resolver=maven.PythonResolver(),
            repo_cache=Path(scratch),
            remote_repos={**settings.repositories, "central": central},
            timeout=60,
        )
        component = context.project("io.apicurio", "apicurio-registry-app").at_version(VERSION)
        archive = component.artifact(classifier="all", packaging="tar.gz").resolve()
        with archive.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != SHA256:
            raise ValueError(f"its SHA-256 is {found}, and {SHA256} was expected")
        with tarfile.open(archive) as content:
            content.extractall(folder, filter="data")


@contextmanager
def running(folder: Path, java: Path, ports: tuple[int, int]) -> Generator[Registry]:
    """Run it, with its schemas in memory; ``ports`` are those of its API and its management."""
    environment = {
        **os.environ,
        "QUARKUS_HTTP_HOST": "127.0.0.1",
        "QUARKUS_HTTP_PORT": str(ports[0]),
        "QUARKUS_MANAGEMENT_HOST": "127.0.0.1",
        "QUARKUS_MANAGEMENT_PORT": str(ports[1]),
    }
    command = [str(java), "-Xmx512m", "-jar", str(folder / "quarkus-run.jar")]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            env=environment,
            stdout=log,
            stderr=log,
            preexec_fn=die_with_parent,  # noqa: PLW1509
        )
        registry = Registry(ports[0], process)
        try:
            if not _responds(registry):
                log.seek(0)
                raise TimeoutError(log.read()[-2000:].decode("utf-8", "replace"))
            yield registry
        finally:
            process.terminate()
            try:
                process.wait(_STOPS_WITHIN)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _responds(registry: Registry) -> bool:
    ends = time.monotonic() + _STARTS_WITHIN
    while time.monotonic() < ends and registry.process.poll() is None:
        try:
            with urlopen(f"{registry.url}/subjects", timeout=5):  # noqa: S310
                return True
        except (URLError, OSError):
            time.sleep(0.2)
    return False


if __name__ == "__main__":
    download(Path(os.environ[VARIABLE]))
