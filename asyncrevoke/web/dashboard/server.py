"""Serves the page on a separate port, for commands."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import unquote_to_bytes

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import host_and_port
from asyncrevoke.web.http_port import (
    AllowedHosts,
    HttpRequest,
    HttpResponse,
    HttpServer,
    PortLimits,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Sequence

    from starlette.types import ASGIApp, Message, Scope

    from asyncrevoke.web.dashboard.history import History
    from asyncrevoke.web.dashboard.stored_letters import StoredLetters


class AsgiRequestHandler:
    """Passes requests without a body to an application, and cancels it at the time limit."""

    def __init__(self, application: ASGIApp) -> None:
        self._application = application

    async def respond(self, request: HttpRequest, response: HttpResponse) -> None:
        """Run the application for one request. If it raises, responds with 500 and raises that."""
        asked = False

        async def receive() -> Message:
            nonlocal asked
            if asked:
                await response.disconnected()
                return {"type": "http.disconnect"}
            asked = True
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = cast("Iterable[tuple[bytes, bytes]]", message.get("headers", ()))
                await response.start(int(message["status"]), headers)
            elif message["type"] == "http.response.body":
                await response.write(cast("bytes", message.get("body", b"")))

        try:
            await self._application(_scope(request), receive, send)
        except OSError:  # the client has disconnected
            raise
        except Exception:
            if not response.started:
                status = HTTPStatus.INTERNAL_SERVER_ERROR
                await response.whole(status, b"failed\n", "text/plain")
            raise


def _scope(request: HttpRequest) -> Scope:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": unquote_to_bytes(request.path).decode("utf-8", "replace"),
        "raw_path": request.path,
        "query_string": request.query,
        "root_path": "",
        "headers": list(request.headers),
        "client": None,
        "server": None,
    }


# An event stream ends after 10 s at the latest.
_LIMITS: Final = PortLimits(response_seconds=15.0)


@asynccontextmanager
async def served(
    history: History,
    host: str = "127.0.0.1",
    port: int = 0,
    allowed_hosts: Sequence[str] = (),
    limits: PortLimits = _LIMITS,
    stored: StoredLetters | None = None,
) -> AsyncGenerator[str]:
    """Serve the page of a history, and of ``stored`` dead letters, at ``/``. Yields its address.

    ``port`` 0 chooses a free port. The Host header may name ``host``, ``localhost``, any IP address
    and ``allowed_hosts``. Raises ConfigError if the extra is missing or the port is in use.
    """
    try:
        from starlette.applications import Starlette

        from asyncrevoke.web.dashboard.app import Dashboard
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the page needs {error.name}: pip install 'asyncrevoke[dashboard]'"
        ) from error
    handler = AsgiRequestHandler(Starlette(routes=Dashboard(history, stored).routes("")))
    server = HttpServer(host, port, handler, limits, AllowedHosts((host, *allowed_hosts)))
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(server)
        except OSError as error:
            raise ConfigError(
                f"cannot serve the page at {host_and_port(host, port)} ({error.strerror}): use "
                "another port"
            ) from error
        shown = f"[{host}]" if ":" in host else host
        yield f"http://{shown}:{server.port}/"
