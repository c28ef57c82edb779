"""The options of ``asyncrevoke run``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from asyncrevoke.cli.run.log_output import LogFormat, LogLevel


class WorkerSettings(NamedTuple):
    """The options. ``workers`` is None if this process handles records itself. Times are in
    seconds."""

    targets: tuple[str, ...]
    workers: int | None
    reload: bool
    shutdown_timeout: float
    log_level: LogLevel
    log_format: LogFormat
    health_host: str
    health_port: int | None
    metrics: bool

    @property
    def processes(self) -> int:
        """The number of workers."""
        return 1 if self.workers is None or self.reload else self.workers


# The line by which a supervisor asks for a worker's metrics.
METRICS_REQUEST = b"metrics\n"
# A longer line is not sent: no metrics of a consumer are so long (bytes).
LONGEST_LINE = 32 * 1024 * 1024


class _Message(msgspec.Struct, frozen=True):
    def line(self) -> bytes:
        """The message as bytes."""
        return msgspec.json.encode(self) + b"\n"


class Report(_Message, frozen=True, tag="health"):
    """A worker's health, sent about once a second after its application was ``imported``.

    ``facts`` has the details of each consumer. In the last report, ``final`` says that a restart
    would fail in the same way.
    """

    imported: bool
    live: bool = True
    ready: bool = False
    facts: list[Mapping[str, object]] = []
    final: bool = False


class MetricsReport(_Message, frozen=True, tag="metrics"):
    """A worker's metrics as text for Prometheus; None if collecting them failed, which the worker
    logs."""

    text: str | None


def read_report(line: bytes) -> Report | MetricsReport:
    """Parse a message. Raises msgspec.DecodeError."""
    return msgspec.json.decode(line, type=Report | MetricsReport)


class WorkerStart(msgspec.Struct, frozen=True):
    """The arguments of a worker. ``number`` counts from 1; None with ``--reload``."""

    settings: WorkerSettings
    number: int | None
    socket: int
