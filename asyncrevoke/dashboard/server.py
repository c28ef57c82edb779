"""The page on a port of its own, for commands."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from asyncrevoke.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from asyncrevoke.dashboard.history import History

LOCALHOST = "127.0.0.1"


@asynccontextmanager
async def served(history: History, host: str = LOCALHOST, port: int = 0) -> AsyncGenerator[str]:
    """Serve the page of a history at ``/``, and give its address. ``port`` 0: any that is free.

    Raises ConfigError, before anything is served, if the extra is missing or the port is in use.
    """
    try:
        import uvicorn  # noqa: PLC0415 - of an extra
        from starlette.applications import Starlette  # noqa: PLC0415

        from asyncrevoke.dashboard.app import Dashboard  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the page needs {error.name}: pip install 'asyncrevoke[dashboard]'"
        ) from error
    try:
        listening = socket.create_server((host, port))
    except OSError as error:
        raise ConfigError(
            f"cannot serve the page at {host}:{port} ({error.strerror}): choose another --port"
        ) from error
    with listening:
        config = uvicorn.Config(
            Starlette(routes=Dashboard(history).routes("")),
            log_level="error",
            lifespan="off",
            timeout_graceful_shutdown=1,
        )

        class Server(uvicorn.Server):
            @contextmanager
            def capture_signals(self) -> Generator[None]:
                """Signals are the command's."""
                yield

        server = Server(config)
        serving = asyncio.create_task(server.serve([listening]))
        try:
            shown = f"[{host}]" if ":" in host else host
            yield f"http://{shown}:{listening.getsockname()[1]}/"
        finally:
            server.should_exit = True
            await serving
