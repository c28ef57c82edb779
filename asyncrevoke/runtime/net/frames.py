"""Reads frames of the Kafka protocol from a socket: a size, then so many bytes."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FrameTooLargeError", "Frames"]

_SIZE: Final = struct.Struct(">i")
_BUFFER_BYTES: Final = 64 * 1024
# Bytes of a buffer that is kept for the next large frame.
_KEPT_BYTES: Final = 16 * 1024 * 1024
_NOTHING: Final = memoryview(b"")


class FrameTooLargeError(ConnectionError):
    """A frame that is larger than the limit."""


class Frames(asyncio.BufferedProtocol):
    """Replaces ``before`` as the protocol of an open transport, and forwards its end to it.

    ``on_frame(frame)`` gets each frame in the iteration of the event loop in which it is received.
    A large frame is the bytearray that it was received into, which is reused unless there is a
    memoryview of it. ``on_lost(error)`` is called once or more when no further frames follow; the
    error is None if the peer has closed the connection. After that, or when ``on_frame`` returns
    False, received bytes are dropped. A frame that declares more than ``limit`` bytes is rejected
    before it is read.
    """

    def __init__(
        self,
        before: asyncio.BaseProtocol,
        limit: int,
        on_frame: Callable[[bytes | bytearray], bool],
        on_lost: Callable[[Exception | None], None],
    ) -> None:
        self._before = before
        self._limit = limit
        self._on_frame = on_frame
        self._on_lost = on_lost
        # Small frames, and the first bytes of large ones.
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._filled = 0
        # A large frame, and the part of it that was not received yet.
        self._frame = bytearray()
        self._missing = _NOTHING
        self._ended = False
        # How many times bytes were received.
        self.arrivals = 0

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - as asyncio calls it
        """The buffer for the next bytes; for a large frame, its own."""
        if self._missing:
            return self._missing
        return self._buffer[self._filled :] if self._filled else self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Deliver the frames that are complete."""
        self.arrivals += 1
        if self._ended:
            return
        if self._missing:
            self._missing = self._missing[nbytes:]
            if not self._missing:
                frame, self._missing = self._frame, _NOTHING
                if len(frame) > _KEPT_BYTES:
                    self._frame = bytearray()
                self._deliver(frame)
            return
        buffer = self._buffer
        position, end = 0, self._filled + nbytes
        while end - position >= _SIZE.size:
            size: int = _SIZE.unpack_from(buffer, position)[0]
            if not 0 <= size <= self._limit:
                self._reject(size)
                return
            begin = position + _SIZE.size
            stop = begin + size
            if stop > end:
                if _SIZE.size + size <= _BUFFER_BYTES:
                    break
                self._frame = self._allocate(size)
                self._missing = memoryview(self._frame)[end - begin :]
                self._frame[: end - begin] = buffer[begin:end]
                self._filled = 0
                return
            if not self._deliver(bytes(buffer[begin:stop])):
                return
            position = stop
        self._filled = end - position
        if position and self._filled:
            buffer[: self._filled] = bytes(buffer[position:end])

    def _allocate(self, size: int) -> bytearray:
        """The bytearray of the last large frame, unless there is a memoryview of it.

        A new one costs time, because it is filled with zeros.
        """
        room = self._frame
        try:
            room.append(0)
        except BufferError:
            return bytearray(size)
        if len(room) < size:
            return bytearray(size)
        del room[size:]
        return room

    def _deliver(self, frame: bytes | bytearray) -> bool:
        self._ended = not self._on_frame(frame)
        return not self._ended

    def _reject(self, size: int) -> None:
        self._ended = True
        self._on_lost(
            FrameTooLargeError(
                f"a response of {size} bytes exceeds the limit of {self._limit}; if it has a large"
                " record batch, raise fetch_max_bytes"
            )
        )

    def eof_received(self) -> bool:
        """The peer has closed its side; False closes the transport."""
        self._ended = True
        self._on_lost(None)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is closed."""
        self._ended = True
        self._on_lost(exc)
        self._before.connection_lost(exc)
