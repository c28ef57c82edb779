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

# Below the range that systems take outgoing ports from: a client that reconnects to a stopped
# broker could otherwise be given the broker's own port, and keep it from coming back.
_LOWEST, _HIGHEST = 20_000, 32_000

_reserved: set[int] = set()
"""The ports that this process was given."""


def is_free(port: int) -> bool:
    """Whether a server could listen on this port of the loopback interface now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As a Java server does: a port whose last connections are in TIME_WAIT counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_ports() -> Iterator[int]:
    """Ports that are free now, and that no process of this user is given while this one lives.

    A broker listens seconds after its port was chosen, and not while it is down; without a
    reservation another process could choose the same port meanwhile.
    """
    candidates = random.SystemRandom().sample(range(_LOWEST, _HIGHEST), _HIGHEST - _LOWEST)
    yield from (port for port in candidates if _reserve(port) and is_free(port))


def _reserve(port: int) -> bool:
    """Whether this process holds the port from now on: one byte of a file, locked until it ends."""
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
    # Never closed: a process that closes any descriptor of the file gives all its locks back.
    path = Path(tempfile.gettempdir(), f"asyncrevoke-ports-{os.getuid()}")
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
