"""Tansu, a broker in Rust that keeps records in memory here, built from crates.io."""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import TYPE_CHECKING

from broker.servers.starting.process import (
    HOST,
    CannotStartError,
    built,
    cache,
    free_port,
    running,
    until_listening,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

VERSION = "0.6.0"
# About 600 crates: on two busy cores, at the lowest priority, they took 49 minutes.
BUILD_TIMEOUT = 3600.0


@contextlib.asynccontextmanager
async def tansu(folder: Path) -> AsyncGenerator[str]:
    """One broker, built by cargo with the versions that the crate has locked."""
    program = cache() / f"tansu-{VERSION}"
    if not program.exists():
        cargo = shutil.which("cargo")
        if cargo is None:
            raise CannotStartError("Rust's cargo is not installed")
        options = ("--locked", "--debug", "--no-default-features", "--features", "dynostore")
        command = [cargo, "install", f"tansu@{VERSION}", *options, "--root", str(folder)]
        await built(command, folder, dict(os.environ), within=BUILD_TIMEOUT)
        shutil.move(folder / "bin" / "tansu", program)
    port = free_port()
    address = f"tcp://{HOST}:{port}"
    listeners = ("--listener-url", address, "--advertised-listener-url", address)
    log = folder / "tansu.log"
    command = [str(program), "broker", *listeners, "--storage-engine", "memory://tansu/"]
    async with running(command, log) as process:
        await until_listening(process, port, log)
        yield f"{HOST}:{port}"
