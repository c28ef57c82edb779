"""The HTTP server of ``run --health-port`` and ``dashboard``.

Responds to one GET or HEAD per connection, of clients that name an allowed host, and limits the
connections and the time of clients.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from http import HTTPStatus
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, Self

if TYPE_CHECKING:
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


_HOST: Final = re.compile(rb"(?:\[([0-9a-fA-F:.]+)\]|([A-Za-z0-9._\-]+))(?::[0-9]{1,5})?")


class AllowedHosts:
    """Allows ``localhost``, names below it, any IP address, and ``names``, on any port.

    Prevents DNS rebinding: the name of a foreign web page can resolve to this machine, so that the
    page could read responses of this port. Its requests have that name in the Host header. An IP
    address needs no resolution, so every address is allowed.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {_canonical(name) for name in names}

    def check(self, request: HttpRequest) -> None:
        """Raise RejectedRequestError if the request names another host."""
        host = request.header(b"host")
        matched = None if host is None else _HOST.fullmatch(host)
        if matched is None:
            raise RejectedRequestError(HTTPStatus.BAD_REQUEST, "a Host header is needed")
        name = _canonical((matched[1] or matched[2]).decode())
        if not (name == "localhost" or name.endswith(".localhost") or name in self._names):
            try:
                ip_address(name)
            except ValueError:
                raise RejectedRequestError(
                    HTTPStatus.MISDIRECTED_REQUEST,
                    "this host name is not allowed: add it to the allowed hosts of this server",
                ) from None


def _canonical(name: str) -> str:
    return name.lower().removesuffix(".")


# asyncio accepts so many connections in one turn of the event loop, and reads them two turns later:
# with four times as many waiting, a request that came with its connection is read before newer
# connections can replace it.
_BACKLOG: Final = 64


class PortLimits(NamedTuple):
    """Limits of a port.

    ``request_seconds``: the time for sending a complete request.
    ``response_seconds``: the time for writing and reading the response.
    ``request_bytes``: the largest request line with its headers.
    ``waiting``: connections without a complete request; one more closes the oldest of them.
    ``responding``: connections with a response under way; one more closes the oldest of them.
    """

    request_seconds: float = 5.0
    response_seconds: float = 5.0
    request_bytes: int = 8192
    waiting: int = 4 * _BACKLOG
    responding: int = 64


class RequestHandler(Protocol):
    """Responds to the requests of a port.

    Implemented by :class:`~asyncrevoke.web.dashboard.server.AsgiRequestHandler`, and by a class of
    ``asyncrevoke/cli/run/health_server.py``.
    """

    async def respond(self, request: HttpRequest, response: HttpResponse) -> None:
        """Write the response to one GET or HEAD. Is cancelled at the time limit."""


class HttpServer:
    """An async context manager that serves on the event loop.

    Each connection carries one request. It is closed at a time limit if the client sends no request
    or does not read, and the oldest connection is closed earlier if there are too many.
    """

    def __init__(
        self,
        host: str,
        port: int,
        handler: RequestHandler,
        limits: PortLimits,
        hosts: AllowedHosts | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._handler = handler
        self._limits = limits
        self._hosts = hosts
        self._server: asyncio.Server | None = None
        self._waiting: dict[asyncio.StreamWriter, None] = {}
        self._responding: dict[asyncio.StreamWriter, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The port number. Only inside the context."""
        if self._server is None:
            raise RuntimeError("the server has not been entered")
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def clients(self) -> int:
        """The number of open connections."""
        return len(self._waiting) + len(self._responding)

    async def __aenter__(self) -> Self:
        """Listen. Raises OSError."""
        self._server = await asyncio.start_server(
            self._accepted,
            self._host,
            self._port,
            limit=self._limits.request_bytes,
            backlog=_BACKLOG,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening and close all connections, also those with a response under way."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _enter(self._waiting, writer, self._limits.waiting)
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            task.get_loop().call_exception_handler(
                {"message": "a request failed", "exception": error, "task": task}
            )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._limits.request_seconds):
                head = await reader.readuntil(b"\r\n\r\n")
            if writer not in self._waiting:
                return  # replaced by a newer one before its request was complete
            del self._waiting[writer]
            _enter(self._responding, writer, self._limits.responding)
            async with asyncio.timeout(self._limits.response_seconds):
                await self._respond(head, reader, writer)
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            return  # the client sent no request, did not read, or disconnected
        finally:
            self._waiting.pop(writer, None)
            self._responding.pop(writer, None)
            writer.transport.abort()

    async def _respond(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        response = HttpResponse(reader, writer, head_only=head.startswith(b"HEAD "))
        try:
            request = parse_request(head)
            if self._hosts is not None:
                self._hosts.check(request)
        except RejectedRequestError as rejected:
            body = f"{rejected}\n".encode()
            await response.whole(rejected.status, body, "text/plain; charset=utf-8")
        else:
            await self._handler.respond(request, response)


def _enter(
    clients: dict[asyncio.StreamWriter, None], writer: asyncio.StreamWriter, most: int
) -> None:
    """Add a connection; closes the oldest one if there are too many."""
    if len(clients) >= most:
        oldest = next(iter(clients))
        del clients[oldest]
        oldest.transport.abort()
    clients[writer] = None
