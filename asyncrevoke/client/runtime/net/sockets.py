"""Sockets of connections: which address of a host is connected, TCP keepalive, and how many bytes
are read at once."""

from __future__ import annotations

import asyncio
import math
import socket
import sys
from collections import deque
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Final, TypeAlias

from asyncrevoke.client.model import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    # As socket.connect takes it: IP address and port, and flow and scope of IPv6.
    SocketAddress: TypeAlias = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]

_PROBES: Final = 3
_LONGEST: Final = 3600.0
# Bytes to wake for. With more, broker and client take turns instead of working side by side.
_LARGEST: Final = 128 * 1024
# Bytes read at once: so many were sent while the event loop was busy for a moment.
_FAST: Final = 32 * 1024
# Fewer missing bytes are not worth two calls of the system.
_SMALLEST_REST: Final = 64 * 1024
# RFC 8305: the "connection attempt delay".
_HEAD_START: Final = 0.25
# Of one name, tried for one connection. Whoever controls the name decides how many it has.
_MOST_ADDRESSES: Final = 20
_MOST_FAILED: Final = 1_000
_HAS_LOW_WATER_MARK: Final = sys.platform in ("linux", "darwin")


class _Address(Value, frozen=True):
    """An address of a host."""

    family: int
    address: SocketAddress


class FailedAddresses:
    """The addresses that did not answer when they were tried last, for all connections of the
    process. The next attempt begins with others, and with the one that failed first if all did."""

    def __init__(self) -> None:
        # In the order in which they failed.
        self._failed: dict[SocketAddress, None] = {}

    def note_failure(self, address: SocketAddress) -> None:
        """No connection to this address was opened."""
        self._failed.pop(address, None)
        self._failed[address] = None
        if len(self._failed) > _MOST_FAILED:
            del self._failed[next(iter(self._failed))]

    def note_success(self, address: SocketAddress) -> None:
        """A connection to this address was opened."""
        self._failed.pop(address, None)

    def sorted(self, addresses: Iterable[_Address]) -> list[_Address]:
        """Those that have not failed first, in their order."""
        failed = {address: turn for turn, address in enumerate(list(self._failed), 1)}
        return sorted(addresses, key=lambda found: failed.get(found.address, 0))


FAILED_ADDRESSES: Final = FailedAddresses()


async def connect_socket(host: str, port: int) -> socket.socket:
    """A socket that is connected to one of the addresses of ``host``.

    Each address has a head start of 250 ms before the next one, and the first that answers counts
    (RFC 8305); the others are closed. An address that has not answered is tried last next time,
    also after the caller's :meth:`FailedAddresses.note_failure`. Raises OSError; if cancelled, all
    sockets are closed.
    """
    found = FAILED_ADDRESSES.sorted(_interleaved(await _addresses(host, port)))
    waiting = deque(found[:_MOST_ADDRESSES])
    loop = asyncio.get_running_loop()
    attempts: dict[asyncio.Task[socket.socket], _Address] = {}
    pending: set[asyncio.Task[socket.socket]] = set()
    errors: list[OSError] = []
    winner: asyncio.Task[socket.socket] | None = None
    try:
        while winner is None and (waiting or pending):
            if waiting:
                address = waiting.popleft()
                attempt = loop.create_task(_connected(address), name=f"connect {host}")
                attempts[attempt] = address
                pending.add(attempt)
            done, pending = await asyncio.wait(
                pending,
                timeout=_HEAD_START if waiting else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for attempt in done:
                error = attempt.exception()
                if isinstance(error, OSError):
                    errors.append(error)
                elif error is not None:
                    raise error
                else:
                    winner = attempt
    finally:
        for attempt, address in attempts.items():
            if attempt is not winner:
                FAILED_ADDRESSES.note_failure(address.address)
                attempt.cancel()
                attempt.add_done_callback(_close)
    if winner is not None:
        return winner.result()
    if len(errors) == 1:
        raise errors[0]
    raise OSError("; ".join(dict.fromkeys(str(error) for error in errors)))


async def _addresses(host: str, port: int) -> list[_Address]:
    try:
        # Needs no thread.
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (socket.gaierror, UnicodeError):
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except UnicodeError as error:  # a label of more than 63 characters, for example
            raise OSError(f"it is not a host name: {error}") from error
    if not found:
        raise OSError(f"{host} has no address")
    return list(dict.fromkeys(_Address(family, address) for family, _, _, _, address in found))


def _interleaved(addresses: Sequence[_Address]) -> list[_Address]:
    """One address of each family in turn, beginning with the family of the first (RFC 8305)."""
    families: dict[int, list[_Address]] = {}
    for address in addresses:
        families.setdefault(address.family, []).append(address)
    turns = chain.from_iterable(zip_longest(*families.values()))
    return [turn for turn in turns if turn is not None]


async def _connected(to: _Address) -> socket.socket:
    sock = socket.socket(to.family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, to.address)
    except BaseException:
        sock.close()
        raise
    return sock


def _close(attempt: asyncio.Task[socket.socket]) -> None:
    """Close the socket of an attempt that is not needed any more, if it has one."""
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()


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


def abort_transport(transport: asyncio.WriteTransport) -> None:
    """Close a transport without waiting for its peer.

    Early releases of Python 3.11 raise AttributeError for a TLS transport whose connection has
    ended: its TLS protocol is None then.
    """
    if getattr(transport, "_ssl_protocol", transport) is not None:
        transport.abort()


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
