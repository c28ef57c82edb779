"""Starts, restarts and drains workers, and kills those that do not stop in time."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from asyncrevoke.cli.run.health_server import (
    HealthPortError,
    HealthResponse,
    MetricsText,
    health_server,
)
from asyncrevoke.cli.run.serving import print_user_error
from asyncrevoke.cli.run.settings import WorkerSettings
from asyncrevoke.cli.run.workers.worker import WorkerProcess
from asyncrevoke.cli.terminal import FAILED, USAGE
from asyncrevoke.client import log_events
from asyncrevoke.client.backoff import Backoff
from asyncrevoke.client.runtime.hooks.event_log import EventLog

LABEL = "worker"


def metrics_of_workers(workers: Mapping[int, WorkerProcess]) -> MetricsText:
    """The metrics of the running workers at each request, without those that do not send them in
    time."""

    async def collect() -> bytes:
        asked = dict(workers)
        texts = await asyncio.gather(*(worker.read_metrics() for worker in asked.values()))
        received = {
            number: text for number, text in zip(asked, texts, strict=True) if text is not None
        }
        return await asyncio.to_thread(merged, received)

    return MetricsText(collect)


def merged(texts: Mapping[int, str]) -> bytes:
    """One text of the workers' texts. Each sample gets the label ``worker``, as all workers have
    the same client id and the same metrics of the process."""
    from prometheus_client import CollectorRegistry, Metric, generate_latest
    from prometheus_client.parser import text_string_to_metric_families
    from prometheus_client.registry import Collector

    families: dict[str, Metric] = {}
    for number, text in sorted(texts.items()):
        for part in text_string_to_metric_families(text):
            family = families.setdefault(
                part.name, Metric(part.name, part.documentation, part.type)
            )
            family.samples += [
                sample._replace(labels={**sample.labels, LABEL: str(number)})
                for sample in part.samples
            ]

    class Families(Collector):
        def collect(self) -> list[Metric]:
            return list(families.values())

    registry = CollectorRegistry()
    registry.register(Families())
    return generate_latest(registry)


FIRST_BACKOFF = 0.5
LONGEST_BACKOFF = 30.0
# A worker that has run for this many seconds restarts with the first backoff.
GOOD_RUN = 60.0

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Supervisor:
    """Starts, restarts and stops the workers. :meth:`run` can be called once.

    The first worker imports the application before the others start, so that an import error is
    logged once. All workers end if the first start fails, or if a worker fails in a way that a
    restart would repeat.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._log = EventLog()
        self._workers: dict[int, WorkerProcess] = {}
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()
        self._imported = asyncio.Event()
        self._code = 0

    async def run(self) -> int:
        """Keep the workers running until SIGINT or SIGTERM. Returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._signalled, number)
        try:
            async with health_server(
                self._settings, self._health_response, lambda: metrics_of_workers(self._workers)
            ):
                await self._run()
        except HealthPortError as error:
            return print_user_error(error, FAILED).code
        finally:
            for worker in self._workers.values():
                worker.kill()  # does nothing if it has ended
            for number in _SIGNALS:
                loop.remove_signal_handler(number)
        return self._code

    def _health_response(self) -> HealthResponse:
        workers = list(self._workers.items())
        facts: list[Mapping[str, object]] = []
        for number, worker in workers:
            state = {"worker": number, "live": worker.live, "ready": worker.ready}
            reported = None if worker.report is None else worker.report.facts
            facts += [{**fact, **state} for fact in reported or [{}]]
        live = all(worker.live for _, worker in workers)
        everyone = len(workers) == self._settings.processes and not self._stopping.is_set()
        return HealthResponse(live, everyone and all(worker.ready for _, worker in workers), facts)

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(self._watch()) if self._settings.reload else None
            async with asyncio.TaskGroup() as keepers:
                keepers.create_task(self._keep(1))
                await self._imported.wait()
                for number in range(2, self._settings.processes + 1):
                    keepers.create_task(self._keep(number))
            if watching is not None:
                watching.cancel()

    # --- one worker after the other --------------------------------------------------------------

    async def _keep(self, number: int) -> None:
        backoff = Backoff(FIRST_BACKOFF, LONGEST_BACKOFF)
        try:
            while not self._stopping.is_set():
                self._changed.clear()
                worker = await WorkerProcess.start(self._settings, number)
                self._workers[number] = worker
                code = await self._ended(worker)
                del self._workers[number]
                again = self._changed.is_set()
                if self._stopping.is_set() or not (
                    again or await self._should_restart(worker, code)
                ):
                    return
                if again or self._settings.reload:
                    continue
                if worker.age > GOOD_RUN:
                    backoff.succeeded()
                seconds = backoff.failed()
                log_events.WORKER_RESTARTED.write_to(
                    self._log,
                    worker=number,
                    pid=worker.pid,
                    ended_by=_in_words(code),
                    seconds=seconds,
                )
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._stopping.wait()
        finally:
            self._imported.set()

    async def _ended(self, worker: WorkerProcess) -> int:
        """Wait for the worker's end. Stop it on a signal or a file change."""
        ending = asyncio.create_task(worker.wait())
        events = [
            asyncio.create_task(event.wait())
            for event in (worker.imported, self._stopping, self._changed)
        ]
        imported, stopping, changed = events
        try:
            await asyncio.wait((ending, *events), return_when=asyncio.FIRST_COMPLETED)
            if imported.done():
                self._imported.set()
                await asyncio.wait((ending, stopping, changed), return_when=asyncio.FIRST_COMPLETED)
            if not ending.done():
                worker.drain()
                await asyncio.wait((ending,), timeout=self._settings.shutdown_timeout)
            if not ending.done():
                log_events.WORKER_KILLED.write_to(
                    self._log, pid=worker.pid, shutdown_timeout=self._settings.shutdown_timeout
                )
                worker.kill()
            code = await ending
            if worker.report_error is not None:
                log_events.WORKER_REPORT_INVALID.write_to(
                    self._log,
                    pid=worker.pid,
                    error=f"{type(worker.report_error).__name__}: {worker.report_error}",
                )
        finally:
            for event in events:
                event.cancel()
        # SIGTERM ends a worker that has not installed its signal handler yet.
        if self._stopping.is_set() and code not in (0, -signal.SIGTERM):
            self._code = self._code or FAILED
        return code

    async def _should_restart(self, worker: WorkerProcess, code: int) -> bool:
        """Whether to restart a worker that has ended without a signal."""
        if code == 0:
            log_events.WORKER_EXITED.write_to(self._log, pid=worker.pid)
            return False
        if self._settings.reload:
            log_events.APPLICATION_WAITS_FOR_CHANGE.write_to(self._log, ended_by=_in_words(code))
            await _first(self._stopping, self._changed)
            return not self._stopping.is_set()
        final = worker.report is not None and worker.report.final
        if code == USAGE or final or not self._imported.is_set():
            self._code = self._code or (code if code > 0 else FAILED)
            self._stopping.set()
            return False
        return True

    # --- what ends or changes them ---------------------------------------------------------------

    def _signalled(self, number: signal.Signals) -> None:
        if self._stopping.is_set():
            for worker in self._workers.values():
                worker.kill()
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
            return
        log_events.STOPPING_WORKERS.write_to(self._log, signal=number.name)
        self._stopping.set()

    async def _watch(self) -> None:
        from watchfiles import PythonFilter, awatch

        async for changes in awatch(Path.cwd(), watch_filter=PythonFilter()):
            names = sorted({Path(path).name for _, path in changes})
            log_events.APPLICATION_RESTARTED.write_to(self._log, files=names)
            self._changed.set()


async def _first(*events: asyncio.Event) -> None:
    tasks = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def _in_words(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name
