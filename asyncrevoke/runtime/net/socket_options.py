"""Options of the sockets of connections: TCP keepalive, and how many bytes are read at once."""

from __future__ import annotations

import math
import socket
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

_PROBES: Final = 3
_LONGEST: Final = 3600.0
# Bytes to wake for. With more, broker and client take turns instead of working side by side.
_LARGEST: Final = 128 * 1024
# Bytes read at once: so many were sent while the event loop was busy for a moment.
_FAST: Final = 32 * 1024
# Fewer missing bytes are not worth two calls of the system.
_SMALLEST_REST: Final = 64 * 1024
_HAS_LOW_WATER_MARK: Final = sys.platform in ("linux", "darwin")


def keep_alive(sock: socket.socket, silence_timeout: float) -> None:
    """Let the kernel close this connection when the peer acknowledges neither data nor keepalive
    probes for about ``silence_timeout`` seconds: it finds a dead peer while nothing is sent.

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


class LowWaterMark:
    """How many bytes have to be queued before the transport reads, SO_RCVLOWAT of socket(7): 1, and
    more while a large frame is received fast, but never more than the frame lacks.

    Bytes arrive in pieces of up to 64 KiB. An iteration of the event loop for each of them takes up
    to a tenth of the CPU time of reading large records.

    Always 1 with TLS, where a frame takes other numbers of bytes on the connection.
    """

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        plain = transport.get_extra_info("sslcontext") is None
        self._socket: socket.socket | None = (
            transport.get_extra_info("socket") if plain and _HAS_LOW_WATER_MARK else None
        )
        self._mark = 1

    def received(self, size: int, missing: int) -> None:
        """So many bytes of a large frame were read at once, and so many are missing."""
        if self._mark > 1:
            if missing < self._mark:
                self._set(max(missing, 1))
        elif size >= _FAST and missing >= _SMALLEST_REST:
            self._set(min(missing, _LARGEST))

    def reset(self) -> None:
        """Read whatever is queued, for example to see whether anything is."""
        if self._mark > 1:
            self._set(1)

    def _set(self, mark: int) -> None:
        if self._socket is not None and not self._transport.is_closing():
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, mark)
            self._mark = mark
