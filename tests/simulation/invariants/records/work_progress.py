"""What was delivered and worked on of one partition, by whatever members."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulation.brokers.changing_log import ChangingLog


class WorkProgress:
    """One partition: which client received and worked on which record, and what is missing."""

    __slots__ = ("deleted", "deliveries", "done", "index", "repeats", "skipped")

    def __init__(self) -> None:
        # By offset: to whom it was given, and when.
        self.deliveries: dict[int, tuple[tuple[int, float], ...]] = {}
        self.done: dict[int, int] = {}
        # Index of the first record, in the log's list of records, that nobody has worked on.
        self.index = 0
        # Records before this offset need not be worked on (the reset policy was "latest").
        self.skipped = 0
        # Why records before an offset may be worked on again.
        self.repeats: tuple[str | None, int] = (None, 0)
        # Retention has deleted records: a position may lie before what there is.
        self.deleted = False

    def may_repeat(self, cause: str, end: int) -> None:
        """Records before ``end`` may be worked on again."""
        if end >= self.repeats[1]:
            self.repeats = cause, end

    def take_back(self, offset: int, client: int) -> None:
        """This client has dropped, unstarted, the records that it received last."""
        given = list(self.deliveries[offset])
        for index in reversed(range(len(given))):
            if given[index][0] == client:
                del given[index]
                break
        self.deliveries[offset] = tuple(given)

    def first_missing(self, log: ChangingLog) -> int:
        """Offset of the first record that nobody has worked on, or the end of the log."""
        offsets, done = log.offsets, self.done
        while self.index < len(offsets) and (
            offsets[self.index] in done or offsets[self.index] < self.skipped
        ):
            self.index += 1
        return offsets[self.index] if self.index < len(offsets) else log.end
