"""A request, parsed within limits, and its response; a connection carries one of each."""

from __future__ import annotations

import re
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

_MAX_HEADERS: Final = 64
_REQUEST_LINE: Final = re.compile(rb"([A-Z]{1,16}) (/[!-~]*) HTTP/1\.[01]")
_HEADER: Final = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]{1,64}):[ \t]*([\t\x20-\x7e\x80-\xff]*)")


class RejectedRequestError(Exception):
    """A request is rejected; ``status`` and the message say why."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        self.status = status
        super().__init__(message)


class HttpRequest(NamedTuple):
    """Method, target and headers; header names are in lower case."""

    method: str
    path: bytes
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]

    def header(self, name: bytes) -> bytes | None:
        """The value of a header; None if it was not sent, the first one if it was sent twice."""
        return next((value for header, value in self.headers if header == name), None)


def parse_request(head: bytes) -> HttpRequest:
    """Parse everything up to the empty line. Raises RejectedRequestError."""
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    matched = _REQUEST_LINE.fullmatch(first)
    if matched is None:
        raise RejectedRequestError(HTTPStatus.BAD_REQUEST, "not an HTTP/1.1 request")
    if len(lines) > _MAX_HEADERS:
        raise RejectedRequestError(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"more than {_MAX_HEADERS} headers"
        )
    headers: list[tuple[bytes, bytes]] = []
    for line in lines:
        header = _HEADER.fullmatch(line)
        if header is None:
            raise RejectedRequestError(HTTPStatus.BAD_REQUEST, "malformed header")
        headers.append((header[1].lower(), header[2].rstrip(b" \t")))
    if sum(name == b"host" for name, _ in headers) > 1:
        raise RejectedRequestError(HTTPStatus.BAD_REQUEST, "more than one Host header")
    if matched[1] not in (b"GET", b"HEAD"):
        raise RejectedRequestError(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are allowed")
    path, _, query = matched[2].partition(b"?")
    return HttpRequest(matched[1].decode(), path, query, tuple(headers))


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
