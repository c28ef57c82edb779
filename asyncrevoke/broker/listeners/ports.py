"""Free ports for brokers."""

from __future__ import annotations

import functools
import os
import random
import socket
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST = "127.0.0.1"

# Below the ports for outgoing connections: otherwise a client that reconnects to a stopped broker
# could get the broker's port.
_LOWEST, _HIGHEST = 20_000, 32_000

_reserved: set[int] = set()
"""The ports that this process has reserved."""


def is_free(port: int) -> bool:
    """Whether a server could listen on this port of the loopback interface now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As in Java's servers: a port with connections in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_ports() -> Iterator[int]:
    """Ports that are free now, reserved among the processes of this user until this process ends.

    Otherwise another process could choose the port of a broker that is starting or down.
    """
    candidates = random.SystemRandom().sample(range(_LOWEST, _HIGHEST), _HIGHEST - _LOWEST)
    yield from (port for port in candidates if _reserve(port) and is_free(port))


def _reserve(port: int) -> bool:
    """Reserve a port by a lock on one byte of a file; False if another process has it."""
    if port in _reserved:
        return False
    if sys.platform != "win32":
        import fcntl

        try:
            fcntl.lockf(_lock_file(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except (BlockingIOError, PermissionError):
            return False
    _reserved.add(port)
    return True


@functools.cache
def _lock_file() -> int:
    # Never closed: closing any descriptor of the file would release all locks of this process.
    path = Path(tempfile.gettempdir(), f"asyncrevoke-ports-{os.getuid()}")
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
