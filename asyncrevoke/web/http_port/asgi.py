"""Responds to requests by a read-only ASGI application."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote_to_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import ASGIApp, Message, Scope

    from asyncrevoke.web.http_port.exchange import HttpRequest, HttpResponse


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
