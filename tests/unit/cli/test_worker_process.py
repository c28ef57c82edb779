"""A worker's process, as its supervisor sees it."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys

import pytest

from asyncrevoke.cli.run.settings import Report
from asyncrevoke.cli.run.workers.worker import WorkerProcess


async def started(*lines: bytes) -> WorkerProcess:
    """A process that sleeps, and has sent these lines to its supervisor."""
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(b"".join(lines))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "import time; time.sleep(60)", process_group=0
        )
        reader, writer = await asyncio.open_connection(sock=ours)
        worker = WorkerProcess(process, writer, reader)
        async with asyncio.timeout(10):
            if lines[0].startswith(b"{"):
                await worker.imported.wait()
    return worker


@pytest.mark.parametrize("line", [b"no report\n", b"x" * 100_000 + b"\n"])
async def test_a_worker_that_sends_an_invalid_report_is_killed(line: bytes) -> None:
    worker = await started(Report(imported=True).line(), line)
    async with asyncio.timeout(10):
        assert await worker.wait() == -signal.SIGKILL
    assert worker.report_error is not None


async def test_a_worker_that_closes_its_socket_runs_on() -> None:
    worker = await started(Report(imported=True).line())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await worker.wait()
    worker.kill()
    async with asyncio.timeout(10):
        assert await worker.wait() == -signal.SIGKILL
    assert worker.report_error is None
