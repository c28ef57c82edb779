"""The memory that large responses are received into.

Record batches and values may be memoryviews of it. New memory costs as much time as receiving does,
because the kernel has to clear each page, so a buffer is used again when its last view is gone.
"""

from __future__ import annotations

from functools import cache
from typing import Final

# Sizes are multiples of this, so that a buffer fits the next response too.
_ROUNDED_TO: Final = 256 * 1024
# A buffer is not used for a response that is smaller by more than this factor: its views would keep
# the whole buffer.
_LARGEST_RATIO: Final = 4
# Responses of this size may have values for which malloc asks the kernel each time.
_LARGE: Final = 1024 * 1024
_LARGEST_COUNTED: Final = 31 * 1024 * 1024
# Looking for views of as many buffers takes some tens of microseconds.
_MOST_REMEMBERED: Final = 64


class ReceiveBuffer(bytearray):
    """The buffer of one response at a time. Its length is never 0."""

    __slots__ = ("uses",)

    def __init__(self, size: int) -> None:
        super().__init__(size)
        # For how many responses it was taken.
        self.uses = 1

    @property
    def is_viewed(self) -> bool:
        """Whether there is a memoryview of it."""
        try:
            last = self.pop()
        except BufferError:
            return True
        self.append(last)
        return False


def buffer_of(data: bytes | memoryview) -> ReceiveBuffer | None:
    """The buffer that ``data`` is a view of; None if it is of other memory."""
    if isinstance(data, bytes):
        return None
    viewed = data.obj
    return viewed if isinstance(viewed, ReceiveBuffer) else None


@cache
def raise_trim_threshold(size: int) -> None:
    """Let malloc keep the freed memory of large values for the next ones.

    glibc returns memory to the kernel when more than twice the largest block that was ever freed is
    free (M_TRIM_THRESHOLD in mallopt(3); blocks of up to 32 MiB count), so free one of ``size``
    bytes. It is never touched, and other C libraries ignore it.
    """
    bytes(min(size, _LARGEST_COUNTED))


class ReceiveBuffers:
    """Provides buffers, and keeps up to ``most`` bytes of those without views to be used again.

    It also remembers buffers that have views: their memory is in use in any case, and the next
    response is received into the first one whose views are gone.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        # The one that was remembered last comes last.
        self._remembered: list[ReceiveBuffer] = []

    def take(self, size: int) -> ReceiveBuffer:
        """A buffer of at least ``size`` bytes without views; its content is undefined."""
        for number, buffer in enumerate(self._remembered):
            if size <= len(buffer) <= max(_LARGEST_RATIO * size, _ROUNDED_TO):
                if buffer.is_viewed:
                    continue
                del self._remembered[number]
                buffer.uses += 1
                return buffer
        if size >= _LARGE:
            raise_trim_threshold(self._most)
        return ReceiveBuffer(max(-(-size // _ROUNDED_TO), 1) * _ROUNDED_TO)

    def remember(self, view: memoryview) -> None:
        """Remember the buffer of a view. :meth:`take` does not provide it while it has views."""
        buffer = buffer_of(view)
        if buffer is None:
            raise TypeError("a view of other memory")
        self._remembered.append(buffer)
        del self._remembered[:-_MOST_REMEMBERED]

    def free_unused(self) -> None:
        """Free what buffers without views have beyond ``most`` bytes, the oldest first. To be
        called for each response, because nothing tells when a view goes."""
        if sum(map(len, self._remembered)) <= self._most:
            return
        left = self._most
        remembered: list[ReceiveBuffer] = []
        for buffer in reversed(self._remembered):
            if not buffer.is_viewed:
                left -= len(buffer)
                if left < 0:
                    continue
            remembered.append(buffer)
        self._remembered = remembered[::-1]
