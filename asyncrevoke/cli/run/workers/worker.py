"""A worker's process, as its supervisor sees it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from contextlib import suppress

import msgspec

from asyncrevoke.cli.run.settings import (
    LONGEST_LINE,
    METRICS_REQUEST,
    Report,
    WorkerSettings,
    WorkerStart,
    read_report,
)

# A worker that has not reported for this many seconds is not alive: its event loop is blocked.
SILENCE = 15.0
# How long a worker may take to send its metrics; Prometheus waits 10 s by default (seconds).
METRICS_TIMEOUT = 3.0


class WorkerProcess:
    """One worker process. It drains and ends if the supervisor has ended."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        writer: asyncio.StreamWriter,
        reader: asyncio.StreamReader,
    ) -> None:
        self.pid = process.pid
        self.report: Report | None = None
        self._process = process
        self._writer = writer
        self._reported_at = self._began = time.monotonic()
        self.imported = asyncio.Event()
        self._metrics: asyncio.Future[str | None] | None = None
        self._reading = asyncio.create_task(self._read(reader))

    @classmethod
    async def start(cls, settings: WorkerSettings, number: int) -> WorkerProcess:
        """Start a process. Ctrl-C does not reach it: the supervisor handles signals."""
        ours, theirs = socket.socketpair()
        with theirs:
            orders = WorkerStart(settings, None if settings.reload else number, theirs.fileno())
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "asyncrevoke.cli.run.workers.main",
                msgspec.json.encode(orders).decode(),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                process_group=0,
            )
        reader, writer = await asyncio.open_connection(sock=ours, limit=LONGEST_LINE)
        return cls(process, writer, reader)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                received = read_report(line)
                if isinstance(received, Report):
                    self.report = received
                    self._reported_at = time.monotonic()
                    if received.imported:
                        self.imported.set()
                else:
                    self._metrics_received(received.text)
        finally:
            self._metrics_received(None)

    def _metrics_received(self, text: str | None) -> None:
        if self._metrics is not None and not self._metrics.done():
            self._metrics.set_result(text)

    async def read_metrics(self) -> str | None:
        """Its metrics as text for Prometheus. None if its application is not imported yet, if it
        has ended, or if it does not send them within ``METRICS_TIMEOUT``. One call at a time."""
        if not self.imported.is_set() or self._reading.done() or self._writer.is_closing():
            return None
        self._metrics = asyncio.get_running_loop().create_future()
        self._writer.write(METRICS_REQUEST)
        try:
            async with asyncio.timeout(METRICS_TIMEOUT):
                return await self._metrics
        except TimeoutError:
            return None

    @property
    def report_error(self) -> BaseException | None:
        """Why a report of the worker cannot be read; None if each could be."""
        if not self._reading.done() or self._reading.cancelled():
            return None
        return self._reading.exception()

    @property
    def age(self) -> float:
        """Seconds since its start."""
        return time.monotonic() - self._began

    @property
    def live(self) -> bool:
        """Whether the worker has reported recently, and its consumer is live."""
        fresh = time.monotonic() - self._reported_at < SILENCE
        return fresh and (self.report is None or self.report.live)

    @property
    def ready(self) -> bool:
        """Whether the worker's consumer is ready."""
        return self.live and self.report is not None and self.report.ready

    async def wait(self) -> int:
        """Wait for the end of the process. Returns the exit code, negative for a signal.

        A process that sends an invalid report is killed, see :attr:`report_error`.
        """
        ending = asyncio.create_task(self._process.wait())
        try:
            await asyncio.wait((ending, self._reading), return_when=asyncio.FIRST_COMPLETED)
            if self.report_error is not None:
                self.kill()
            code = await ending
        finally:
            ending.cancel()
        # The last report may be unread, and a child process of the application may keep the socket
        # open.
        await asyncio.wait((self._reading,), timeout=1)
        self._reading.cancel()
        self._writer.close()
        return code

    def drain(self) -> None:
        """Send SIGTERM: the worker drains and ends."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process and its child processes."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):  # already ended
                os.killpg(self.pid, signal.SIGKILL)
