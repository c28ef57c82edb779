"""What a worker tells its supervisor, a JSON object a line."""

from __future__ import annotations

import msgspec


class Report(msgspec.Struct, frozen=True):
    """How it is, about once a second from when its application has been ``imported``.

    ``final`` is set in its last one, if the same would happen to every other start of it.
    """

    imported: bool
    live: bool = True
    ready: bool = False
    facts: dict[str, object] = {}
    final: bool = False

    def line(self) -> bytes:
        """As it is sent."""
        return msgspec.json.encode(self) + b"\n"

    @staticmethod
    def of(line: bytes) -> Report:
        """What was sent. Raises msgspec.DecodeError."""
        return msgspec.json.decode(line, type=Report)


class Orders(msgspec.Struct, frozen=True):
    """What a worker is started with. ``number`` counts from 1, None if there is only one."""

    target: str
    number: int | None
    log_level: str
    log_format: str
    socket: int
