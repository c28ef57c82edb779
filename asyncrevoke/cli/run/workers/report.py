"""Messages between a worker and its supervisor: one JSON object per line."""

from __future__ import annotations

import msgspec

# The line by which a supervisor asks for a worker's metrics.
METRICS_REQUEST = b"metrics\n"
# A longer line is not sent: no metrics of a consumer are so long (bytes).
LONGEST_LINE = 32 * 1024 * 1024


class Report(msgspec.Struct, frozen=True, tag="health"):
    """A worker's health, sent about once a second after its application was ``imported``.

    ``facts`` has the details of each consumer. In the last report, ``final`` says that a restart
    would fail in the same way.
    """

    imported: bool
    live: bool = True
    ready: bool = False
    facts: list[dict[str, object]] = []
    final: bool = False

    def line(self) -> bytes:
        """The message as bytes."""
        return msgspec.json.encode(self) + b"\n"


class MetricsReport(msgspec.Struct, frozen=True, tag="metrics"):
    """A worker's metrics as text for Prometheus; None if collecting them failed, which the worker
    logs."""

    text: str | None

    def line(self) -> bytes:
        """The message as bytes."""
        return msgspec.json.encode(self) + b"\n"


def read_report(line: bytes) -> Report | MetricsReport:
    """Parse a message. Raises msgspec.DecodeError."""
    return msgspec.json.decode(line, type=Report | MetricsReport)


class WorkerStart(msgspec.Struct, frozen=True):
    """The arguments of a worker. ``number`` counts from 1; None if there is only one worker. With
    ``metrics``, the supervisor may ask for the worker's metrics."""

    targets: tuple[str, ...]
    number: int | None
    log_level: str
    log_format: str
    metrics: bool
    socket: int
