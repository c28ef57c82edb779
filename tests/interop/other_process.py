"""Processes of other clients, and what they print."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

from asyncrevoke.broker.installation.java import find_java
from asyncrevoke.broker.process.supervisor import die_with_parent

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable


class Reader(Protocol):
    """Takes in what a process prints."""

    async def read(self) -> None:
        """Until it ends."""


R = TypeVar("R", bound=Reader)


def java_command(jars: str, *arguments: str) -> list[str]:
    """A small JVM with these jars and arguments."""
    options = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    return [str(find_java().path), *options, "-cp", jars, *arguments]


async def start_process(*command: str) -> asyncio.subprocess.Process:
    """Start one that dies with this one, with pipes for its input and output."""
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=PIPE,
        stdout=PIPE,
        preexec_fn=die_with_parent if sys.platform == "linux" else None,
    )


@asynccontextmanager
async def process_of(
    reader_of: Callable[[asyncio.subprocess.Process], R], *command: str
) -> AsyncGenerator[R]:
    """Start one and read what it prints; it is gone when the block ends."""
    process = await start_process(*command)
    reader = reader_of(process)
    reading = asyncio.create_task(reader.read())
    try:
        yield reader
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await reading
