"""Serves the page on a separate port, for commands."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import host_and_port
from asyncrevoke.web.http_port.asgi import AsgiRequestHandler
from asyncrevoke.web.http_port.server import AllowedHosts, HttpServer, PortLimits

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from asyncrevoke.web.dashboard.history import History
    from asyncrevoke.web.dashboard.stored_letters import StoredLetters

# An event stream ends after 10 s at the latest.
_LIMITS: Final = PortLimits(response_seconds=15.0)


@asynccontextmanager
async def served(
    history: History,
    host: str = "127.0.0.1",
    port: int = 0,
    allowed_hosts: Sequence[str] = (),
    limits: PortLimits = _LIMITS,
    stored: StoredLetters | None = None,
) -> AsyncGenerator[str]:
    """Serve the page of a history, and of ``stored`` dead letters, at ``/``. Yields its address.

    ``port`` 0 chooses a free port. The Host header may name ``host``, ``localhost``, any IP address
    and ``allowed_hosts``. Raises ConfigError if the extra is missing or the port is in use.
    """
    try:
        from starlette.applications import Starlette

        from asyncrevoke.web.dashboard.app import Dashboard
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the page needs {error.name}: pip install 'asyncrevoke[dashboard]'"
        ) from error
    handler = AsgiRequestHandler(Starlette(routes=Dashboard(history, stored).routes("")))
    server = HttpServer(host, port, handler, limits, AllowedHosts((host, *allowed_hosts)))
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(server)
        except OSError as error:
            raise ConfigError(
                f"cannot serve the page at {host_and_port(host, port)} ({error.strerror}): use "
                "another port"
            ) from error
        shown = f"[{host}]" if ":" in host else host
        yield f"http://{shown}:{server.port}/"
