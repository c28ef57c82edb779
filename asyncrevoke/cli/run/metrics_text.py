"""Metrics in the format of Prometheus, for ``asyncrevoke run --metrics``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING

from asyncrevoke.client.errors import ConfigError

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
