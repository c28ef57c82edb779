"""``/livez``, ``/readyz`` and ``/metrics`` on a separate port, for ``asyncrevoke run``."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Mapping
from http import HTTPStatus
from types import TracebackType
from typing import NamedTuple, Self

from asyncrevoke.cli.run.metrics_text import MetricsText
from asyncrevoke.http_port.request import HttpRequest
from asyncrevoke.http_port.response import HttpResponse
from asyncrevoke.http_port.server import HttpServer, PortLimits


class HealthResponse(NamedTuple):
    """The response to a probe. ``facts`` are shown as JSON."""

    live: bool
    ready: bool
    facts: list[Mapping[str, object]]


class HealthPortError(Exception):
    """The port cannot be opened. The message says what to do."""


class HealthServer:
    """An async context manager that responds on its event loop, so that a blocked loop does not
    respond.

    Responses are small. A client that sends no request, or does not read, is disconnected after 5
    s. Idle clients do not prevent responses to probes.
    """

    def __init__(
        self,
        host: str,
        port: int,
        health: Callable[[], HealthResponse],
        limits: PortLimits | None = None,
        *,
        metrics: MetricsText | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self.server = HttpServer(
            host, port, _HealthRequestHandler(health, metrics), limits or PortLimits()
        )

    async def __aenter__(self) -> Self:
        try:
            await self.server.__aenter__()
        except OSError as error:
            where = f"--health-port {self._port}"
            if error.errno == errno.EADDRINUSE:
                raise HealthPortError(
                    f"{where}: another process listens on this port of {self._host}; use "
                    "another port"
                ) from error
            raise HealthPortError(f"{where}: cannot listen on {self._host}: {error}") from error
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the port, without waiting for clients."""
        await self.server.__aexit__(kind, error, trace)


class _HealthRequestHandler:
    def __init__(self, health: Callable[[], HealthResponse], metrics: MetricsText | None) -> None:
        self._health = health
        self._metrics = metrics

    async def respond(self, request: HttpRequest, response: HttpResponse) -> None:
        if request.path == b"/metrics" and self._metrics is not None:
            await self._respond_with_metrics(self._metrics, response)
            return
        health = self._health()
        known = {b"/livez": health.live, b"/readyz": health.ready}
        if request.path not in known:
            await response.whole(HTTPStatus.NOT_FOUND, b"", "application/json")
            return
        ok = known[request.path]
        status = HTTPStatus.OK if ok else HTTPStatus.SERVICE_UNAVAILABLE
        body = json.dumps({"ok": ok, "consumers": health.facts}).encode()
        await response.whole(status, body, "application/json")

    async def _respond_with_metrics(self, metrics: MetricsText, response: HttpResponse) -> None:
        try:
            text = await metrics.read()
        except Exception:
            await response.whole(HTTPStatus.INTERNAL_SERVER_ERROR, b"failed\n", "text/plain")
            raise
        await response.whole(HTTPStatus.OK, text, metrics.media_type)
