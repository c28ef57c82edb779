"""Runs one program: ``python -m broker.servers.programs CLIENT CAPABILITY BOOTSTRAP CREATES``.

CREATES is "yes" if the server creates topics for a CreateTopics request. The last line that is
printed says in JSON whether the client has the capability on that server: ``{"error": null}``, or
the reason.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import logging
import os
import sys
import traceback
from typing import TYPE_CHECKING, Any, cast

from broker.servers.programs.world import DEADLINE, World

if TYPE_CHECKING:
    from collections.abc import Callable

MODULES = {
    "asyncrevoke": "broker.servers.programs.ours",
    "aiokafka": "broker.servers.programs.with_aiokafka",
    "confluent-kafka": "broker.servers.programs.with_confluent",
}


def capabilities(client: str) -> dict[str, Callable[[World], Any]]:
    found: dict[str, Callable[[World], Any]] = importlib.import_module(MODULES[client]).CAPABILITIES
    return found


async def _run(function: Callable[[World], Any], world: World) -> None:
    if inspect.iscoroutinefunction(function):
        async with asyncio.timeout(DEADLINE):
            await function(world)
    else:
        await asyncio.to_thread(function, world)


def main(client: str, capability: str, bootstrap: str, creates: str) -> None:
    logging.basicConfig(level="INFO", stream=sys.stderr)
    error: str | None = None
    world = World(bootstrap, creates=creates == "yes")
    try:
        asyncio.run(_run(capabilities(client)[capability], world))
    except BaseException as error_raised:  # noqa: BLE001 - it is the result
        raised: BaseException = error_raised
        traceback.print_exc()
        error = f"not done within {DEADLINE:.0f} s"
        while isinstance(raised, BaseExceptionGroup):
            first: BaseException = cast("BaseExceptionGroup[BaseException]", raised).exceptions[0]
            raised = first
        if not isinstance(raised, TimeoutError):
            error = f"{type(raised).__name__}: {raised}".strip()[:300]
    sys.stdout.write(json.dumps({"error": error}) + "\n")
    sys.stdout.flush()
    # A client's threads may still wait for a server.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
