"""The lanes of one partition."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from asyncrevoke.handlers.scheduling.lane_keys import NO_LANE, LaneItem

if TYPE_CHECKING:
    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.handlers.scheduling.handler_limiter import HandlerLimiter

T = TypeVar("T", bound=LaneItem)


class PartitionLanes(Generic[T]):
    """The lanes of one partition, for items of one offset tracker.

    After a seek, or when it is assigned again, the partition has another tracker, and another
    object of this class with the same ``lanes``: items wait for calls that began before.

    ``last_started``: the highest offset that was taken, -1 if none; the queue sets it, because a
    call for each record costs time. ``default_keys``: items have the lane keys of the queue, and no
    limiter. ``check_on_take``: the items have a limiter, the partition is paused, or a seek has
    replaced this object. ``ready``: entries of :class:`ReadyEntries`. ``runs_last``: the key of the
    lane that runs last during a revocation.
    """

    __slots__ = (
        "_superseded",
        "check_on_take",
        "default_keys",
        "lanes",
        "last_started",
        "limiter",
        "partition",
        "ready",
        "runs_last",
        "tracker_id",
    )

    def __init__(
        self,
        partition: TopicPartition,
        tracker_id: int,
        lanes: dict[Hashable, deque[Entry[T]] | None],
        limiter: HandlerLimiter[Entry[T]] | None,
        *,
        default_keys: bool,
    ) -> None:
        self.default_keys = default_keys
        self.limiter = limiter
        self.partition = partition
        self.tracker_id = tracker_id
        self.lanes = lanes
        self.last_started = -1
        self.ready: deque[Entry[T]] = deque()
        self.check_on_take = limiter is not None
        self._superseded = False
        self.runs_last: Hashable = NO_LANE

    def pause(self) -> None:
        """The partition is paused: check entries when they are taken."""
        self.check_on_take = True

    def resume(self) -> None:
        """The partition is no longer paused."""
        self.check_on_take = self._superseded or self.limiter is not None

    def supersede(self) -> None:
        """A seek has replaced this object: its entries were delivered before the seek."""
        self._superseded = self.check_on_take = True

    def run_last(self, key: Hashable) -> None:
        """A revocation is announced: this lane runs after the others."""
        self.runs_last = key
        self.default_keys = False

    def revocation_withdrawn(self, *, default_keys: bool) -> None:
        """All lanes take turns again."""
        self.runs_last = NO_LANE
        self.default_keys = default_keys


# The partition's lanes, the item, the number of its put, and the key of its lane once the lane is
# assigned: making a longer tuple for each item costs time.
Entry: TypeAlias = tuple[PartitionLanes[T], T, int] | tuple[PartitionLanes[T], T, int, Hashable]
