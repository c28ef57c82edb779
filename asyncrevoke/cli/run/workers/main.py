"""A worker process: ``python -m asyncrevoke.cli.run.workers.main START``, started by a
supervisor."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import structlog

from asyncrevoke.cli.run.health_server import HealthResponse, MetricsText, metrics_of_process
from asyncrevoke.cli.run.log_output import LogOutput
from asyncrevoke.cli.run.serving import ServingError, load, log, serve
from asyncrevoke.cli.run.settings import LONGEST_LINE, MetricsReport, Report, WorkerStart
from asyncrevoke.client import log_events
from asyncrevoke.client.errors import FencedInstanceError
from asyncrevoke.client.runtime.session.open_session import config_override

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.consumer import Consumer

EVERY = 1.0


class StatusReporter:
    """Reports the consumers' health to the supervisor, and their metrics when the supervisor asks.
    Drains the consumers and ends if the supervisor has ended."""

    def __init__(self, connection: socket.socket, *, metrics: bool) -> None:
        self._connection = connection
        self._with_metrics = metrics
        self._metrics_wanted = asyncio.Event()

    @asynccontextmanager
    async def around(self, consumers: Sequence[Consumer]) -> AsyncGenerator[None]:
        """Report while this context is entered."""
        metrics = metrics_of_process(consumers) if self._with_metrics else None
        # A duplicate socket, because asyncio closes it and the last report is sent afterwards.
        reader, writer = await asyncio.open_connection(sock=self._connection.dup())
        tasks = [
            asyncio.create_task(self._report(consumers, writer)),
            asyncio.create_task(self._stop_with_supervisor(consumers, reader)),
        ]
        if metrics is not None:
            tasks.append(asyncio.create_task(self._send_metrics(metrics, writer)))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(result, Exception):
                    log_events.WORKER_HEALTH_NOT_REPORTED.write_to(log(), exc_info=result)
            writer.close()

    def end(self, error: ServingError) -> None:
        """Send the last report."""
        final = isinstance(error.cause, FencedInstanceError)
        with suppress(OSError):  # the supervisor has ended
            self._connection.sendall(Report(imported=False, live=False, final=final).line())

    async def _report(self, consumers: Sequence[Consumer], writer: asyncio.StreamWriter) -> None:
        while not writer.is_closing():
            if writer.transport.get_write_buffer_size() == 0:  # the last report was read
                writer.write(Report(True, *HealthResponse.of(consumers)).line())
            await asyncio.sleep(EVERY)

    async def _send_metrics(self, metrics: MetricsText, writer: asyncio.StreamWriter) -> None:
        while True:
            await self._metrics_wanted.wait()
            self._metrics_wanted.clear()
            writer.write(await _metrics_line(metrics))

    async def _stop_with_supervisor(
        self, consumers: Sequence[Consumer], reader: asyncio.StreamReader
    ) -> None:
        with suppress(ConnectionError):  # the supervisor was killed
            while await reader.readline():
                self._metrics_wanted.set()
        # run() has entered the consumers before this task runs.
        for consumer in consumers:
            consumer.stop()


async def _metrics_line(metrics: MetricsText) -> bytes:
    try:
        line = MetricsReport((await metrics.read()).decode()).line()
        if len(line) > LONGEST_LINE:
            raise ValueError(f"{len(line)} bytes, and a worker sends at most {LONGEST_LINE}")
    except Exception as error:  # noqa: BLE001 - whatever a collector of the application raises
        log_events.METRICS_NOT_COLLECTED.write_to(log(), exc_info=error)
        return MetricsReport(None).line()
    return line


def _with_own_id(number: int, config: ConsumerConfig) -> ConsumerConfig:
    """Give each worker another static id: workers with the same id would fence each other
    (KIP-345)."""
    if config.group_instance_id is None:
        return config
    return replace(config, group_instance_id=f"{config.group_instance_id}-{number}")


def main(text: str) -> int:
    """Run the worker; returns its exit code."""
    orders = msgspec.json.decode(text, type=WorkerStart)
    settings = orders.settings
    output = LogOutput(settings.log_level, settings.log_format)
    output.install()
    if orders.number is not None:
        config_override.set(partial(_with_own_id, orders.number))
        structlog.contextvars.bind_contextvars(worker=orders.number)
    with socket.socket(fileno=orders.socket) as connection:
        connection.set_inheritable(False)
        reporter = StatusReporter(connection, metrics=settings.metrics)
        try:
            serve(load(settings.targets), output, reporter.around)
        except ServingError as error:
            reporter.end(error)
            return error.code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
