"""The leader epochs of the delivered records of one partition, by offset."""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class LeaderEpochs:
    """From which offset on each leader epoch holds, up to the delivered position."""

    def __init__(self, position: int, leader_epoch: int) -> None:
        self._starts = [position - 1]
        self._epochs = [leader_epoch]

    @property
    def last(self) -> int:
        """The epoch of the record before the position, -1 if unknown."""
        return self._epochs[-1]

    def before(self, offset: int) -> int:
        """The epoch of the record before ``offset``."""
        return self._epochs[bisect_left(self._starts, offset) - 1]

    def first_after(self, epoch: int) -> int | None:
        """The first offset of a later epoch than ``epoch``, None if there is none."""
        index = bisect_right(self._epochs, epoch)
        return None if index == len(self._epochs) else self._starts[index]

    def begin(self, offset: int, epoch: int, kept_from: int) -> None:
        """``epoch`` holds from ``offset`` on; forget offsets before ``kept_from``."""
        passed = bisect_left(self._starts, kept_from) - 1
        del self._starts[:passed], self._epochs[:passed]
        self._starts.append(offset)
        self._epochs.append(epoch)

    def truncate(self, offset: int) -> None:
        """Forget ``offset`` and all after it."""
        while self._starts[-1] >= offset:
            self._starts.pop()
            self._epochs.pop()

    def limit(self, epoch: int) -> None:
        """No record has a later epoch than ``epoch``."""
        self._epochs = [min(known, epoch) for known in self._epochs]
