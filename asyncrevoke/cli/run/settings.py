"""The options of ``asyncrevoke run``."""

from __future__ import annotations

from typing import NamedTuple

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
