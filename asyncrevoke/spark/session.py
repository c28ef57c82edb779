"""Opens Spark sessions after checking pyspark, its packages and Java."""

from __future__ import annotations

import os
import re
import sys
from importlib import import_module, metadata
from typing import TYPE_CHECKING

from asyncrevoke.broker.errors import BrokerMissingError
from asyncrevoke.broker.installation.java import find_java
from asyncrevoke.replays.errors import ReplayError
from asyncrevoke.spark.errors import (
    DataLossError,
    SparkSetupError,
    StalledReadError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from asyncrevoke.client.errors import AsyncRevokeError

_OLDEST = (4, 2)
_FIRST_UNTESTED = (4, 4)
# The versions of Java that Spark 4 supports.
_JAVAS = range(17, 22)
_EXTRA_NAME = "asyncrevoke[spark]"
_EXTRA = f"pip install '{_EXTRA_NAME}'"
_CONNECT_EXTRA = "pip install 'asyncrevoke[spark-connect]'"
# What a task imports and users' code does not bring along.
_LACKS = re.compile(
    r"^ModuleNotFoundError: No module named '(asyncrevoke|pyarrow|duckdb)\b", re.MULTILINE
)
# What a client of Spark Connect imports.
_CONNECT = ("grpcio", "grpcio-status", "googleapis-common-protos", "zstandard")


def installed_version(package: str) -> str:
    """The version of an installed package, also of a pyspark without package metadata. Raises
    PackageNotFoundError."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        # pyspark from an unpacked archive, an image of Spark, or a notebook's cluster.
        try:
            found: object = getattr(import_module(package), "__version__", None)
        except ModuleNotFoundError:
            found = None
        if not isinstance(found, str):
            raise
        return found


def check_spark(
    version_of: Callable[[str], str] = installed_version, *, more: Sequence[str] = ()
) -> None:
    """Raise SparkSetupError if a package is missing or the version of pyspark is not supported.
    ``more`` are further packages."""
    for package in ("pyspark", "pyarrow", *more):
        try:
            found = version_of(package)
        except metadata.PackageNotFoundError as error:
            extra = _CONNECT_EXTRA if package in _CONNECT else _EXTRA
            raise SparkSetupError(f"{package} is not installed: {extra}") from error
        if package == "pyspark" and not _OLDEST <= _release(found) < _FIRST_UNTESTED:
            raise SparkSetupError(
                f"pyspark {found} is installed, but 4.2 or 4.3 is needed: {_EXTRA} "
                "(and a cluster of the same version)"
            )


def check_java(environ: Mapping[str, str] | None = None) -> str:
    """The JAVA_HOME of a Java that Spark supports. Raises SparkSetupError if there is none."""
    environ = os.environ if environ is None else environ
    try:
        java = find_java(environ)
    except BrokerMissingError as error:
        raise SparkSetupError(
            "Spark needs Java 17 to 21, but none was found: install a JDK 17, and set JAVA_HOME "
            f"to its folder ({error})"
        ) from error
    if java.version not in _JAVAS:
        raise SparkSetupError(
            f"Spark needs Java 17 to 21, but {java.path} is Java {java.version}: set JAVA_HOME to "
            "the folder of a JDK 17 or 21"
        )
    return str(java.path.resolve().parent.parent)


def open_session(master: str | None = None, *, app_name: str = "asyncrevoke") -> SparkSession:
    """The active session, or a new one: on ``master``, on the master of ``spark-submit``, or on
    this machine.

    Workers on this machine (``local[...]``, ``local-cluster[...]``) run the Python of this process,
    unless ``PYSPARK_PYTHON`` is set. A ``master`` that begins with ``sc://`` is a Spark Connect
    server; its client needs no Java. Raises SparkSetupError.
    """
    check_spark()
    from pyspark.sql import SparkSession as Session

    active = Session.getActiveSession()
    if active is not None and master is None:
        return active
    if master is not None and master.startswith("sc://"):
        check_spark(more=_CONNECT)
        return Session.builder.remote(master).getOrCreate()
    os.environ["JAVA_HOME"] = check_java()
    os.environ.update(worker_python(master, os.environ))
    builder = Session.builder.appName(app_name).config("spark.ui.showConsoleProgress", "false")
    # A speculative copy of a task would call handlers a second time.
    builder = builder.config("spark.speculation", "false")
    if not is_submitted(os.environ) and os.name == "posix":
        # With TCP, a seventh of the time of reading a table is spent in TCP.
        builder = builder.config("spark.python.unix.domain.socket.enabled", "true")
    if master is not None:
        builder = builder.master(master)
    elif not is_submitted(os.environ):
        builder = builder.master("local[*]").config("spark.ui.enabled", "false")
    return builder.getOrCreate()


def is_submitted(environ: Mapping[str, str]) -> bool:
    """Whether ``spark-submit`` or Spark Connect set the master in the environment."""
    return not environ.keys().isdisjoint(
        {"PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE"}
    )


def worker_python(master: str | None, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment variables by which workers on this machine run this Python with its packages.

    Without them Spark starts ``python3`` of the PATH, which is another Python if a virtual
    environment is not activated. Empty if the user has set PYSPARK_PYTHON, and for clusters, whose
    machines may have Python elsewhere.
    """
    if is_submitted(environ) if master is None else not master.startswith("local"):
        return {}
    return {} if environ.get("PYSPARK_PYTHON") else {"PYSPARK_PYTHON": sys.executable}


def is_connected(spark: SparkSession) -> bool:
    """Whether this session is a client of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def driver_host(spark: SparkSession) -> str | None:
    """The address at which tasks connect to this process; None for Spark Connect."""
    if is_connected(spark):
        return None
    if (spark.conf.get("spark.master", "") or "").startswith("local["):
        return "127.0.0.1"
    return spark.conf.get("spark.driver.host", None)


def message_of_task_error(
    error: Exception,
    where: str,
    *,
    known: Sequence[type[AsyncRevokeError]] = (DataLossError, StalledReadError),
    other: type[AsyncRevokeError] = ReplayError,
) -> AsyncRevokeError | None:
    """The error of this library that failed a task, without Spark's stack trace, or SparkSetupError
    if the Python of a worker lacks a package; None for any other error. The message begins with
    ``where``. Errors of classes that are not ``known`` become ``other``."""
    found = re.findall(
        r"^(?:.*?)asyncrevoke\.(?:\w+\.)?errors\.(\w+): (.+)$", str(error), re.MULTILINE
    )
    if not found:
        lacks = _LACKS.search(str(error))
        return lacks and SparkSetupError(
            f"{where}: the Python of a worker has no package {lacks[1]}: install {_EXTRA_NAME} "
            "there, or send a packed environment"
        )
    name, sentence = found[-1]
    kind = next((candidate for candidate in known if candidate.__name__ == name), other)
    return kind(f"{where}: {sentence.strip()}")


def _release(version: str) -> tuple[int, int]:
    major, minor, *_ = [*re.findall(r"\d+", version), "0", "0"]
    return int(major), int(minor)
