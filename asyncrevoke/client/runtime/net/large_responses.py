"""Decodes large responses of one connection in a thread."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from asyncrevoke.client.protocol.codec import DecodedResponse
    from asyncrevoke.client.runtime.net.decode_threads import DecodeThreads


class LargeResponses:
    """Decodes one response at a time in a thread, and keeps the frames that follow it.

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
