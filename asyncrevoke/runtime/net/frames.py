"""Frames of the Kafka protocol, as they come from a socket: each is its size and so many bytes."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FrameTooLargeError", "Frames"]

_SIZE: Final = struct.Struct(">i")
_BUFFER_BYTES: Final = 64 * 1024
# Of room that may be used again.
_KEPT_BYTES: Final = 16 * 1024 * 1024
_NOTHING: Final = memoryview(b"")


class FrameTooLargeError(ConnectionError):
    """A frame larger than we are willing to hold."""


class Frames(asyncio.BufferedProtocol):
    """Takes an open transport over from ``before``, which is still told of its end.

    ``on_frame(frame)`` gets each frame in the very turn of the event loop in which it has come, a
    large one as the bytearray that it was received into: to be kept as a memoryview, since without
    any it is used again. ``on_lost(error)`` is called once or more often when there will be no
    further ones: with None if the peer has closed the connection.
    Then, and when ``on_frame`` answers False, what has come after that is dropped. A frame is
    refused by the size that it declares, before it is collected in memory, if it has more than
    ``limit`` bytes.
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
        # Small frames, and the beginnings of large ones.
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._filled = 0
        # A large frame, and what of it is still to come.
        self._frame = bytearray()
        self._missing = _NOTHING
        self._ended = False
        # How often bytes have come.
        self.arrivals = 0

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - as asyncio calls it
        """Where the next bytes go: those of a large frame to their place at once."""
        if self._missing:
            return self._missing
        return self._buffer[self._filled :] if self._filled else self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Hand out the frames that are whole."""
        self.arrivals += 1
        if self._ended:
            return
        if self._missing:
            self._missing = self._missing[nbytes:]
            if not self._missing:
                frame, self._missing = self._frame, _NOTHING
                if len(frame) > _KEPT_BYTES:
                    self._frame = bytearray()
                self._takes(frame)
            return
        buffer = self._buffer
        position, end = 0, self._filled + nbytes
        while end - position >= _SIZE.size:
            size: int = _SIZE.unpack_from(buffer, position)[0]
            if not 0 <= size <= self._limit:
                self._refuse(size)
                return
            begin = position + _SIZE.size
            stop = begin + size
            if stop > end:
                if _SIZE.size + size <= _BUFFER_BYTES:
                    break
                self._frame = self._room(size)
                self._missing = memoryview(self._frame)[end - begin :]
                self._frame[: end - begin] = buffer[begin:end]
                self._filled = 0
                return
            if not self._takes(bytes(buffer[begin:stop])):
                return
            position = stop
        self._filled = end - position
        if position and self._filled:
            buffer[: self._filled] = bytes(buffer[position:end])

    def _room(self, size: int) -> bytearray:
        """That of the last large frame again, unless there is a memoryview of it.

        Other room has to be cleared, mostly by the kernel, too.
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

    def _takes(self, frame: bytes | bytearray) -> bool:
        self._ended = not self._on_frame(frame)
        return not self._ended

    def _refuse(self, size: int) -> None:
        self._ended = True
        self._on_lost(
            FrameTooLargeError(
                f"a response of {size} bytes, and at most {self._limit} are taken; if that is a"
                " record batch of yours, raise fetch_max_bytes"
            )
        )

    def eof_received(self) -> bool:
        """The peer sends nothing any more: False lets the transport be closed."""
        self._ended = True
        self._on_lost(None)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is closed."""
        self._ended = True
        self._on_lost(exc)
        self._before.connection_lost(exc)
