"""Messages between a worker and its supervisor: one JSON object per line."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from asyncrevoke.cli.run.settings import WorkerSettings

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
