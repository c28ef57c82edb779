"""A thread in which what takes long is computed, so that the event loop goes on meanwhile."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncrevoke.core.io.effects import Compute, Computed


class ComputingThread:
    """One computation at a time, each in a thread of its own that ends with it.

    The threads are daemons: an assignor of the user's own that does not end keeps no process alive.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()

    async def run(self, compute: Compute) -> Computed:
        """Compute it when those before it are done. If cancelled, what is under way goes on for
        nobody."""
        async with self._turn:
            future: asyncio.Future[Computed] = self._loop.create_future()
            threading.Thread(
                target=self._run, args=(compute, future), name="asyncrevoke-assign", daemon=True
            ).start()
            return await future

    def _run(self, compute: Compute, future: asyncio.Future[Computed]) -> None:
        computed = compute.run()
        # The loop is closed by then if the consumer has ended, and nobody waits any more.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(_settle, future, computed)


def _settle(future: asyncio.Future[Computed], computed: Computed) -> None:
    if not future.done():
        future.set_result(computed)
