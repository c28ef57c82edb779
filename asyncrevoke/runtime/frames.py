"""Frames of the Kafka protocol, as they come from a socket: each is its size and so many bytes."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FrameTooLargeError", "Frames"]

_SIZE: Final = struct.Struct(">i")


class FrameTooLargeError(ConnectionError):
    """A frame larger than we are willing to hold."""


class Frames(asyncio.Protocol):
    """Takes an open transport over from ``before``, which is still told of its end.

    ``on_frame(frame)`` gets each frame in the very turn of the event loop in which it has come,
    and ``on_lost(error)`` is called once or more often when there will be no further ones: with
    None if the peer has closed the connection. Then, and when ``on_frame`` answers False, what has
    come after that is dropped. A frame is refused by the size that it declares, before it is
    collected in memory, if it has more than ``limit`` bytes.
    """

    def __init__(
        self,
        before: asyncio.BaseProtocol,
        limit: int,
        on_frame: Callable[[bytes], bool],
        on_lost: Callable[[Exception | None], None],
    ) -> None:
        self._before = before
        self._limit = limit
        self._on_frame = on_frame
        self._on_lost = on_lost
        # The beginning of a size.
        self._head = b""
        # The beginning of a frame, and how many bytes of it are still to come.
        self._parts: list[bytes] = []
        self._missing = 0
        self._ended = False

    def data_received(self, data: bytes) -> None:
        """Collect what belongs to a frame, and hand out those that are whole."""
        if self._ended:
            return
        if self._parts:
            missing = self._missing
            if len(data) < missing:
                self._parts.append(data)
                self._missing -= len(data)
                return
            self._parts.append(data[:missing])
            frame = b"".join(self._parts)
            self._parts.clear()
            self._split(data[missing:] if self._takes(frame) else b"")
        elif self._head:
            self._split(self._head + data)
        else:
            self._split(data)

    def _split(self, data: bytes) -> None:
        position, end = 0, len(data)
        while end - position >= _SIZE.size:
            size: int = _SIZE.unpack_from(data, position)[0]
            if not 0 <= size <= self._limit:
                self._refuse(size)
                return
            position += _SIZE.size
            stop = position + size
            if stop > end:
                self._head = b""
                self._parts.append(data[position:])
                self._missing = stop - end
                return
            if not self._takes(data[position:stop]):
                return
            position = stop
        self._head = data[position:]

    def _takes(self, frame: bytes) -> bool:
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
