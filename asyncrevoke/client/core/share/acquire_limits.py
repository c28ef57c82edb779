"""How many records a member acquires."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.client.core.share.state_table import RecordState

if TYPE_CHECKING:
    from asyncrevoke.client.core.share.held_records import HeldRecords

# A fetch waits until so many slots are free, so that it does not fetch a batch for each record.
_PART_OF_SLOTS = 4


class AcquireLimits(NamedTuple):
    """At most ``slots`` records are acquired that run or are about to, ``most_unstarted`` of them
    that do not run, and ``max_in_flight`` with those that wait.

    If brokers acquire whole batches, they do while there are fewer than ``max_in_flight``.
    """

    slots: int
    max_in_flight: int
    most_unstarted: int | None = None

    def room(self, held: HeldRecords, reserved: int, sessions: int, *, exact: bool) -> int:
        """How many records the next fetch of one of so many sessions may acquire, while others may
        acquire those that are ``reserved``."""
        left = self.max_in_flight - held.unfinished - reserved
        if not exact:
            wanted, is_idle = self.max_in_flight, held.unfinished == 0
        else:
            in_slots = held.in_slots + reserved
            wanted, is_idle = self.slots, in_slots == 0
            left = min(left, self.slots - in_slots)
            if self.most_unstarted is not None:
                wanted = min(wanted, self.most_unstarted)
                left = min(left, self.most_unstarted - held.count(RecordState.HELD) - reserved)
        if left <= 0 or (not is_idle and left < wanted // _PART_OF_SLOTS):
            return 0
        return -(-left // max(sessions, 1))
