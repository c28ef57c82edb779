"""Decodes large batches and responses in threads, so that they do not block the event loop.

The consumer has its own threads: the application may occupy all those of ``asyncio.to_thread``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.client.protocol.codec import DecodedResponse

_T = TypeVar("_T")

_THREADS = 2


class DecodeThreads:
    """Starts its threads with the first large batch or response; most consumers never get one."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    def submit(self, decode: Callable[[], _T]) -> asyncio.Future[_T]:
        """Begin to decode. If the future is cancelled, the result is dropped."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_THREADS, "asyncrevoke-decode")
        return asyncio.get_running_loop().run_in_executor(self._pool, decode)

    def stop(self) -> None:
        """End the threads, without waiting for them."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


class LargeResponses:
    """Decodes one response of a connection at a time, and keeps the frames that follow it.

    Reading is paused meanwhile, so only frames that were received together with the response have
    to be kept.
    """

    def __init__(self, threads: DecodeThreads, transport: asyncio.Transport) -> None:
        self._threads = threads
        self._transport = transport
        self._kept: deque[bytes | memoryview] = deque()
        self._decoding: asyncio.Future[DecodedResponse] | None = None

    @property
    def busy(self) -> bool:
        """Whether one is being decoded."""
        return self._decoding is not None

    def decode(
        self,
        decode: Callable[[], DecodedResponse],
        on_decoded: Callable[[DecodedResponse | BaseException], None],
    ) -> None:
        """Pause reading and decode a response by ``decode()``; ``on_decoded`` gets the result,
        unless :meth:`discard` is called before."""
        if not self._transport.is_closing():
            self._transport.pause_reading()
        decoding = self._decoding = self._threads.submit(decode)

        def done(future: asyncio.Future[DecodedResponse]) -> None:
            if self._decoding is not future:
                if not future.cancelled():
                    future.exception()  # retrieved, so that asyncio does not log it
                return
            self._decoding = None
            if future.cancelled():
                on_decoded(ConnectionAbortedError("the consumer is closed"))
            else:
                on_decoded(future.exception() or future.result())

        decoding.add_done_callback(done)

    def keep(self, frame: bytes | memoryview) -> None:
        """Keep a frame that was received while another one is being decoded."""
        self._kept.append(frame)

    def next_kept(self) -> bytes | memoryview | None:
        """The frame that was kept first; None if there is none."""
        return self._kept.popleft() if self._kept else None

    def resume_reading(self) -> None:
        """Read again; no frames are kept."""
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def discard(self) -> None:
        """The connection is closed: drop kept frames, and the result of the current decoding."""
        self._kept.clear()
        self._decoding = None
