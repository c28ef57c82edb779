"""Fetch responses whose buffers are in use because there are memoryviews of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.model import Value

if TYPE_CHECKING:
    from asyncrevoke.client.protocol.receive_buffers import ReceiveBuffer

# Seconds after which a response counts as kept for long.
_LONG = 60.0


class _Viewed(Value, frozen=True):
    """A response: its buffer, which use of the buffer it is, and since when."""

    buffer: ReceiveBuffer
    use: int
    since: float

    @property
    def is_in_use(self) -> bool:
        return self.buffer.uses == self.use and self.buffer.is_viewed


class ViewedResponses:
    """Counts the buffers that batches or delivered values are views of."""

    def __init__(self) -> None:
        # The oldest first.
        self._viewed: list[_Viewed] = []
        self._reported: _Viewed | None = None

    def add(self, now: float, buffer: ReceiveBuffer) -> None:
        """A response was received into this buffer."""
        self._viewed.append(_Viewed(buffer, buffer.uses, now))

    @property
    def size(self) -> int:
        """Bytes of the buffers that are in use."""
        self._drop_unused()
        return sum(len(each.buffer) for each in self._viewed)

    def is_kept_for_long(self, now: float) -> bool:
        """Whether a response is in use for a minute or longer."""
        if not self._has_old(now):
            return False
        self._drop_unused()
        return self._has_old(now)

    def _has_old(self, now: float) -> bool:
        return bool(self._viewed) and self._viewed[0].since + _LONG <= now

    def _drop_unused(self) -> None:
        if self._viewed:
            self._viewed = [each for each in self._viewed if each.is_in_use]

    def report(self) -> bool:
        """Whether to report the oldest one: True only the first time."""
        oldest = self._viewed[0] if self._viewed else None
        is_new = oldest is not self._reported
        self._reported = oldest
        return is_new and oldest is not None
