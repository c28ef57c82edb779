"""Which lane each item has: by its key, by its partition, or none."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, TypeVar, cast

if TYPE_CHECKING:
    from asyncrevoke.config import NullKeys

# The key of an item that has no lane: it waits for nobody.
NO_LANE: Final = object()


class Keyed(Protocol):
    """What the lanes know of an item: a record has it, and so has a task of the task group."""

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
        """The tracker that counts the item."""
        ...


T = TypeVar("T", bound=Keyed)

# The lane of each item, in its partition; None if they all have none.
Order: TypeAlias = Callable[[Sequence[T]], Iterable[Hashable] | None]

_KEYS = cast("Callable[[Keyed], bytes | None]", attrgetter("key"))


def order_by_name(name: Literal["key", "partition"] | None, nulls: NullKeys) -> Order[Keyed]:
    """The order by what an item has, or none."""
    if name is None:
        return lambda _items: None
    if name == "partition":
        return lambda _items: repeat(None)
    if nulls == "ordered":
        return lambda items: map(_KEYS, items)
    return lambda items: [NO_LANE if item.key is None else item.key for item in items]
