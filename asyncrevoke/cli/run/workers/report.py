"""Messages between a worker and its supervisor: one JSON object per line."""

from __future__ import annotations

import msgspec


class Report(msgspec.Struct, frozen=True):
    """A worker's health, sent about once a second after its application was ``imported``. In the
    last report, ``final`` says that a restart would fail in the same way."""

    imported: bool
    live: bool = True
    ready: bool = False
    facts: dict[str, object] = {}
    final: bool = False

    def line(self) -> bytes:
        """The message as bytes."""
        return msgspec.json.encode(self) + b"\n"

    @staticmethod
    def of(line: bytes) -> Report:
        """Parse a message. Raises msgspec.DecodeError."""
        return msgspec.json.decode(line, type=Report)


class WorkerStart(msgspec.Struct, frozen=True):
    """The arguments of a worker. ``number`` counts from 1; None if there is only one worker."""

    target: str
    number: int | None
    log_level: str
    log_format: str
    socket: int
