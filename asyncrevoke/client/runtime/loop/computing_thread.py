"""Computes assignments in a thread, so that they do not block the event loop."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncrevoke.client.core.io.effects import Compute, Computed


class ComputingThread:
    """Runs one computation at a time, each in its own thread.

    The threads are daemons, so a user's assignor that never returns does not keep the process
    alive.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._one_at_a_time = asyncio.Lock()

    async def run(self, compute: Compute) -> Computed:
        """Compute it after the ones before it. If cancelled, the result is dropped."""
        async with self._one_at_a_time:
            future: asyncio.Future[Computed] = self._loop.create_future()
            threading.Thread(
                target=self._run, args=(compute, future), name="asyncrevoke-assign", daemon=True
            ).start()
            return await future

    def _run(self, compute: Compute, future: asyncio.Future[Computed]) -> None:
        computed = compute.run()
        # The event loop is closed if the consumer has ended meanwhile.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(_set_result, future, computed)


def _set_result(future: asyncio.Future[Computed], computed: Computed) -> None:
    if not future.done():
        future.set_result(computed)
