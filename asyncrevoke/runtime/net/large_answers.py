"""Large answers of one connection, decoded in a thread."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from asyncrevoke.protocol.codec import Decoded
    from asyncrevoke.runtime.net.decode_threads import DecodeThreads

__all__ = ["LargeAnswers"]


class LargeAnswers:
    """Decodes one answer at a time in a thread, and keeps the frames that come after it.

    The connection is not read meanwhile, so that these are few: what had been received with the
    large answer.
    """

    def __init__(self, threads: DecodeThreads, transport: asyncio.Transport) -> None:
        self._threads = threads
        self._transport = transport
        self._kept: deque[memoryview] = deque()
        self._decoding: asyncio.Future[Decoded] | None = None

    @property
    def busy(self) -> bool:
        """Whether one is being decoded."""
        return self._decoding is not None

    def decode(
        self,
        frame: bytes | bytearray,
        decode: Callable[[], Decoded],
        then: Callable[[Decoded | BaseException], None],
    ) -> None:
        """Decode ``frame`` by ``decode()`` and stop reading; ``then`` gets what comes of it, unless
        :meth:`drop` is called before."""
        # While there is a view of it, its room is not used for another frame.
        view = memoryview(frame)
        if not self._transport.is_closing():
            self._transport.pause_reading()
        decoding = self._decoding = self._threads.submit(decode)

        def done(future: asyncio.Future[Decoded]) -> None:
            view.release()
            if self._decoding is not future:
                if not future.cancelled():
                    future.exception()  # nobody wants it any more
                return
            self._decoding = None
            if future.cancelled():
                then(ConnectionAbortedError("the consumer is closed"))
            else:
                then(future.exception() or future.result())

        decoding.add_done_callback(done)

    def keep(self, frame: bytes | bytearray) -> None:
        """Take a frame in that came while another one is being decoded."""
        self._kept.append(memoryview(frame))

    def next_kept(self) -> bytes | None:
        """Give the frame that was kept first; None if there is none."""
        return bytes(self._kept.popleft()) if self._kept else None

    def read_on(self) -> None:
        """Read again: what was kept is handled."""
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def drop(self) -> None:
        """Forget everything: the connection is closed. A decoding under way goes on for nobody."""
        self._kept.clear()
        self._decoding = None
