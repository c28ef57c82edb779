"""``/livez``, ``/readyz`` and ``/metrics`` on a separate port, for ``asyncrevoke run``."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple, Self

from typing_extensions import override

from asyncrevoke.cli.run.settings import WorkerSettings
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.web.http_port import HttpRequest, HttpResponse, HttpServer, PortLimits

if TYPE_CHECKING:
    from asyncrevoke.consumer import Consumer


class MetricsText:
    """The text that ``collect`` returns, collected once for all concurrent clients."""

    def __init__(self, collect: Callable[[], Coroutine[object, object, bytes]]) -> None:
        self._collect = collect
        self._collecting: asyncio.Task[bytes] | None = None

    async def read(self) -> bytes:
        """All metrics as text. Cancelling a call does not stop the collection. Raises the errors of
        ``collect``."""
        if self._collecting is None or self._collecting.done():
            self._collecting = asyncio.create_task(self._collect())
        return await asyncio.shield(self._collecting)


def metrics_of_process(consumers: Iterable[Consumer]) -> MetricsText:
    """All metrics in the default registry of prometheus-client, with those of consumers that are
    not entered yet. Collected in a thread. Raises ConfigError if the extra is missing."""
    try:
        from asyncrevoke.integrations.prometheus import PrometheusMetrics
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"--metrics needs {error.name}: pip install 'asyncrevoke[cli,metrics]'"
        ) from error
    for consumer in consumers:
        consumer.observe(PrometheusMetrics())

    async def collect() -> bytes:
        from prometheus_client import generate_latest

        return await asyncio.to_thread(generate_latest)

    return MetricsText(collect)


class HealthResponse(NamedTuple):
    """The response to a probe. ``facts`` are shown as JSON."""

    live: bool
    ready: bool
    facts: list[Mapping[str, object]]

    @classmethod
    def of(cls, consumers: Iterable[Consumer]) -> Self:
        """The response of consumers that have to be live, or ready, all together."""
        probes = [consumer.probe() for consumer in consumers]
        return cls(
            all(probe.live for probe in probes),
            all(probe.ready for probe in probes),
            [dict(probe.details()) for probe in probes],
        )


class HealthPortError(Exception):
    """The port cannot be opened. The message says what to do."""


class HealthServer(HttpServer):
    """Responds on its event loop, so that a blocked loop does not respond."""

    def __init__(
        self,
        host: str,
        port: int,
        health: Callable[[], HealthResponse],
        limits: PortLimits | None = None,
        *,
        metrics: MetricsText | None = None,
    ) -> None:
        handler = _HealthRequestHandler(health, metrics)
        super().__init__(host, port, handler, limits or PortLimits())

    @override
    async def __aenter__(self) -> Self:
        try:
            return await super().__aenter__()
        except OSError as error:
            where = f"--health-port {self._port}"
            if error.errno == errno.EADDRINUSE:
                raise HealthPortError(
                    f"{where}: another process listens on this port of {self._host}; use "
                    "another port"
                ) from error
            raise HealthPortError(f"{where}: cannot listen on {self._host}: {error}") from error


def health_server(
    settings: WorkerSettings,
    health: Callable[[], HealthResponse],
    metrics: Callable[[], MetricsText],
) -> AbstractAsyncContextManager[object]:
    """The server of ``--health-port``; does nothing without this option."""
    if settings.health_port is None:
        return nullcontext()
    return HealthServer(
        settings.health_host,
        settings.health_port,
        health,
        metrics=metrics() if settings.metrics else None,
    )


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
        ok = known.get(request.path)
        if ok is None:
            await response.whole(HTTPStatus.NOT_FOUND, b"", "application/json")
            return
        status = HTTPStatus.OK if ok else HTTPStatus.SERVICE_UNAVAILABLE
        body = json.dumps({"ok": ok, "consumers": health.facts}).encode()
        await response.whole(status, body, "application/json")

    async def _respond_with_metrics(self, metrics: MetricsText, response: HttpResponse) -> None:
        from prometheus_client import CONTENT_TYPE_LATEST

        try:
            text = await metrics.read()
        except Exception:
            await response.whole(HTTPStatus.INTERNAL_SERVER_ERROR, b"failed\n", "text/plain")
            raise
        await response.whole(HTTPStatus.OK, text, CONTENT_TYPE_LATEST)
