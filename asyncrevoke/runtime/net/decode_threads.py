"""Threads in which large batches and responses are decoded while the event loop goes on.

They are the consumer's own: those of ``asyncio.to_thread`` may all be taken by an application.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.core.io.effects import BatchDecoded, DecodeBatch

_T = TypeVar("_T")

_THREADS = 2


class DecodeThreads:
    """Begins with the first large batch or response; most consumers never see one."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    async def run(self, decode: DecodeBatch) -> BatchDecoded:
        """Decode a batch. If cancelled, what is under way goes on for nobody."""
        return await self.submit(decode.run)

    def submit(self, decode: Callable[[], _T]) -> asyncio.Future[_T]:
        """Begin to decode. If the future is cancelled, what is under way goes on for nobody."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_THREADS, "asyncrevoke-decode")
        return asyncio.get_running_loop().run_in_executor(self._pool, decode)

    def stop(self) -> None:
        """Let the threads end, which is not waited for."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
