"""Free ports for brokers."""

from __future__ import annotations

import random
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST = "127.0.0.1"

# Below the range that systems take outgoing ports from: a client that reconnects to a stopped
# broker could otherwise be given the broker's own port, and keep it from coming back.
_LOWEST, _HIGHEST = 20_000, 32_000


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
    """Ports that are free now, each one different."""
    candidates = random.SystemRandom().sample(range(_LOWEST, _HIGHEST), _HIGHEST - _LOWEST)
    yield from filter(is_free, candidates)
