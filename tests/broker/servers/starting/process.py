"""Processes of servers, which end with the run, and what is missing to start one."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from typing import TYPE_CHECKING

import platformdirs

from asyncrevoke.broker.process.supervisor import die_with_parent

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence
    from pathlib import Path

START_DEADLINE = 60.0
STOP_DEADLINE = 20.0
HOST = "127.0.0.1"


class CannotStartError(Exception):
    """A server cannot be started on this machine; the message says what is missing."""


def cache() -> Path:
    """What this environment installs, in the user's cache."""
    folder: Path = platformdirs.user_cache_path("asyncrevoke", False) / "servers"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.asynccontextmanager
async def running(
    command: Sequence[str], log: Path, environ: Mapping[str, str] | None = None
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """A process with a pipe as its standard input and output, and its errors in ``log``. It is
    terminated at the end."""
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env=environ,
            preexec_fn=die_with_parent if sys.platform == "linux" else None,
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), STOP_DEADLINE)
            except TimeoutError:
                process.kill()
                await process.wait()


async def first_line(process: asyncio.subprocess.Process, log: Path) -> str:
    """What the server prints once it listens."""
    assert process.stdout is not None
    async with asyncio.timeout(START_DEADLINE):
        line = (await process.stdout.readline()).decode().strip()
    if not line:
        raise CannotStartError(f"it ended at its start: {log.read_text('utf-8', 'replace')[-500:]}")
    return line


async def until_listening(process: asyncio.subprocess.Process, port: int, log: Path) -> None:
    """Wait until something listens on the port."""
    async with asyncio.timeout(START_DEADLINE):
        while process.returncode is None:
            try:
                _, writer = await asyncio.open_connection(HOST, port)
            except OSError:
                await asyncio.sleep(0.1)
            else:
                writer.close()
                return
    raise CannotStartError(f"it ended at its start: {log.read_text('utf-8', 'replace')[-500:]}")


async def built(
    command: Sequence[str], folder: Path, environ: Mapping[str, str], *, within: float = 600.0
) -> None:
    """Run an installation to its end. Raises CannotStartError if it fails, or takes longer."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env=environ,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, errors = await asyncio.wait_for(process.communicate(), within)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise CannotStartError(f"{command[0]} was not done within {within / 60:.0f} min") from None
    if process.returncode:
        raise CannotStartError(f"{command[0]} failed: {errors.decode('utf-8', 'replace')[-500:]}")
