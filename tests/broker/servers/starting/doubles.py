"""Test doubles of other clients: franz-go's kfake and librdkafka's mock cluster."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from broker.servers.starting.process import CannotStartError, built, cache, first_line, running

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

_KFAKE = Path(__file__).parent / "kfake"
_MOCK = Path(__file__).parent / "mock_cluster.py"


def kfake_version() -> str:
    """The version in ``go.mod``: a date and a commit."""
    required = (_KFAKE / "go.mod").read_text("utf-8")
    found = re.search(r"pkg/kfake v0\.0\.0-(\d{4})(\d\d)(\d\d)", required)
    assert found is not None
    return "-".join(found.groups())


@contextlib.asynccontextmanager
async def kfake(folder: Path) -> AsyncGenerator[str]:
    """Three brokers of kfake, built by Go with the versions and digests of ``go.sum``."""
    go = shutil.which("go")
    if go is None:
        raise CannotStartError("Go is not installed")
    program = cache() / f"kfake-{kfake_version()}"
    if not program.exists():
        fresh = folder / "kfake"
        await built([go, "build", "-mod=readonly", "-o", str(fresh), "."], _KFAKE, dict(os.environ))
        shutil.move(fresh, program)
    log = folder / "kfake.log"
    async with running([str(program)], log) as process:
        yield await first_line(process, log)


@contextlib.asynccontextmanager
async def mock_cluster(folder: Path) -> AsyncGenerator[str]:
    """Three brokers of librdkafka's mock cluster, in a process of confluent-kafka."""
    log = folder / "mock.log"
    async with running([sys.executable, str(_MOCK)], log) as process:
        yield await first_line(process, log)
