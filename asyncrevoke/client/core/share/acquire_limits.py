"""How many records a member acquires."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.client.core.share.state_table import RecordState

if TYPE_CHECKING:
    from asyncrevoke.client.core.share.held_records import HeldRecords

# A fetch waits until so many slots are free, so that it does not fetch a batch for each record.
_PART_OF_SLOTS = 4


class TopicLimits(NamedTuple):
    """Of a topic whose handler may be called less often than others: while so many of its records
    run or are about to, or do not run, its partitions are not fetched. Those that one response has
    beyond that take no slot from other topics."""

    slots: int | None = None
    most_unstarted: int | None = None

    def beyond(self, in_slots: int, unstarted: int) -> int:
        """By how many records a limit is exceeded; 0 if one is reached, and else less."""
        slots, most = self.slots, self.most_unstarted
        return max(
            -1 if slots is None else in_slots - slots, -1 if most is None else unstarted - most
        )


class AcquireLimits(NamedTuple):
    """At most ``slots`` records are acquired that run or are about to, ``most_unstarted`` of them
    that do not run, and ``max_in_flight`` with those that wait. ``topics`` may have less.

    If brokers acquire whole batches, they do while there are fewer than ``max_in_flight``.
    """

    slots: int
    max_in_flight: int
    most_unstarted: int | None = None
    topics: Mapping[str, TopicLimits] = MappingProxyType({})

    @property
    def limits_unstarted(self) -> bool:
        """Whether another record may be acquired when a call begins."""
        return self.most_unstarted is not None or any(
            limits.most_unstarted is not None for limits in self.topics.values()
        )

    def reached(self, held: HeldRecords) -> dict[str, int]:
        """The topics that are not fetched now, and by how many records they exceed their limits."""
        found = {name: limits.beyond(*held.of_topic(name)) for name, limits in self.topics.items()}
        return {name: beyond for name, beyond in found.items() if beyond >= 0}

    def in_slots(self, held: HeldRecords) -> int:
        """Records that take slots."""
        return held.in_slots - sum(self.reached(held).values())

    def room(self, held: HeldRecords, reserved: int, sessions: int, *, exact: bool) -> int:
        """How many records the next fetch of one of so many sessions may acquire, while others may
        acquire those that are ``reserved``."""
        left = self.max_in_flight - held.unfinished - reserved
        if not exact:
            wanted, is_idle = self.max_in_flight, held.unfinished == 0
        else:
            in_slots = self.in_slots(held) + reserved
            wanted, is_idle = self.slots, in_slots == 0
            left = min(left, self.slots - in_slots)
            if self.most_unstarted is not None:
                wanted = min(wanted, self.most_unstarted)
                left = min(left, self.most_unstarted - held.count(RecordState.HELD) - reserved)
        if left <= 0 or (not is_idle and left < wanted // _PART_OF_SLOTS):
            return 0
        return -(-left // max(sessions, 1))
