"""Configures TCP keepalive, so that the kernel finds a dead peer while nothing is sent."""

from __future__ import annotations

import math
import socket
from typing import Final

__all__ = ["keep_alive"]

_PROBES: Final = 3
_LONGEST: Final = 3600.0


def keep_alive(sock: socket.socket, silence_timeout: float) -> None:
    """Let the kernel close this connection when the peer acknowledges neither data nor keepalive
    probes for about ``silence_timeout`` seconds.

    Options that the system does not have are left out.
    """
    silence_timeout = min(silence_timeout, _LONGEST)
    between = max(1, math.floor(silence_timeout / _PROBES))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", between),
        ("TCP_KEEPINTVL", between),
        ("TCP_KEEPCNT", _PROBES),
        ("TCP_USER_TIMEOUT", max(1, math.ceil(silence_timeout * 1000))),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
