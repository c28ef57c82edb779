"""A standalone cluster of Spark on this machine."""

from __future__ import annotations

import os
import re
import subprocess
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

if TYPE_CHECKING:
    from collections.abc import Generator

_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile(r"Successfully registered with master")
_HOSTS = ("127.0.0.1", "127.0.0.2")
_ANY_PORTS = ("--port", "0", "--webui-port", "0")


@contextmanager
def _daemon(folder: Path, host: str, *words: str) -> Generator[Path]:
    """A process of the cluster; the file of what it prints."""
    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    log = folder / f"{words[0].rpartition('.')[2]}-{words[-1]}.log".replace("/", "-")
    environment = {**os.environ, "SPARK_LOCAL_IP": host, "NOTES": str(folder)}
    with log.open("wb") as file:
        process = subprocess.Popen(
            [str(spark_class), *words, "--host", host, *_ANY_PORTS],
            env=environment,
            cwd=folder,
            stdout=file,
            stderr=file,
        )
    try:
        yield log
    finally:
        process.terminate()
        process.wait(60)


def _find(log: Path, wanted: re.Pattern[str]) -> str:
    """What a process has printed, as soon as it is there."""
    deadline = time.monotonic() + 120
    while (found := wanted.search(log.read_text("utf-8", "replace"))) is None:
        assert time.monotonic() < deadline, log.read_text("utf-8", "replace")[-4000:]
        time.sleep(0.1)
    return found[found.re.groups]


@contextmanager
def standalone_cluster(folder: Path) -> Generator[str]:
    """The address of a master that has two workers with one core each.

    Spark starts the second attempt of a speculative task on another host only, so the workers have
    different addresses.
    """
    package = "org.apache.spark.deploy"
    with ExitStack() as stack:
        master = _daemon(folder, _HOSTS[0], f"{package}.master.Master")
        address = _find(stack.enter_context(master), _MASTER)
        logs: list[Path] = []
        for host in _HOSTS:
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"worker-{host}"))
            worker = _daemon(folder, host, f"{package}.worker.Worker", address, *size)
            logs.append(stack.enter_context(worker))
        for log in logs:
            _find(log, _REGISTERED)
        yield address
