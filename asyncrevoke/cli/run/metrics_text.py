"""The metrics of a process in the format of Prometheus, for ``asyncrevoke run --metrics``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from asyncrevoke.errors import ConfigError

if TYPE_CHECKING:
    from asyncrevoke.consumer import Consumer


class MetricsText:
    """The metrics of a consumer, and all others in the default registry of prometheus-client.

    Create it before the consumer is entered. If the application also observes the consumer by
    ``PrometheusMetrics()``, each metric occurs once. Raises ConfigError if the extra is missing.
    """

    def __init__(self, consumer: Consumer) -> None:
        try:
            from asyncrevoke.integrations.prometheus import PrometheusMetrics
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"--metrics needs {error.name}: pip install 'asyncrevoke[cli,metrics]'"
            ) from error
        consumer.observe(PrometheusMetrics())
        self._collecting: asyncio.Task[bytes] | None = None

    @property
    def media_type(self) -> str:
        """The media type of the text that :meth:`read` returns."""
        from prometheus_client import CONTENT_TYPE_LATEST

        return CONTENT_TYPE_LATEST

    async def read(self) -> bytes:
        """All metrics as text. Collects them in a thread, once for all concurrent calls; cancelling
        a call does not stop that. Raises the errors of collectors."""
        from prometheus_client import generate_latest

        if self._collecting is None or self._collecting.done():
            self._collecting = asyncio.create_task(asyncio.to_thread(generate_latest))
        return await asyncio.shield(self._collecting)
