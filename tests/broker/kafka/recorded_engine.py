"""A Docker engine that responds as a recorded one did, and starts what the test gives it."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable

# A DockerBroker on Podman 4.3.1, with version 1.41 of Docker's API; responses are shortened.
RECORDED = json.loads((Path(__file__).parent / "engine_api.json").read_text("utf-8"))
CONTAINER = RECORDED["POST /containers/create"]["response"]["Id"]


class EngineRequest(NamedTuple):
    """A request, its path without the version of the API."""

    method: str
    path: str
    query: str
    body: Any


class RecordedEngine:
    """Listens on a port of its own. ``start`` is called with the description of the container that
    is to be started."""

    def __init__(self, image: str, start: Callable[[Any], object]) -> None:
        self.requests: list[EngineRequest] = []
        self._image = image
        self._start = start
        respond = self._respond

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _handle(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                status, body = respond(self.command, self.path, self.rfile.read(length))
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_DELETE = _handle  # noqa: N815 - named by the base class

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Requests are not logged."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def address(self) -> str:
        """The value of ``DOCKER_HOST``."""
        return f"tcp://127.0.0.1:{self._server.server_port}"

    def only(self, method: str, path: str) -> EngineRequest:
        """The one request with this method and path."""
        (found,) = [
            request for request in self.requests if (request.method, request.path) == (method, path)
        ]
        return found

    def _respond(self, method: str, target: str, body: bytes) -> tuple[int, bytes]:
        parts = urlsplit(re.sub(r"^/v1\.\d+", "", target))
        content = json.loads(body) if body.startswith(b"{") else None
        self.requests.append(EngineRequest(method, parts.path, parts.query, content))
        if parts.path.endswith("/start"):
            self._start(self.only("POST", "/containers/create").body)
        path = parts.path.replace(CONTAINER, "ID").replace(self._image, "IMAGE")
        recorded = RECORDED[f"{method} {path}"]
        response = recorded["response"]
        text = response if isinstance(response, str) else json.dumps(response)
        return recorded["status"], text.encode()
