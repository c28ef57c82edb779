"""The response on a connection, which carries only one."""

from __future__ import annotations

from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

_ALWAYS: Final = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


class HttpResponse:
    """Writes a response; leaves out the body in a response to HEAD."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, head_only: bool
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._head_only = head_only
        self.started = False

    async def start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Write status and headers. Waits while the client reads nothing."""
        self.started = True
        sent = {name.lower(): value for name, value in (*_ALWAYS, *headers)}
        sent[b"connection"] = b"close"
        try:
            phrase = HTTPStatus(status).phrase
        except ValueError:
            phrase = ""
        lines = [f"HTTP/1.1 {status} {phrase}".encode()]
        lines += [name + b": " + value for name, value in sent.items()]
        self._writer.write(b"\r\n".join(lines) + b"\r\n\r\n")
        await self._writer.drain()

    async def write(self, body: bytes) -> None:
        """Write a part of the body. Waits while the client reads nothing."""
        if body and not self._head_only:
            self._writer.write(body)
            await self._writer.drain()

    async def disconnected(self) -> None:
        """Wait until the client closes the connection. Drops what it sends until then."""
        with suppress(OSError):
            while await self._reader.read(4096):
                pass

    async def whole(self, status: int, body: bytes, media_type: str) -> None:
        """Write a complete response."""
        headers = [
            (b"content-type", media_type.encode()),
            (b"content-length", str(len(body)).encode()),
        ]
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            headers.append((b"allow", b"GET, HEAD"))
        await self.start(status, headers)
        await self.write(body)
