"""Records that were delivered with one tracker id before their log was truncated."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.core.partition.offset_tracker import OffsetTracker


class TruncatedTracker:
    """Passes each call to one of two trackers, by offset.

    ``kept`` counts the records before ``offset``, now with another id. ``lost`` counts the others:
    they move no commit point, but delay the release while they are in flight.
    """

    def __init__(
        self, offset: int, kept: OffsetTracker | TruncatedTracker, lost: OffsetTracker
    ) -> None:
        self._offset = offset
        self._kept = kept
        self._lost = lost

    def replace(self, tracker: OffsetTracker, truncated: TruncatedTracker) -> None:
        """The log was truncated again: ``truncated`` replaces ``tracker``."""
        if self._kept is tracker:
            self._kept = truncated

    def kept_by(self, tracker: OffsetTracker) -> int:
        """The offset before which ``tracker`` counts the records; 0 if it counts none."""
        if self._kept is tracker:
            return self._offset
        if isinstance(self._kept, TruncatedTracker):
            return min(self._offset, self._kept.kept_by(tracker))
        return 0

    @property
    def in_flight(self) -> int:
        """Records in flight that the log has lost."""
        return self._lost.in_flight

    @property
    def held(self) -> int:
        """Those of them that a task runs."""
        return self._lost.held

    @property
    def oldest_in_flight(self) -> int | None:
        """The lowest offset of them, None without one."""
        return self._lost.oldest_in_flight

    @property
    def untracked(self) -> int:
        """Always 0: records are tracked one by one before a tracker is split."""
        return 0

    @property
    def ended(self) -> bool:
        """Whether no record of this id is in flight."""
        return self._lost.ended and not self._kept.awaits(self._offset)

    def awaits(self, offset: int) -> bool:
        """Whether a record before ``offset`` may be in flight."""
        return self._kept.awaits(min(offset, self._offset)) or self._lost.awaits(offset)

    def complete_pending(self) -> int:
        """Complete the lost records that are pending; the kept ones have their own tracker."""
        return self._lost.complete_pending()

    def submit(self, offset: int) -> bool:
        """See :meth:`OffsetTracker.submit`."""
        return self._of(offset).submit(offset)

    def complete(self, offset: int) -> bool:
        """See :meth:`OffsetTracker.complete`."""
        return self._of(offset).complete(offset)

    def complete_all(self, offsets: Sequence[int]) -> int:
        """See :meth:`OffsetTracker.complete_all`."""
        in_order = sorted(offsets)
        lost_from = bisect_left(in_order, self._offset)
        kept = self._kept.complete_all(in_order[:lost_from])
        return kept + self._lost.complete_all(in_order[lost_from:])

    def abandon(self, offset: int) -> bool:
        """See :meth:`OffsetTracker.abandon`."""
        return self._of(offset).abandon(offset)

    def _of(self, offset: int) -> OffsetTracker | TruncatedTracker:
        return self._kept if offset < self._offset else self._lost
