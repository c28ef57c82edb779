"""Lane keys by ``order_by``: the record's key, one key for the partition, or no lane."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, TypeVar, cast

if TYPE_CHECKING:
    from asyncrevoke.client.config import NullKeys

# The key of an item without a lane: it waits for no other item.
NO_LANE: Final = object()


class LaneItem(Protocol):
    """An item of a lane. Implemented by :class:`Record` and :class:`HandlerBatch`."""

    @property
    def key(self) -> bytes | None:
        """Items with equal keys share a lane, if lanes are by key."""
        ...

    @property
    def offset(self) -> int:
        """The offset in the item's partition."""
        ...

    @property
    def tracker_id(self) -> int:
        """The offset tracker that counts the item; each seek starts another one."""
        ...


T = TypeVar("T", bound=LaneItem)

# Returns the lane key of each item; None if no item has a lane.
LaneKeys: TypeAlias = Callable[[Sequence[T]], Iterable[Hashable] | None]

_RECORD_KEY = cast("Callable[[LaneItem], bytes | None]", attrgetter("key"))


def lane_keys_by_name(
    name: Literal["key", "partition"] | None, nulls: NullKeys
) -> LaneKeys[LaneItem]:
    """The lane keys for ``order_by="key"``, ``"partition"`` or None."""
    if name is None:
        return lambda _items: None
    if name == "partition":
        return lambda _items: repeat(None)
    if nulls == "ordered":
        return lambda items: map(_RECORD_KEY, items)
    return lambda items: [NO_LANE if item.key is None else item.key for item in items]
