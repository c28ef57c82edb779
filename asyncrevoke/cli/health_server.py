"""``/livez`` and ``/readyz`` on a port of their own, for ``asyncrevoke run --health-port``."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Callable, Mapping
from http import HTTPStatus
from types import TracebackType
from typing import NamedTuple, Self

# A client has so long for its request, and so long again to take the answer (seconds).
PATIENCE = 5.0
_LONGEST_REQUEST = 8192
_MOST_CLIENTS = 128


class HealthAnswer(NamedTuple):
    """What is told just now; ``facts`` are shown as JSON."""

    live: bool
    ready: bool
    facts: list[Mapping[str, object]]


class HealthPortError(Exception):
    """The port cannot be listened on; the message says what to do."""


class HealthServer:
    """An async context manager that answers from its event loop: one that is blocked is silent.

    A client costs one small answer; one that sends or reads nothing is cut off after 5 s, and
    above 128 of them at a time at once.
    """

    def __init__(self, host: str, port: int, answer: Callable[[], HealthAnswer]) -> None:
        self._host = host
        self._port = port
        self._answer = answer
        self._server: asyncio.Server | None = None
        self._clients = 0

    async def __aenter__(self) -> Self:
        try:
            self._server = await asyncio.start_server(
                self._serve, self._host, self._port, limit=_LONGEST_REQUEST
            )
        except OSError as error:
            where = f"--health-port {self._port}"
            if error.errno == errno.EADDRINUSE:
                raise HealthPortError(
                    f"{where}: another process listens on this port of {self._host}; choose "
                    "another one"
                ) from error
            raise HealthPortError(f"{where}: cannot listen on {self._host}: {error}") from error
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Listens no more. Does not wait for clients."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients += 1
        try:
            if self._clients <= _MOST_CLIENTS:
                async with asyncio.timeout(PATIENCE):
                    request = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._response(request))
                writer.close()
                async with asyncio.timeout(PATIENCE):
                    await writer.wait_closed()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            return  # no client of ours: what it did wrong is its own business
        finally:
            self._clients -= 1
            writer.transport.abort()

    def _response(self, request: bytes) -> bytes:
        method, _, rest = request.partition(b"\r\n")[0].partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        answer = self._answer()
        known = {b"/livez": answer.live, b"/readyz": answer.ready}
        if path not in known:
            status, ok = HTTPStatus.NOT_FOUND, False
        elif method not in (b"GET", b"HEAD"):
            status, ok = HTTPStatus.METHOD_NOT_ALLOWED, False
        else:
            ok = known[path]
            status = HTTPStatus.OK if ok else HTTPStatus.SERVICE_UNAVAILABLE
        body = b""
        if status in (HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE):
            body = json.dumps({"ok": ok, "consumers": answer.facts}).encode()
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\n"
            "Content-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n"
            "Cache-Control: no-store\r\n"
            "Connection: close\r\n\r\n"
        ).encode()
        return head if method == b"HEAD" else head + body
