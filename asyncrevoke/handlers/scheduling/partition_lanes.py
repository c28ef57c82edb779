"""The lanes of one partition, and the keys of lanes: a record's key, one key, or no lane."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from asyncrevoke.handlers.policy.batch import Item

if TYPE_CHECKING:
    from asyncrevoke.client.config import NullKeys
    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.handlers.scheduling.handler_limiter import HandlerLimiter

# The key of an item without a lane: it waits for no other item.
NO_LANE: Final = object()

# Returns the lane key of each item; None if no item has a lane.
LaneKeys: TypeAlias = Callable[[Sequence[Item]], Iterable[Hashable] | None]

_ITEM_KEY = cast("Callable[[Item], bytes | None]", attrgetter("key"))


def lane_keys_by_name(name: Literal["key", "partition"] | None, nulls: NullKeys) -> LaneKeys:
    """The lane keys for ``order_by="key"``, ``"partition"`` or None."""
    if name is None:
        return lambda _items: None
    if name == "partition":
        return lambda _items: repeat(None)
    if nulls == "ordered":
        return lambda items: map(_ITEM_KEY, items)
    return lambda items: [NO_LANE if item.key is None else item.key for item in items]


class PartitionLanes:
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
        lanes: dict[Hashable, deque[Entry] | None],
        limiter: HandlerLimiter | None,
        *,
        default_keys: bool,
    ) -> None:
        self.default_keys = default_keys
        self.limiter = limiter
        self.partition = partition
        self.tracker_id = tracker_id
        self.lanes = lanes
        self.last_started = -1
        self.ready: deque[Entry] = deque()
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
Entry: TypeAlias = tuple[PartitionLanes, Item, int] | tuple[PartitionLanes, Item, int, Hashable]
