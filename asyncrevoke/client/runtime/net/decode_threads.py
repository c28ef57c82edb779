"""Decodes large batches and responses in threads, so that they do not block the event loop.

The consumer has its own threads: the application may occupy all those of ``asyncio.to_thread``.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.client.core.io.effects import BatchDecoded, DecodeBatch

_T = TypeVar("_T")

_THREADS = 2


class DecodeThreads:
    """Starts its threads with the first large batch or response; most consumers never get one."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    async def run(self, decode: DecodeBatch) -> BatchDecoded:
        """DecodeBatch a batch. If cancelled, the result is dropped."""
        return await self.submit(decode.run)

    def submit(self, decode: Callable[[], _T]) -> asyncio.Future[_T]:
        """Begin to decode. If the future is cancelled, the result is dropped."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_THREADS, "asyncrevoke-decode")
        return asyncio.get_running_loop().run_in_executor(self._pool, decode)

    def stop(self) -> None:
        """End the threads, without waiting for them."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
