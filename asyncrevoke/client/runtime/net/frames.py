"""Reads frames of the Kafka protocol from a socket: a size, then so many bytes."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Final, Protocol, cast

from asyncrevoke.client.runtime.net.sockets import LowWaterMark

if TYPE_CHECKING:
    from asyncrevoke.client.protocol.receive_buffers import ReceiveBuffers

_MIB: Final = 1024 * 1024
# Bytes beside record data, and for responses without records: metadata of a large cluster.
_FRAME_MARGIN: Final = _MIB
_SMALLEST_FRAME_LIMIT: Final = 16 * _MIB

_SIZE: Final = struct.Struct(">i")
_BUFFER_BYTES: Final = 64 * 1024
_NOTHING: Final = memoryview(b"")


class FrameTooLargeError(ConnectionError):
    """A frame of ``size`` bytes, which exceeds the limit."""

    def __init__(self, size: int, limit: int) -> None:
        self.size = size
        self.limit = limit
        super().__init__(
            f"a response of {size} bytes exceeds the limit of {limit}; if it has a large record"
            " batch, raise fetch_max_bytes"
        )


def frame_limit(fetch_max_bytes: int) -> int:
    """Bytes of the largest frame that an authenticated broker may send to a client that fetches
    up to ``fetch_max_bytes`` of records at once."""
    return max(fetch_max_bytes, _SMALLEST_FRAME_LIMIT) + _FRAME_MARGIN


class FrameReceiver(Protocol):
    """Handles the frames of one connection. Implemented by :class:`Handshake`, and then by
    :class:`Connection`."""

    def frame_received(self, frame: bytes | memoryview) -> bool:
        """Handle a frame in the iteration of the event loop in which it is received; False drops
        all bytes after it.

        A large frame is a memoryview of a ReceiveBuffer, which is used again when there are no
        more views of it.
        """
        ...

    def frames_ended(self, error: Exception | None) -> None:
        """No further frames follow; None if the peer has closed the connection. May be called more
        than once."""


class Frames(asyncio.BufferedProtocol):
    """The protocol of a connection: delivers its frames and its end to ``receiver``.

    A large frame is received where it stays, in one of ``buffers``. A frame that declares more than
    ``limit`` bytes is rejected before memory is taken for it.
    """

    def __init__(self, limit: int, buffers: ReceiveBuffers, receiver: FrameReceiver) -> None:
        self.transport: asyncio.Transport | None = None
        # Set when the transport is closed.
        self.closed = asyncio.Event()
        self._limit = limit
        self._buffers = buffers
        self._receiver = receiver
        # Small frames, and the first bytes of large ones.
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._filled = 0
        # A large frame, and the part of it that was not received yet.
        self._frame = self._missing = _NOTHING
        # Whether no further frames follow.
        self.ended = False
        # How many times bytes were received.
        self.arrivals = 0

    def limit(self, limit: int) -> None:
        """Reject frames of more than ``limit`` bytes from now on."""
        self._limit = limit

    def deliver_to(self, receiver: FrameReceiver) -> None:
        """Deliver all further frames, and the end, to this receiver."""
        self._receiver = receiver

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open, TLS included."""
        self.transport = cast("asyncio.Transport", transport)
        self._low_water_mark = LowWaterMark(transport)

    def read_queued(self) -> None:
        """Read soon what is queued, even if a large frame lacks many more bytes."""
        self._low_water_mark.reset()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - as asyncio calls it
        """The buffer for the next bytes; for a large frame, its own."""
        if self._missing:
            return self._missing
        return self._buffer[self._filled :] if self._filled else self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Deliver the frames that are complete."""
        self.arrivals += 1
        if self.ended:
            return
        if self._missing:
            self._missing = self._missing[nbytes:]
            self._low_water_mark.received(nbytes, len(self._missing))
            if not self._missing:
                self._deliver_large()
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
                self._begin_large(size, buffer[begin:end])
                return
            if not self._deliver(bytes(buffer[begin:stop])):
                return
            position = stop
        self._filled = end - position
        if position and self._filled:
            buffer[: self._filled] = bytes(buffer[position:end])

    def _begin_large(self, size: int, begun: memoryview) -> None:
        """Receive the rest of a large frame into a buffer of its own."""
        self._frame = memoryview(self._buffers.take(size))[:size]
        self._frame[: len(begun)] = begun
        self._missing = self._frame[len(begun) :]
        self._filled = 0

    def _deliver_large(self) -> None:
        frame, self._frame = self._frame, _NOTHING
        self._missing = _NOTHING
        self._buffers.remember(frame)
        self._deliver(frame)

    def _deliver(self, frame: bytes | memoryview) -> bool:
        self._buffers.free_unused()
        self.ended = not self._receiver.frame_received(frame)
        return not self.ended

    def _reject(self, size: int) -> None:
        self.ended = True
        self._receiver.frames_ended(FrameTooLargeError(size, self._limit))

    def eof_received(self) -> bool:
        """The peer has closed its side; False closes the transport."""
        self.ended = True
        self._receiver.frames_ended(None)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is closed."""
        self.ended = True
        self._receiver.frames_ended(exc)
        self.closed.set()
