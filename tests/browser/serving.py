"""The page on a port of this machine."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import uvicorn
from starlette.applications import Starlette

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from starlette.routing import Route


@asynccontextmanager
async def serving(routes: Sequence[Route]) -> AsyncGenerator[str]:
    """Serve these, and give the address."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        config = uvicorn.Config(
            Starlette(routes=list(routes)), log_level="warning", timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve([listening]))
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            await task
