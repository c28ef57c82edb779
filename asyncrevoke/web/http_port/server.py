"""Listens on a port, for clients that name an allowed host, and limits what they may hold."""

from __future__ import annotations

import asyncio
import re
from http import HTTPStatus
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, Self

from asyncrevoke.web.http_port.exchange import HttpResponse, RejectedRequestError, parse_request

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.web.http_port.exchange import HttpRequest

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

    Implemented by :class:`~asyncrevoke.web.http_port.asgi.AsgiRequestHandler`, and by a class of
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
